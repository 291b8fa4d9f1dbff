# Tests of targets/: bytes against tables, against LLVM, and trees walked or run.
shunt_add_criterion(encode_instructions LABELS encode
  SOURCES encode/test_encodings.c encode/x86_64_encodings.c encode/arm64_encodings.c
  LIBS shunt_targets)
# The runtime's plans are as pure as the targets: no library needed.
set(ENCODE_PLANS encode/plans.c ${PROJECT_SOURCE_DIR}/runtime/dispatch/plan.c ${PROJECT_SOURCE_DIR}/runtime/log.c)
shunt_add_criterion(encode_arm64_trees LABELS encode
  SOURCES encode/test_arm64_trees.c encode/arm64_walk.c encode/shapes.c ${ENCODE_PLANS}
  LIBS shunt_targets)
shunt_add_criterion(encode_arm64_trees_run LABELS encode
  SOURCES encode/test_arm64_trees_run.c encode/shapes.c
  LIBS shunt_targets)
if(NOT SHUNT_SANITIZE MATCHES "thread")
  # One thread, at addresses that the thread sanitizer keeps for itself.
  shunt_add_criterion(encode_x86_64_trees LABELS encode
    SOURCES encode/test_x86_64_trees.c encode/shapes.c ${ENCODE_PLANS}
    LIBS shunt_targets)
endif()
shunt_add_criterion(encode_slots LABELS encode
  SOURCES encode/test_slots.c
  LIBS shunt_targets)
shunt_add_criterion(encode_shapes LABELS encode
  SOURCES encode/test_shapes.c encode/shapes.c
  LIBS shunt_targets)
target_compile_definitions(encode_shapes PRIVATE SHUNT_TEST_DATA="${CMAKE_CURRENT_LIST_DIR}/encode/data")
if(SHUNT_LLVM)
  shunt_add_criterion(encode_llvm LABELS encode
    SOURCES encode/test_llvm.c encode/shapes.c encode/x86_64_encodings.c encode/arm64_encodings.c
    LIBS shunt_targets shunt_llvm_headers shunt_llvm_libs)
endif()
