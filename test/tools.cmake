# End-to-end tests of the tools: real objects, a real capture, the kernel where it can be asked.
foreach(name run ir kernel dump)
  add_test(NAME e2e_${name}
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/e2e/test_${name}.py $<TARGET_FILE:shunt> ${PROJECT_SOURCE_DIR}/examples/data/mixed.pcap)
  set_tests_properties(e2e_${name} PROPERTIES LABELS e2e SKIP_RETURN_CODE 77 TIMEOUT 300)
endforeach()

shunt_add_criterion(replay LABELS unit SOURCES unit/replay.c LIBS shunt_llvm)
