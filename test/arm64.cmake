# Code for the other machine, and what a cross build for arm64 tests: under qemu-user here (label arm64-user), on an emulated machine (label
# arm64-system).
if(SHUNT_LLVM)
  # Opens what shunt compile links, as a host of any kind would.
  add_executable(compiled_host exec/compiled_host.c ${PROJECT_SOURCE_DIR}/tools/report.c)
  target_link_libraries(compiled_host PRIVATE shunt_options shunt_llvm ${CMAKE_DL_LIBS})
  set_target_properties(compiled_host PROPERTIES ENABLE_EXPORTS ON)
  add_test(NAME e2e_compile
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/e2e/test_compile.py $<TARGET_FILE:shunt> ${PROJECT_SOURCE_DIR}/examples/data/mixed.pcap
            $<TARGET_FILE:compiled_host>)
  set_tests_properties(e2e_compile PROPERTIES LABELS e2e SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
# An LLVM whose nest register is another one is refused when it is configured, by a sentence.
add_test(NAME another_nest_register_is_refused COMMAND ${CMAKE_COMMAND} -DSHUNT_LLC=${CMAKE_CURRENT_LIST_DIR}/arm64/other_llc.sh
  -DLLVM_PACKAGE_VERSION=0 -P ${PROJECT_SOURCE_DIR}/cmake/nest_register.cmake)
set_tests_properties(another_nest_register_is_refused PROPERTIES LABELS unit TIMEOUT 30 WILL_FAIL OFF
  PASS_REGULAR_EXPRESSION "does not pass nest arguments in r10 on[ \n]+x86_64-linux-gnu.*build with LLVM 19")
if(NOT CMAKE_CROSSCOMPILING OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  return()
endif()
set(ARM64_DIR ${CMAKE_CURRENT_LIST_DIR}/arm64)
set(ARM64_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/arm64)
set(ARM64_OBJECTS_DIR /usr/lib/x86_64-linux-gnu/bpf) # of Debian's xdp-tools; BPF objects are for no machine in particular
set(ARM64_CAPTURE ${PROJECT_SOURCE_DIR}/examples/data/mixed.pcap)
set(SHUNT_NATIVE_TOOL ${PROJECT_SOURCE_DIR}/build/release/tools/shunt CACHE FILEPATH "shunt of this machine, which arm64's is compared with")

# Contracts of the machine: views, barriers, restartable sequences, landing pads. Under qemu-user too, where it says what is lacking.
add_executable(arm64_machine arm64/machine.c)
target_link_libraries(arm64_machine PRIVATE shunt_options Threads::Threads shunt_static)
add_test(NAME arm64_machine COMMAND arm64_machine)
set_tests_properties(arm64_machine PROPERTIES LABELS exec TIMEOUT 120)
add_executable(arm64_series arm64/series.c ${PROJECT_SOURCE_DIR}/bench/peer_own.c)
target_link_libraries(arm64_series PRIVATE shunt_options Threads::Threads shunt_static)

# ---- qemu-user: all tests but the stress tests
get_property(ARM64_USER_TESTS DIRECTORY PROPERTY TESTS)
foreach(test ${ARM64_USER_TESTS})
  get_property(labels TEST ${test} PROPERTY LABELS)
  if("stress" IN_LIST labels)
    continue()
  endif()
  set_property(TEST ${test} APPEND PROPERTY LABELS arm64-user)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT QEMU_LD_PREFIX=${CMAKE_SYSROOT})
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT OBJDUMP=${CMAKE_OBJDUMP})
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT SHUNT_TEST_SLOWNESS=4)
  set_property(TEST ${test} APPEND PROPERTY FIXTURES_REQUIRED arm64_user)
  get_property(timeout TEST ${test} PROPERTY TIMEOUT)
  math(EXPR timeout "${timeout} + 1800") # emulated, perhaps on a busy machine
  set_property(TEST ${test} PROPERTY TIMEOUT ${timeout})
endforeach()
add_test(NAME arm64_user_starts COMMAND ${ARM64_SCRIPTS}/binfmt.sh ${CMAKE_SYSROOT})
set_tests_properties(arm64_user_starts PROPERTIES LABELS arm64-user FIXTURES_SETUP arm64_user SKIP_RETURN_CODE 77)

