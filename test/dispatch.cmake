# Tests of dispatchers: plans, the registry, host images of every kind, grace periods, stress.
shunt_add_criterion(unit_plan LABELS unit SOURCES unit/plan.c LIBS shunt::shunt_static)
target_compile_definitions(unit_plan PRIVATE SHUNT_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/unit/data")
shunt_add_criterion(unit_dispatcher LABELS unit SOURCES unit/dispatcher.c unit/dispatch_hits.c LIBS shunt::shunt_static)
shunt_add_criterion(unit_dispatch_grace LABELS unit SOURCES unit/dispatch_grace.c LIBS shunt::shunt_static)
shunt_add_criterion(unit_dispatch_rare LABELS unit SOURCES unit/dispatch_rare.c LIBS shunt::shunt_static)
shunt_add_criterion(unit_dispatch_model LABELS unit SOURCES unit/dispatch_model.c LIBS shunt::shunt_static)
shunt_add_criterion(unit_hook LABELS unit SOURCES unit/hook.c LIBS shunt::shunt_static)
shunt_add_criterion(exec_dispatch_arguments LABELS exec SOURCES exec/dispatch_arguments.c LIBS shunt::shunt_static)
shunt_add_criterion(exec_dispatch_direct LABELS exec SOURCES exec/dispatch_direct.c LIBS shunt::shunt_static)
shunt_add_criterion(exec_dispatch_call LABELS exec SOURCES exec/dispatch_call.c LIBS shunt::shunt_static)

set(DISPATCH_IMAGE exec/dispatch_image.c exec/dispatch_image_elsewhere.c)

# image_test(NAME "SOURCES" LIBRARY [compile and link options...]): an image with stubs, linked in one of the ways there are.
function(image_test name sources library)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE shunt_options Threads::Threads ${library})
  target_compile_options(${name} PRIVATE ${ARGN})
  target_link_options(${name} PRIVATE ${ARGN})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)
endfunction()
function(dispatch_image name)
  image_test(${name} "${DISPATCH_IMAGE}" ${ARGN})
endfunction()
function(hook_image name)
  image_test(${name} exec/hook_image.c ${ARGN})
endfunction()

# dispatch_skip(NAME REASON): what cannot be built here says so when tests run.
function(dispatch_skip name reason)
  add_test(NAME ${name} COMMAND sh -c "echo 'skipped: ${reason}'; exit 77")
  set_tests_properties(${name} PROPERTIES LABELS exec SKIP_RETURN_CODE 77)
endfunction()

dispatch_image(exec_dispatch_pie shunt::shunt_static -fPIE -pie)
dispatch_image(exec_dispatch_pie_shared shunt::shunt_shared -fPIE -pie)
# The image low, libshunt.so and its default arena high: trees need an arena of their own beside the image.
dispatch_image(exec_dispatch_no_pie shunt::shunt_static -fno-pie -no-pie)
dispatch_image(exec_dispatch_no_pie_shared shunt::shunt_shared -fno-pie -no-pie)
dispatch_image(exec_dispatch_gc_sections shunt::shunt_static -ffunction-sections -fdata-sections -Wl,--gc-sections)

hook_image(exec_hook_pie shunt::shunt_static -fPIE -pie)
hook_image(exec_hook_pie_shared shunt::shunt_shared -fPIE -pie)
hook_image(exec_hook_no_pie shunt::shunt_shared -fno-pie -no-pie)
hook_image(exec_hook_gc_sections shunt::shunt_static -ffunction-sections -fdata-sections -Wl,--gc-sections)

foreach(linker gold lld)
  find_program(LD_${linker} ld.${linker})
  if(LD_${linker})
    dispatch_image(exec_dispatch_${linker} shunt::shunt_static -fPIE -pie -fuse-ld=${linker})
    dispatch_image(exec_dispatch_${linker}_no_pie shunt::shunt_shared -fno-pie -no-pie -fuse-ld=${linker})
    hook_image(exec_hook_${linker} shunt::shunt_static -fPIE -pie -fuse-ld=${linker})
    hook_image(exec_hook_${linker}_no_pie shunt::shunt_shared -fno-pie -no-pie -fuse-ld=${linker})
  else()
    dispatch_skip(exec_dispatch_${linker} "there is no ld.${linker}")
  endif()
endforeach()

# The same for hosts in C++.
function(dispatch_cpp name)
  image_test(${name} exec/dispatch_cpp.cpp ${ARGN})
endfunction()
dispatch_cpp(exec_dispatch_cpp_pie shunt::shunt_static -fPIE -pie)
dispatch_cpp(exec_dispatch_cpp_no_pie shunt::shunt_shared -fno-pie -no-pie)

