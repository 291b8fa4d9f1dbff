# What `cmake --install` puts down: headers, libraries, tools, man pages, and the two ways to find them (CMake package, pkg-config).
include(CMakePackageConfigHelpers)

install(DIRECTORY include/shunt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
set(SHUNT_EXPORTED shunt_static shunt_shared)
if(SHUNT_LLVM)
  list(APPEND SHUNT_EXPORTED shunt_llvm shunt_llvm_libs)
  install(TARGETS shunt shunt-opt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS shunt_passes LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES docs/shunt.1 docs/shunt-opt.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(TARGETS ${SHUNT_EXPORTED} EXPORT shunt-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(SHUNT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/shunt)
install(EXPORT shunt-targets NAMESPACE shunt:: DESTINATION ${SHUNT_CMAKE_DIR})
configure_package_config_file(cmake/shunt-config.cmake.in ${PROJECT_BINARY_DIR}/shunt-config.cmake INSTALL_DESTINATION ${SHUNT_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shunt-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shunt-config.cmake ${PROJECT_BINARY_DIR}/shunt-config-version.cmake DESTINATION ${SHUNT_CMAKE_DIR})

set(SHUNT_PC_FFI)
if(FFI_FOUND)
  set(SHUNT_PC_FFI libffi)
endif()
set(SHUNT_PC_FILES shunt.pc)
if(SHUNT_LLVM)
  list(APPEND SHUNT_PC_FILES shunt-llvm.pc)
endif()
foreach(pc ${SHUNT_PC_FILES})
  configure_file(cmake/${pc}.in ${PROJECT_BINARY_DIR}/${pc} @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${pc} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
