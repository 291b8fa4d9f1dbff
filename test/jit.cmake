# Tests of lib/jit. LLVM is not instrumented: a sanitizer must not judge what it keeps for the process's life.
shunt_add_criterion(jit_parts LABELS unit SOURCES unit/jit_parts.c LIBS shunt_llvm_headers shunt_llvm)
set(JIT_TESTS jit_run jit_errors jit_calls jit_orc)
foreach(name ${JIT_TESTS})
  shunt_add_criterion(${name} LABELS exec SOURCES exec/${name}.c LIBS shunt_llvm_headers shunt_llvm)
endforeach()
foreach(name jit_parts ${JIT_TESTS})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT
    "ASAN_OPTIONS=detect_odr_violation=0;LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/lsan.supp")
endforeach()

# Without Criterion, whose runner does not start under ThreadSanitizer. Nothing is suppressed: a leak or race here is ours.
add_executable(jit_threads exec/jit_threads.c)
target_link_libraries(jit_threads PRIVATE shunt_options shunt_llvm_headers shunt_llvm)
add_test(NAME jit_threads COMMAND jit_threads)
set_tests_properties(jit_threads PROPERTIES LABELS exec TIMEOUT 300 ENVIRONMENT "ASAN_OPTIONS=detect_odr_violation=0")

add_test(NAME example_jit_c_front_end COMMAND jit_c_front_end)
set_tests_properties(example_jit_c_front_end PROPERTIES LABELS exec PASS_REGULAR_EXPRESSION "on_event\\(21\\) = 42")
