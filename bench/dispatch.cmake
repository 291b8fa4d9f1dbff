# bench_dispatch: libshunt alone. Static: it makes its own code with the targets' buffer.
add_executable(bench_dispatch bench_dispatch.c bench_dispatch_change.c dispatch_calls.c common.c)
target_link_libraries(bench_dispatch PRIVATE shunt_options Threads::Threads shunt::shunt_static)
