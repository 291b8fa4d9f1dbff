# The passes: IR tests by lit and FileCheck, and the C interface by Criterion.
find_program(SHUNT_LIT NAMES lit.py llvm-lit PATHS ${LLVM_INSTALL_PREFIX}/build/utils/lit ${LLVM_TOOLS_BINARY_DIR} NO_DEFAULT_PATH)
find_program(SHUNT_FILECHECK NAMES FileCheck PATHS ${LLVM_TOOLS_BINARY_DIR} NO_DEFAULT_PATH)

if(SHUNT_LIT AND SHUNT_FILECHECK)
  # A sanitized plugin cannot be loaded into an opt that is not.
  if(SHUNT_SANITIZE)
    set(SHUNT_PLUGIN_PATH "")
  else()
    set(SHUNT_PLUGIN_PATH "$<TARGET_FILE:shunt_passes>")
  endif()
  set(SHUNT_OPT_PATH "$<TARGET_FILE:shunt-opt>")
  configure_file(ir/lit.site.cfg.py.in ir/lit.site.cfg.py.configured @ONLY)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/ir/lit.site.cfg.py
    INPUT ${CMAKE_CURRENT_BINARY_DIR}/ir/lit.site.cfg.py.configured)
  add_test(NAME ir COMMAND ${SHUNT_LIT} -v -j2 ${CMAKE_CURRENT_BINARY_DIR}/ir)
  set_tests_properties(ir PROPERTIES LABELS ir TIMEOUT 300)
else()
  add_test(NAME ir COMMAND ${CMAKE_COMMAND} -E echo "skipped: lit.py and FileCheck of LLVM 19 are not installed (llvm-19-tools)")
  set_tests_properties(ir PROPERTIES LABELS ir SKIP_REGULAR_EXPRESSION "^skipped:")
endif()

shunt_add_criterion(passes LABELS ir
  SOURCES unit/passes.c unit/passes_meaning.c unit/passes_remarks.c $<TARGET_OBJECTS:shunt_passes_objects>
  LIBS shunt_llvm_headers shunt_llvm_libs)
