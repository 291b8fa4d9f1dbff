# Per-CPU areas and maps.
shunt_add_criterion(test_percpu LABELS unit SOURCES unit/percpu.c unit/percpu_add.c LIBS shunt_static)
# The same tests where glibc did not register rseq: every thread goes through getcpu.
if(NOT SHUNT_SANITIZE MATCHES thread)
  add_test(NAME test_percpu_no_rseq COMMAND test_percpu --verbose=0 -j2)
  set_tests_properties(test_percpu_no_rseq PROPERTIES LABELS unit SKIP_RETURN_CODE 77 TIMEOUT 300
    ENVIRONMENT "GLIBC_TUNABLES=glibc.pthread.rseq=0;SHUNT_TEST_CPU_SOURCE=getcpu")
endif()
shunt_add_criterion(test_map LABELS unit LIBS shunt_static
  SOURCES unit/map_shape.c unit/map_array.c unit/map_hash.c unit/map_lru.c unit/map_lpm.c unit/map_tables.c unit/map_model.c)
# Without Criterion, whose runner does not start under ThreadSanitizer.
foreach(name map percpu)
  add_executable(stress_${name} stress/${name}.c)
  target_link_libraries(stress_${name} PRIVATE shunt_options Threads::Threads shunt_static)
  add_test(NAME stress_${name} COMMAND stress_${name})
  set_tests_properties(stress_${name} PROPERTIES LABELS stress SKIP_RETURN_CODE 77 TIMEOUT 300)
endforeach()
