# Packs, arenas, reclamation.
foreach(name pack_space pack_alloc pack_arena pack_backing pack_system pack_toggle pack_node pack_pages pack_options pack_fork pack_unwind grace)
  shunt_add_criterion(unit_${name} LABELS unit SOURCES unit/${name}.c LIBS shunt_static TSAN)
endforeach()
# One thread and thousands of mappings, which the thread sanitizer shadows one by one: minutes, for nothing.
shunt_add_criterion(unit_pack_faults LABELS unit SOURCES unit/pack_faults.c LIBS shunt_static)
add_test(NAME unit_pack_seam COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/unit/pack_seam.py "$<TARGET_OBJECTS:shunt_runtime>" COMMAND_EXPAND_LISTS)
set_tests_properties(unit_pack_seam PROPERTIES LABELS unit)
target_link_options(unit_pack_faults PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
shunt_add_criterion(stress_pack_storm LABELS stress SOURCES stress/pack_storm.c LIBS shunt_static TSAN)
if(SHUNT_LLVM) # the tool
  add_test(NAME e2e_doctor COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/e2e/test_doctor.py $<TARGET_FILE:shunt>)
  set_tests_properties(e2e_doctor PROPERTIES LABELS e2e TIMEOUT 300)
endif()
add_executable(pack_host exec/pack_host.c)
target_link_libraries(pack_host PRIVATE shunt_options shunt_static)
if(NOT SHUNT_SANITIZE) # gdb and perf look at the plain program
  add_test(NAME e2e_pack_tools COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/e2e/test_pack_tools.py $<TARGET_FILE:pack_host>)
  set_tests_properties(e2e_pack_tools PROPERTIES LABELS e2e TIMEOUT 300)
endif()
add_executable(pack_unwind_own exec/pack_unwind_own.cpp)
target_link_libraries(pack_unwind_own PRIVATE shunt_options shunt_static ${CMAKE_DL_LIBS})
set_target_properties(pack_unwind_own PROPERTIES ENABLE_EXPORTS ON) # the unwinder is to find the function that the test puts before its own
foreach(kind list tree)
  add_test(NAME pack_unwind_own_${kind} COMMAND pack_unwind_own ${kind})
  set_tests_properties(pack_unwind_own_${kind} PROPERTIES LABELS exec TIMEOUT 300)
endforeach()
if(SHUNT_LLVM)
  add_executable(pack_unwind exec/pack_unwind.cpp)
  target_link_libraries(pack_unwind PRIVATE shunt_options shunt_llvm_headers shunt_llvm)
  add_test(NAME pack_unwind COMMAND pack_unwind)
  set_tests_properties(pack_unwind PROPERTIES LABELS exec TIMEOUT 300 ENVIRONMENT
    "ASAN_OPTIONS=detect_odr_violation=0;LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/lsan.supp")
endif()
