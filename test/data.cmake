# Per-CPU areas and maps.
set(PERCPU_TESTS percpu percpu_add percpu_ops)
set(MAP_TESTS map_shape map_array map_hash map_lru map_lpm map_tables map_model map_batch)
if(SHUNT_SANITIZE MATCHES thread)
  # The runner there takes one file.
  foreach(name ${PERCPU_TESTS} ${MAP_TESTS})
    shunt_add_criterion(test_${name} LABELS unit SOURCES unit/${name}.c LIBS shunt_static TSAN)
  endforeach()
else()
  list(TRANSFORM PERCPU_TESTS REPLACE "(.+)" "unit/\\1.c")
  list(TRANSFORM MAP_TESTS REPLACE "(.+)" "unit/\\1.c")
  shunt_add_criterion(test_percpu LABELS unit SOURCES ${PERCPU_TESTS} LIBS shunt_static)
  shunt_add_criterion(test_map LABELS unit SOURCES ${MAP_TESTS} LIBS shunt_static)
  # The same tests where glibc did not register rseq: every thread goes through getcpu.
  add_test(NAME test_percpu_no_rseq COMMAND test_percpu --verbose=0 -j2)
  set_tests_properties(test_percpu_no_rseq PROPERTIES LABELS unit SKIP_RETURN_CODE 77 TIMEOUT 300
    ENVIRONMENT "GLIBC_TUNABLES=glibc.pthread.rseq=0;SHUNT_TEST_CPU_SOURCE=getcpu")
endif()
# Without Criterion, whose runner does not start under ThreadSanitizer.
foreach(name map percpu)
  add_executable(stress_${name} stress/${name}.c)
  target_link_libraries(stress_${name} PRIVATE shunt_options Threads::Threads shunt_static)
  add_test(NAME stress_${name} COMMAND stress_${name})
  set_tests_properties(stress_${name} PROPERTIES LABELS stress SKIP_RETURN_CODE 77 TIMEOUT 4000)
endforeach()

if(SHUNT_LLVM)
  shunt_add_criterion(percpu_area LABELS exec SOURCES exec/percpu_area.c LIBS shunt_llvm_headers shunt_llvm)
  set_tests_properties(percpu_area PROPERTIES ENVIRONMENT
    "ASAN_OPTIONS=detect_odr_violation=0;LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/lsan.supp")
endif()
# Random programs on random maps, with and without the passes; the second time without rseq.
if(SHUNT_LLVM)
  add_executable(percpu_random exec/percpu_random.c)
  target_link_libraries(percpu_random PRIVATE shunt_options shunt_llvm_headers shunt_llvm)
  add_test(NAME percpu_random COMMAND percpu_random)
  add_test(NAME percpu_random_no_rseq COMMAND percpu_random)
  set(RANDOM_ENVIRONMENT "ASAN_OPTIONS=detect_odr_violation=0;LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/lsan.supp")
  set_tests_properties(percpu_random PROPERTIES LABELS exec TIMEOUT 300 ENVIRONMENT "${RANDOM_ENVIRONMENT}")
  set_tests_properties(percpu_random_no_rseq PROPERTIES LABELS exec TIMEOUT 300
    ENVIRONMENT "${RANDOM_ENVIRONMENT};GLIBC_TUNABLES=glibc.pthread.rseq=0")
endif()

# Exact updates in compiled BPF programs, with each index source; and maps and CPUs where rseq is missing.
find_program(SHUNT_BPF_CLANG NAMES clang-19 clang HINTS ${LLVM_TOOLS_BINARY_DIR})
find_path(SHUNT_BPF_HEADERS bpf/bpf_helpers.h) # libbpf-dev
if(SHUNT_LLVM AND SHUNT_BPF_CLANG AND SHUNT_BPF_HEADERS)
  set(EXACT_OBJECT ${CMAKE_CURRENT_BINARY_DIR}/percpu_exact.bpf.o)
  add_custom_command(OUTPUT ${EXACT_OBJECT}
    COMMAND ${SHUNT_BPF_CLANG} -target bpf -mcpu=v3 -O2 -g -idirafter ${SHUNT_BPF_HEADERS} -idirafter ${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
            -c ${CMAKE_CURRENT_LIST_DIR}/stress/percpu_exact.bpf.c -o ${EXACT_OBJECT}
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/stress/percpu_exact.bpf.c VERBATIM)
  add_custom_target(percpu_exact_object DEPENDS ${EXACT_OBJECT})
  add_executable(stress_percpu_exact stress/percpu_exact.c)
  target_link_libraries(stress_percpu_exact PRIVATE shunt_options shunt_llvm_headers shunt_llvm Threads::Threads)
  target_compile_definitions(stress_percpu_exact PRIVATE EXACT_OBJECT="${EXACT_OBJECT}")
  add_dependencies(stress_percpu_exact percpu_exact_object)
  add_test(NAME stress_percpu_exact COMMAND stress_percpu_exact)
  add_test(NAME stress_percpu_exact_thread COMMAND stress_percpu_exact thread)
  add_test(NAME stress_percpu_exact_getcpu COMMAND stress_percpu_exact)
  set_tests_properties(stress_percpu_exact stress_percpu_exact_thread stress_percpu_exact_getcpu
    PROPERTIES LABELS stress SKIP_RETURN_CODE 77 TIMEOUT 4000)
  set_tests_properties(stress_percpu_exact_thread PROPERTIES ENVIRONMENT "SHUNT_TEST_CPU_SOURCE=thread")
  set_tests_properties(stress_percpu_exact_getcpu PROPERTIES
    ENVIRONMENT "GLIBC_TUNABLES=glibc.pthread.rseq=0;SHUNT_TEST_CPU_SOURCE=getcpu;SHUNT_EXACT_ADDS=2000000")
endif()

# Per-CPU globals of a C program, made by the plugin. A sanitized plugin cannot be loaded into a clang that is not.
if(SHUNT_LLVM AND SHUNT_BPF_CLANG AND NOT SHUNT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  foreach(level 0 2)
    set(GLOBAL_OBJECT ${CMAKE_CURRENT_BINARY_DIR}/percpu_global_O${level}.o)
    add_custom_command(OUTPUT ${GLOBAL_OBJECT}
      COMMAND ${SHUNT_BPF_CLANG} -O${level} -g -fPIE -D_GNU_SOURCE -I${PROJECT_SOURCE_DIR}/include -fpass-plugin=$<TARGET_FILE:shunt_passes>
              -c ${CMAKE_CURRENT_LIST_DIR}/stress/percpu_global.c -o ${GLOBAL_OBJECT}
      DEPENDS ${CMAKE_CURRENT_LIST_DIR}/stress/percpu_global.c shunt_passes ${PROJECT_SOURCE_DIR}/include/shunt/percpu.h VERBATIM)
    add_executable(percpu_global_O${level} ${GLOBAL_OBJECT})
    set_target_properties(percpu_global_O${level} PROPERTIES LINKER_LANGUAGE C)
    target_link_libraries(percpu_global_O${level} PRIVATE shunt_static)
    add_test(NAME percpu_global_O${level} COMMAND percpu_global_O${level})
    set_tests_properties(percpu_global_O${level} PROPERTIES LABELS exec TIMEOUT 60)
  endforeach()
endif()
