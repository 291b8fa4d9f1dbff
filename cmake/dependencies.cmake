# Everything Shunt uses of others. Debian package names stand behind each; ./dev installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(URCU REQUIRED IMPORTED_TARGET liburcu-bp) # liburcu-dev
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)            # libxxhash-dev
pkg_check_modules(FFI IMPORTED_TARGET libffi)                           # libffi-dev; optional: shunt/call.h
if(SHUNT_LLVM)
  find_package(LLVM 19.1 REQUIRED CONFIG PATHS /usr/lib/llvm-19/lib/cmake/llvm NO_DEFAULT_PATH) # llvm-19-dev
  pkg_check_modules(ELF REQUIRED IMPORTED_TARGET libelf)                      # libelf-dev
  pkg_check_modules(BPF REQUIRED IMPORTED_TARGET libbpf)                      # libbpf-dev
  pkg_check_modules(PCAP REQUIRED IMPORTED_TARGET libpcap)                    # libpcap-dev
  pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)                 # libjansson-dev
  add_library(shunt_llvm_headers INTERFACE)
  target_include_directories(shunt_llvm_headers SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
  target_compile_definitions(shunt_llvm_headers INTERFACE _GNU_SOURCE __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS __STDC_LIMIT_MACROS)
  add_library(shunt_llvm_libs INTERFACE)
  # shunt/passes.h and shunt/jit.h use LLVM-C types. The users of an installation look where it runs, not in the sysroot it was built with.
  string(REPLACE "${CMAKE_SYSROOT}/usr/" "/usr/" SHUNT_INSTALLED_LLVM_INCLUDE_DIRS "${LLVM_INCLUDE_DIRS}")
  target_include_directories(shunt_llvm_libs SYSTEM INTERFACE
    "$<BUILD_INTERFACE:${LLVM_INCLUDE_DIRS}>" "$<INSTALL_INTERFACE:${SHUNT_INSTALLED_LLVM_INCLUDE_DIRS}>")
  target_link_libraries(shunt_llvm_libs INTERFACE LLVM)
  include(${CMAKE_CURRENT_LIST_DIR}/nest_register.cmake)
endif()
if(SHUNT_TESTS)
  pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion) # libcriterion-dev
endif()
