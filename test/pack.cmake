# Packs, arenas, reclamation.
foreach(name pack_space pack_alloc pack_arena pack_backing pack_fork grace)
  shunt_add_criterion(unit_${name} LABELS unit SOURCES unit/${name}.c LIBS shunt_static TSAN)
endforeach()
shunt_add_criterion(stress_pack_storm LABELS stress SOURCES stress/pack_storm.c LIBS shunt_static TSAN)
if(SHUNT_LLVM) # the tool
  add_test(NAME e2e_doctor COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/e2e/test_doctor.py $<TARGET_FILE:shunt>)
  set_tests_properties(e2e_doctor PROPERTIES LABELS e2e TIMEOUT 300)
endif()
