# bench_percpu: needs LLVM, and clang for its BPF programs.
if(SHUNT_LLVM)
  find_program(SHUNT_BPF_CLANG NAMES clang-19 clang HINTS ${LLVM_TOOLS_BINARY_DIR})
  find_path(SHUNT_BPF_HEADERS bpf/bpf_helpers.h) # libbpf-dev
  if(SHUNT_BPF_CLANG AND SHUNT_BPF_HEADERS)
    set(BENCH_PERCPU_OBJECT ${CMAKE_CURRENT_BINARY_DIR}/percpu.bpf.o)
    add_custom_command(OUTPUT ${BENCH_PERCPU_OBJECT}
      COMMAND ${SHUNT_BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -idirafter ${SHUNT_BPF_HEADERS} -idirafter ${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
              -c ${CMAKE_CURRENT_LIST_DIR}/bpf/percpu.bpf.c -o ${BENCH_PERCPU_OBJECT}
      DEPENDS ${CMAKE_CURRENT_LIST_DIR}/bpf/percpu.bpf.c VERBATIM)
    add_custom_target(bench_percpu_object DEPENDS ${BENCH_PERCPU_OBJECT})
    add_executable(bench_percpu bench_percpu.c common.c)
    target_link_libraries(bench_percpu PRIVATE shunt_options shunt_llvm_headers shunt_llvm Threads::Threads)
    target_compile_definitions(bench_percpu PRIVATE BENCH_PERCPU_OBJECT="${BENCH_PERCPU_OBJECT}")
    add_dependencies(bench_percpu bench_percpu_object)
  else()
    message(STATUS "bench_percpu is not built: it needs clang (for BPF) and libbpf's headers")
  endif()
endif()
