# Which register does this LLVM pass a `nest` argument in? The trees compare that register and no other: a version that chose another
# one would make every dispatched call a wild jump, so it is refused here. Asked of the code generator, for both targets.
if(SHUNT_NEST_REGISTERS_OF STREQUAL "${LLVM_PACKAGE_VERSION}")
  return()
endif()
find_program(SHUNT_LLC NAMES llc llc-19 PATHS /usr/lib/llvm-19/bin NO_DEFAULT_PATH)
if(NOT SHUNT_LLC)
  find_program(SHUNT_LLC NAMES llc-19)
endif()
if(NOT SHUNT_LLC)
  message(WARNING "llc of LLVM 19 is not here (llvm-19), so it is not verified which register LLVM passes nest arguments in")
  return()
endif()

set(nest_ir ${CMAKE_BINARY_DIR}/CMakeFiles/nest_register.ll)
file(WRITE ${nest_ir} "declare void @callee(i64, ptr nest)
define void @caller(i64 %number, ptr %program) {
  call void @callee(i64 %number, ptr nest %program)
  ret void
}
")
# triple, the instruction that moves the second argument to the register of the machine contract (docs/architecture.md), its name
foreach(target "x86_64-linux-gnu;movq[ \t]+%rsi, %r10;r10" "aarch64-linux-gnu;mov[ \t]+x18, x1;x18")
  list(GET target 0 triple)
  list(GET target 1 move)
  list(GET target 2 register)
  execute_process(COMMAND ${SHUNT_LLC} -mtriple=${triple} ${nest_ir} -o - OUTPUT_VARIABLE nest_asm ERROR_VARIABLE nest_error RESULT_VARIABLE nest_status)
  if(nest_status)
    message(FATAL_ERROR "${SHUNT_LLC} cannot generate code for ${triple}, which Shunt does: ${nest_error}")
  endif()
  if(NOT nest_asm MATCHES "${move}")
    message(FATAL_ERROR "This LLVM does not pass nest arguments in ${register} on ${triple}, where Shunt's dispatch trees look for the program: "
      "build with LLVM 19. It generated:\n${nest_asm}")
  endif()
endforeach()
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} passes nest arguments in r10 (x86-64) and x18 (arm64)")
set(SHUNT_NEST_REGISTERS_OF ${LLVM_PACKAGE_VERSION} CACHE INTERNAL "LLVM version whose nest registers were verified")
