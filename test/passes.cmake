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

# 5,000 random functions, compiled before and after the passes.
shunt_add_criterion(passes_random LABELS exec
  SOURCES unit/passes_random.c unit/passes_random_ir.c $<TARGET_OBJECTS:shunt_passes_objects> LIBS shunt_llvm_headers shunt_llvm_libs)

# The C host: as the project's compiler makes it, and by clang with the passes at every level.
if(TARGET c_host)
  set(C_HOST_CHECK sh ${PROJECT_SOURCE_DIR}/examples/c-host/check.sh)
  set(C_HOST_ARGS $<TARGET_FILE:c_host> ${PROJECT_SOURCE_DIR}/examples/c-host/expected.txt)
  set(C_HOST_PLUGINS $<TARGET_FILE:c_host_double> $<TARGET_FILE:c_host_drop>)
  add_test(NAME c_host_as_written COMMAND ${C_HOST_CHECK} $<TARGET_FILE:c_host_engine> ${C_HOST_ARGS} INDIRECT ${C_HOST_PLUGINS})
  set_tests_properties(c_host_as_written PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 60)
  if(TARGET c_host_direct)
    foreach(level 0 1 2 3 s)
      add_test(NAME c_host_direct_O${level} COMMAND ${C_HOST_CHECK}
        ${PROJECT_BINARY_DIR}/examples/c-host/O${level}/libc_host_engine.so ${C_HOST_ARGS} DIRECT ${C_HOST_PLUGINS})
      set_tests_properties(c_host_direct_O${level} PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 60)
    endforeach()
    if(NOT CMAKE_CROSSCOMPILING) # an emulator places programs in its own way
      set(C_HOST_EXECUTABLE ${PROJECT_BINARY_DIR}/examples/c-host/c_host_executable)
      add_test(NAME c_host_out_of_reach COMMAND ${C_HOST_CHECK} ${C_HOST_EXECUTABLE} ${C_HOST_EXECUTABLE}
        ${PROJECT_SOURCE_DIR}/examples/c-host/expected.txt FAR ${C_HOST_PLUGINS})
      set_tests_properties(c_host_out_of_reach PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 60)
    endif()
  else()
    add_test(NAME c_host_direct COMMAND sh -c "echo 'skipped: needs clang-19, no sanitizer, and a plugin that runs here (the preset release)'; exit 77")
    set_tests_properties(c_host_direct PROPERTIES LABELS exec SKIP_RETURN_CODE 77)
  endif()
endif()

# The tutorial's language, with libpcap as oracle, and the program itself.
if(TARGET filter)
  set(FILTER_CAPTURE ${PROJECT_SOURCE_DIR}/examples/data/mixed.pcap)
  shunt_add_criterion(filter_example LABELS exec SOURCES exec/filter_example.c ${PROJECT_SOURCE_DIR}/examples/filter/filter.c
    LIBS shunt_llvm_headers shunt_llvm)
  target_compile_definitions(filter_example PRIVATE FILTER_CAPTURE="${FILTER_CAPTURE}")
  set_tests_properties(filter_example PROPERTIES ENVIRONMENT
    "ASAN_OPTIONS=detect_odr_violation=0;LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/lsan.supp")
  add_test(NAME example_filter COMMAND filter ${FILTER_CAPTURE} "tcp and dst port 80" "udp" "not ip")
  set_tests_properties(example_filter PROPERTIES LABELS exec PASS_REGULAR_EXPRESSION "[1-9][0-9]* passed 'udp'")
endif()

# Debian's Lua and SQLite, one interface of each marked, with the passes on and off.
find_program(SHUNT_CLANG_19 clang-19)
foreach(name lua sqlite)
  if(SHUNT_CLANG_19 AND TARGET shunt_passes AND NOT SHUNT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    add_test(NAME real_${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/real/${name}.sh ${PROJECT_SOURCE_DIR} $<TARGET_FILE:shunt_passes>
      $<TARGET_LINKER_FILE:shunt_shared> ${SHUNT_CLANG_19} ${CMAKE_CURRENT_BINARY_DIR}/real-${name})
  else()
    add_test(NAME real_${name} COMMAND sh -c "echo 'skipped: needs clang-19, no sanitizer and a native build'; exit 77")
  endif()
  set_tests_properties(real_${name} PROPERTIES LABELS e2e SKIP_RETURN_CODE 77 TIMEOUT 900)
endforeach()