if(SHUNT_LLVM)
  add_test(NAME arm64_same_verdicts_and_maps
    COMMAND Python3::Interpreter ${ARM64_DIR}/same_results.py ${SHUNT_NATIVE_TOOL} $<TARGET_FILE:shunt> ${ARM64_CAPTURE} ${ARM64_OBJECTS_DIR})
  add_test(NAME arm64_compiled_here
    COMMAND Python3::Interpreter ${ARM64_DIR}/compiled_here.py ${SHUNT_NATIVE_TOOL} $<TARGET_FILE:shunt> $<TARGET_FILE:compiled_host>
            ${ARM64_CAPTURE})
  set_tests_properties(arm64_same_verdicts_and_maps arm64_compiled_here PROPERTIES LABELS arm64-user TIMEOUT 900 SKIP_RETURN_CODE 77
    FIXTURES_REQUIRED arm64_user
    ENVIRONMENT QEMU_LD_PREFIX=${CMAKE_SYSROOT})
endif()

# ---- an emulated machine: Debian's kernel with an initramfs that is made here, booted once; a test a line of its list
set(SHUNT_ARM64_KERNEL ${PROJECT_SOURCE_DIR}/build/arm64-kernel/vmlinuz CACHE FILEPATH "Debian's arm64 kernel (cmake/arm64/kernel.sh)")
set(ARM64_SYSTEM_LIST ${CMAKE_CURRENT_BINARY_DIR}/arm64-system-tests)
set(ARM64_SYSTEM_LOG ${CMAKE_CURRENT_BINARY_DIR}/arm64-system.log)
set(ARM64_INITRAMFS ${CMAKE_CURRENT_BINARY_DIR}/arm64-initramfs)
set(ARM64_SYSTEM_LINES)
set(ARM64_SYSTEM_FILES)
set(ARM64_SYSTEM_TARGETS)
set(ARM64_SYSTEM_TESTS)

# arm64_system(NAME TARGET [VARIABLE=value...] [argument...]): runs the target's program on the machine.
function(arm64_system name target)
  if(NOT TARGET ${target})
    return()
  endif()
  set(environment ${ARGN})
  set(arguments ${ARGN})
  list(FILTER environment INCLUDE REGEX "^[A-Z_]+=")
  list(FILTER arguments EXCLUDE REGEX "^[A-Z_]+=")
  list(JOIN environment " " environment)
  list(JOIN arguments " " arguments)
  set(ARM64_SYSTEM_LINES
    "${ARM64_SYSTEM_LINES}${name} 600 SHUNT_TEST_SLOWNESS=10 ${environment} ./$<TARGET_FILE_NAME:${target}> ${arguments}\n" PARENT_SCOPE)
  set(ARM64_SYSTEM_FILES ${ARM64_SYSTEM_FILES} $<TARGET_FILE:${target}> PARENT_SCOPE)
  set(ARM64_SYSTEM_TARGETS ${ARM64_SYSTEM_TARGETS} ${target} PARENT_SCOPE)
  set(ARM64_SYSTEM_TESTS ${ARM64_SYSTEM_TESTS} ${name} PARENT_SCOPE)
endfunction()

# Here a failure: what cannot be checked elsewhere is there on this machine.
arm64_system(machine arm64_machine all)
arm64_system(series arm64_series)
arm64_system(pack_nodes pack_nodes)
foreach(name unit_pack_alloc unit_pack_backing unit_pack_fork unit_pack_arena unit_pack_system unit_pack_options unit_pack_toggle unit_grace
        unit_dispatcher unit_dispatch_grace unit_hook exec_dispatch_arguments exec_dispatch_direct exec_dispatch_call test_percpu test_map jit_run
        jit_calls percpu_area)
  arm64_system(${name} ${name} --verbose=0 -j2)
endforeach()
# How an image was linked makes no difference there that it does not make under qemu-user; how the kernel places it does.
foreach(name exec_dispatch_pie exec_dispatch_no_pie exec_dispatch_no_pie_shared exec_hook_pie exec_hook_no_pie exec_dispatch_bp
        exec_dispatch_qsbr exec_dispatch_memb exec_dispatch_host exec_dispatch_stopped exec_dispatch_fork exec_dispatch_cpp_pie
        exec_dispatch_cpp_no_pie stress_dispatch stress_percpu stress_map stress_pack_storm percpu_random)
  arm64_system(${name} ${name})
endforeach()
if(TARGET stress_percpu_exact)
  arm64_system(stress_percpu_exact stress_percpu_exact SHUNT_EXACT_OBJECT=percpu_exact.bpf.o SHUNT_EXACT_ADDS=200000)
  list(APPEND ARM64_SYSTEM_FILES ${EXACT_OBJECT})
endif()
# Where code has one view, which takes a seccomp filter, which qemu-user has not.
foreach(name exec_dispatch_pie exec_hook_pie exec_dispatch_call)
  arm64_system(${name}_one_view deny_views ./${name})
