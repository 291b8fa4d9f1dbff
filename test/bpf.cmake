# Tests of lib/bpf. Objects that real packages install are used where they are; what those lack, clang compiles here.
find_program(SHUNT_BPF_CLANG NAMES clang-19 clang HINTS ${LLVM_TOOLS_BINARY_DIR})
find_path(SHUNT_BPF_HEADERS bpf/bpf_helpers.h) # libbpf-dev
set(BPF_FEATURES_OBJECT)
if(SHUNT_BPF_CLANG AND SHUNT_BPF_HEADERS)
  set(BPF_FEATURES_OBJECT ${CMAKE_CURRENT_BINARY_DIR}/bpf_open_features.o)
  add_custom_command(OUTPUT ${BPF_FEATURES_OBJECT}
    COMMAND ${SHUNT_BPF_CLANG} -target bpf -O2 -g -idirafter ${SHUNT_BPF_HEADERS}
            -idirafter ${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
            -c ${CMAKE_CURRENT_LIST_DIR}/unit/bpf_open_features.bpf.c -o ${BPF_FEATURES_OBJECT}
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/unit/bpf_open_features.bpf.c VERBATIM)
  # The same program as LLVM IR: bitcode after optimisation, text before.
  set(BPF_FEATURES_IR)
  foreach(form "-O2 -emit-llvm bc" "-O0 -emit-llvm -S ll")
    separate_arguments(flags UNIX_COMMAND "${form}")
    list(POP_BACK flags suffix)
    add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/bpf_open_features.${suffix}
      COMMAND ${SHUNT_BPF_CLANG} -target bpf -g ${flags} -idirafter ${SHUNT_BPF_HEADERS}
              -idirafter ${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
              -c ${CMAKE_CURRENT_LIST_DIR}/unit/bpf_open_features.bpf.c -o ${CMAKE_CURRENT_BINARY_DIR}/bpf_open_features.${suffix}
      DEPENDS ${CMAKE_CURRENT_LIST_DIR}/unit/bpf_open_features.bpf.c VERBATIM)
    list(APPEND BPF_FEATURES_IR ${CMAKE_CURRENT_BINARY_DIR}/bpf_open_features.${suffix})
  endforeach()
  add_custom_target(bpf_features_object DEPENDS ${BPF_FEATURES_OBJECT} ${BPF_FEATURES_IR})
endif()

set(BPF_TEST_ENVIRONMENT "ASAN_OPTIONS=detect_odr_violation=0;LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/lsan.supp")
foreach(name bpf_open bpf_open_broken bpf_open_ir bpf_open_maps bpf_open_compile)
  shunt_add_criterion(${name} LABELS unit SOURCES unit/${name}.c unit/bpf_open_build.c LIBS shunt_llvm_headers shunt_llvm)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${BPF_TEST_ENVIRONMENT}")
  if(BPF_FEATURES_OBJECT)
    add_dependencies(${name} bpf_features_object)
    target_compile_definitions(${name} PRIVATE BPF_FEATURES_OBJECT="${BPF_FEATURES_OBJECT}")
  endif()
endforeach()

# bpf_mutate takes any number of cases; ctest runs a few that finish in seconds.
file(GLOB BPF_OBJECTS /usr/lib/*/bpf/*.o /usr/libexec/xdp-tools/*.o)
add_executable(bpf_mutate fuzz/bpf_mutate.c)
target_link_libraries(bpf_mutate PRIVATE shunt_options shunt_llvm_headers shunt_llvm Threads::Threads)
add_test(NAME damaged_bpf_objects_never_crash
  COMMAND bpf_mutate --cases=500 --compile-every=25 ${BPF_FEATURES_OBJECT} ${BPF_OBJECTS})
set_tests_properties(damaged_bpf_objects_never_crash PROPERTIES LABELS unit SKIP_RETURN_CODE 77 TIMEOUT 300 ENVIRONMENT "${BPF_TEST_ENVIRONMENT}")
if(BPF_FEATURES_OBJECT)
  add_dependencies(bpf_mutate bpf_features_object)
  # A case here forks a child that compiles: fewer of them.
  add_test(NAME damaged_bpf_modules_never_crash COMMAND bpf_mutate --cases=200 --compile-every=3 ${BPF_FEATURES_IR})
  set_tests_properties(damaged_bpf_modules_never_crash PROPERTIES LABELS unit TIMEOUT 300 ENVIRONMENT "${BPF_TEST_ENVIRONMENT}")
endif()

include(translate_tests.cmake OPTIONAL)