add_library(dispatch_library SHARED ${DISPATCH_IMAGE})
target_compile_definitions(dispatch_library PRIVATE DISPATCH_LIBRARY)
target_link_libraries(dispatch_library PRIVATE shunt_options Threads::Threads shunt::shunt_shared)
add_executable(exec_dispatch_loader exec/dispatch_loader.c)
target_link_libraries(exec_dispatch_loader PRIVATE shunt_options shunt::shunt_shared ${CMAKE_DL_LIBS})
add_test(NAME exec_dispatch_library COMMAND exec_dispatch_loader $<TARGET_FILE:dispatch_library>)
set_tests_properties(exec_dispatch_library PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)

# Where code has one view: pages are made anew, stubs jump through data.
add_executable(deny_views exec/deny_views.c)
target_link_libraries(deny_views PRIVATE shunt_options)
foreach(name dispatch_pie hook_pie dispatch_call)
  get_target_property(is_left_out exec_${name} EXCLUDE_FROM_ALL) # by shunt_add_criterion
  if(is_left_out)
    dispatch_skip(exec_${name}_one_view "Criterion does not start under the thread sanitizer")
    continue()
  endif()
  add_test(NAME exec_${name}_one_view COMMAND deny_views $<TARGET_FILE:exec_${name}>)
  set_tests_properties(exec_${name}_one_view PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)
endforeach()
add_test(NAME exec_dispatch_library_one_view COMMAND deny_views $<TARGET_FILE:exec_dispatch_loader> $<TARGET_FILE:dispatch_library>)
set_tests_properties(exec_dispatch_library_one_view PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)

# The other compiler, linked against the same library. Sanitizers' runtimes do not mix.
find_program(CLANG_19 clang-19)
find_program(CLANGXX_19 clang++-19)
if(NOT CLANG_19 OR NOT CLANGXX_19)
  dispatch_skip(exec_dispatch_clang "there is no clang-19 or no clang++-19")
elseif(SHUNT_SANITIZE)
  dispatch_skip(exec_dispatch_clang "gcc's sanitizers do not link with clang's")