endforeach()
arm64_system(example_jit_c_front_end jit_c_front_end)
if(TARGET exec_dispatch_loader)
  arm64_system(exec_dispatch_library exec_dispatch_loader ./$<TARGET_FILE_NAME:dispatch_library>)
  arm64_system(exec_dispatch_library_one_view deny_views ./exec_dispatch_loader ./$<TARGET_FILE_NAME:dispatch_library>)
  list(APPEND ARM64_SYSTEM_FILES $<TARGET_FILE:dispatch_library>)
endif()
if(TARGET c_host)
  arm64_system(c_host c_host ./$<TARGET_FILE_NAME:c_host_double> ./$<TARGET_FILE_NAME:c_host_drop>)
  list(APPEND ARM64_SYSTEM_FILES $<TARGET_FILE:c_host_double> $<TARGET_FILE:c_host_drop>)
  list(APPEND ARM64_SYSTEM_TARGETS c_host_double c_host_drop)
endif()
if(SHUNT_LLVM)
  # Each report is printed; the test below takes them from the log.
  file(GLOB objects ${ARM64_OBJECTS_DIR}/xdpfilt_*.o)
  list(APPEND ARM64_SYSTEM_FILES ${objects} ${ARM64_CAPTURE} $<TARGET_FILE:shunt>)
  list(APPEND ARM64_SYSTEM_TARGETS shunt)
  foreach(object ${objects})
    get_filename_component(stem ${object} NAME_WE)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${ARM64_DIR}/rules.py ${object} OUTPUT_VARIABLE rules OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(APPEND ARM64_SYSTEM_LINES "report.${stem} 300 ./shunt run --json ${rules} ${stem}.o mixed.pcap\n")
  endforeach()
endif()
file(GENERATE OUTPUT ${ARM64_SYSTEM_LIST} CONTENT "${ARM64_SYSTEM_LINES}")
list(JOIN ARM64_SYSTEM_FILES "\n" files)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/arm64-system-files CONTENT "${files}\n") # for cmake/arm64/hw.sh

add_executable(arm64_init arm64/init.c)
target_link_libraries(arm64_init PRIVATE shunt_options)
target_link_options(arm64_init PRIVATE -static)
add_custom_command(OUTPUT ${ARM64_INITRAMFS}
  COMMAND ${ARM64_SCRIPTS}/initramfs.sh ${CMAKE_SYSROOT} ${ARM64_INITRAMFS} $<TARGET_FILE:arm64_init> ${ARM64_SYSTEM_LIST} ${ARM64_SYSTEM_FILES}
  DEPENDS arm64_init ${ARM64_SYSTEM_TARGETS} ${ARM64_SYSTEM_LIST} ${ARM64_SCRIPTS}/initramfs.sh VERBATIM)
add_custom_target(arm64_initramfs ALL DEPENDS ${ARM64_INITRAMFS})

add_test(NAME arm64_system_boots COMMAND Python3::Interpreter ${ARM64_DIR}/system.py boot qemu-system-aarch64 ${SHUNT_ARM64_KERNEL}
  ${ARM64_INITRAMFS} ${ARM64_SYSTEM_LOG} 3000)
set_tests_properties(arm64_system_boots PROPERTIES LABELS arm64-system FIXTURES_SETUP arm64_system TIMEOUT 3100 SKIP_RETURN_CODE 77 PROCESSORS 2)
foreach(name ${ARM64_SYSTEM_TESTS})
  set(expected)
  if(name STREQUAL "c_host") # not a word that a plug-in is out of reach
    set(expected ${PROJECT_SOURCE_DIR}/examples/c-host/expected.txt)
  endif()
  add_test(NAME arm64_system.${name} COMMAND Python3::Interpreter ${ARM64_DIR}/system.py result ${ARM64_SYSTEM_LOG} ${name} ${expected})
  set_tests_properties(arm64_system.${name} PROPERTIES LABELS arm64-system FIXTURES_REQUIRED arm64_system SKIP_RETURN_CODE 77)
endforeach()
if(SHUNT_LLVM)
  add_test(NAME arm64_system.same_verdicts_and_maps
    COMMAND Python3::Interpreter ${ARM64_DIR}/same_results.py ${SHUNT_NATIVE_TOOL} ${ARM64_SYSTEM_LOG} ${ARM64_CAPTURE} ${ARM64_OBJECTS_DIR})
  set_tests_properties(arm64_system.same_verdicts_and_maps PROPERTIES LABELS arm64-system FIXTURES_REQUIRED arm64_system SKIP_RETURN_CODE 77)
endif()
