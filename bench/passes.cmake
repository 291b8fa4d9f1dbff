# bench_passes: what the passes cost beside LLVM's own pipeline, and static targets beside LLVM's promotion of indirect calls.
if(SHUNT_LLVM)
  add_executable(bench_passes bench_passes.c passes_targets.c common.c)
  target_link_libraries(bench_passes PRIVATE shunt_options shunt_llvm_headers shunt_llvm)
endif()