else()
  add_custom_command(OUTPUT exec_dispatch_clang
    COMMAND ${CLANG_19} ${SHUNT_CLANG_TARGET_FLAGS} -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIE -pie -D_GNU_SOURCE -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
      ${CMAKE_CURRENT_SOURCE_DIR}/exec/dispatch_image.c ${CMAKE_CURRENT_SOURCE_DIR}/exec/dispatch_image_elsewhere.c
      -o exec_dispatch_clang $<TARGET_FILE:shunt_shared> -Wl,-rpath,$<TARGET_FILE_DIR:shunt_shared> -pthread
    DEPENDS shunt_shared ${DISPATCH_IMAGE} exec/dispatch_image.h exec/dispatch_programs.h VERBATIM)
  add_custom_command(OUTPUT exec_hook_clang
    COMMAND ${CLANG_19} ${SHUNT_CLANG_TARGET_FLAGS} -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIE -pie -D_GNU_SOURCE -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
      ${CMAKE_CURRENT_SOURCE_DIR}/exec/hook_image.c
      -o exec_hook_clang $<TARGET_FILE:shunt_shared> -Wl,-rpath,$<TARGET_FILE_DIR:shunt_shared> -pthread
    DEPENDS shunt_shared exec/hook_image.c exec/dispatch_programs.h VERBATIM)
  add_custom_command(OUTPUT exec_dispatch_cpp_clang
    COMMAND ${CLANGXX_19} ${SHUNT_CLANG_TARGET_FLAGS} -std=c++17 -O2 -g -Wall -Wextra -Werror -fPIE -pie -D_GNU_SOURCE -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
      ${CMAKE_CURRENT_SOURCE_DIR}/exec/dispatch_cpp.cpp
      -o exec_dispatch_cpp_clang $<TARGET_FILE:shunt_shared> -Wl,-rpath,$<TARGET_FILE_DIR:shunt_shared> -pthread
    DEPENDS shunt_shared exec/dispatch_cpp.cpp VERBATIM)
  add_test(NAME exec_dispatch_cpp_clang COMMAND ${CMAKE_CURRENT_BINARY_DIR}/exec_dispatch_cpp_clang)
  set_tests_properties(exec_dispatch_cpp_clang PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)
  add_test(NAME exec_hook_clang COMMAND ${CMAKE_CURRENT_BINARY_DIR}/exec_hook_clang)
  set_tests_properties(exec_hook_clang PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)
  add_custom_target(exec_dispatch_clang_image ALL DEPENDS exec_dispatch_clang exec_hook_clang exec_dispatch_cpp_clang)
  add_test(NAME exec_dispatch_clang COMMAND ${CMAKE_CURRENT_BINARY_DIR}/exec_dispatch_clang)
  set_tests_properties(exec_dispatch_clang PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()

add_executable(stress_dispatch stress/dispatch.c)
target_link_libraries(stress_dispatch PRIVATE shunt_options Threads::Threads shunt::shunt_static)
add_test(NAME stress_dispatch COMMAND stress_dispatch)
set_tests_properties(stress_dispatch PROPERTIES LABELS stress TIMEOUT 900)

add_executable(exec_dispatch_fork exec/dispatch_fork.c)
target_link_libraries(exec_dispatch_fork PRIVATE shunt_options Threads::Threads shunt::shunt_static)
if(SHUNT_SANITIZE MATCHES address)
  # The child's second thread waits for a lock of the allocator that a thread of the parent held.
  add_test(NAME exec_dispatch_fork COMMAND sh -c "echo 'the malloc of the address sanitizer does not survive a threaded fork'; exit 77")
else()
  add_test(NAME exec_dispatch_fork COMMAND exec_dispatch_fork)
endif()
set_tests_properties(exec_dispatch_fork PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120 ENVIRONMENT TSAN_OPTIONS=die_after_fork=0)

# Another language's functions as programs. A sanitizer's runtime would have to be in the interpreter first.
if(SHUNT_SANITIZE)
  dispatch_skip(exec_dispatch_callback "an interpreter without the sanitizer cannot load the library")
elseif(CMAKE_CROSSCOMPILING)
  dispatch_skip(exec_dispatch_callback "there is no Python of the other machine to load the library (exec_dispatch_call does the same in C)")
else()
  add_test(NAME exec_dispatch_callback COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/exec/dispatch_callback.py $<TARGET_FILE:shunt_shared>)
  set_tests_properties(exec_dispatch_callback PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 60)
endif()

# A debugger stops threads where it hurts. Not under sanitizers, whose own threads and locks a debugger of this kind would step through.
if(SHUNT_SANITIZE)
  dispatch_skip(exec_dispatch_stopped "single steps through a sanitizer take too long")
else()
  add_executable(exec_dispatch_stopped exec/dispatch_stopped.c)
  target_link_libraries(exec_dispatch_stopped PRIVATE shunt_options Threads::Threads shunt::shunt_static)
  add_test(NAME exec_dispatch_stopped COMMAND exec_dispatch_stopped)
  set_tests_properties(exec_dispatch_stopped PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()

# One host for every flavour of readers. memb and qsbr are the host's libraries, not libshunt's.
pkg_check_modules(URCU_QSBR REQUIRED IMPORTED_TARGET liburcu-qsbr)
pkg_check_modules(URCU_MEMB REQUIRED IMPORTED_TARGET liburcu-memb)
function(dispatch_flavour flavour)
  add_executable(exec_dispatch_${flavour} exec/dispatch_flavour.c)
  target_link_libraries(exec_dispatch_${flavour} PRIVATE shunt_options Threads::Threads shunt::shunt_static)
  add_test(NAME exec_dispatch_${flavour} COMMAND exec_dispatch_${flavour})
  set_tests_properties(exec_dispatch_${flavour} PROPERTIES LABELS exec SKIP_RETURN_CODE 77 TIMEOUT 60 ENVIRONMENT TSAN_OPTIONS=die_after_fork=0)
endfunction()
dispatch_flavour(bp)
dispatch_flavour(qsbr)
target_compile_definitions(exec_dispatch_qsbr PRIVATE SHUNT_READER=SHUNT_READER_QSBR)
target_link_libraries(exec_dispatch_qsbr PRIVATE PkgConfig::URCU_QSBR)
dispatch_flavour(memb)
target_compile_definitions(exec_dispatch_memb PRIVATE SHUNT_READER=SHUNT_READER_MEMB)
target_link_libraries(exec_dispatch_memb PRIVATE PkgConfig::URCU_MEMB)
dispatch_flavour(host)
target_compile_definitions(exec_dispatch_host PRIVATE FLAVOUR_HOST)

# What a definition may look like; each compiler that is here is asked. Another machine's: the one that builds for it.
set(DISPATCH_COMPILERS ${CMAKE_C_COMPILER} clang-19 ${CMAKE_CXX_COMPILER} clang++-19)
if(CMAKE_CROSSCOMPILING)
  set(DISPATCH_COMPILERS ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
endif()
add_test(NAME exec_dispatch_checks COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/exec/dispatch_checks.sh ${PROJECT_SOURCE_DIR}/include
  ${DISPATCH_COMPILERS})
set_tests_properties(exec_dispatch_checks PROPERTIES LABELS exec TIMEOUT 120 ENVIRONMENT "SHUNT_SYSROOT=${CMAKE_SYSROOT}")
