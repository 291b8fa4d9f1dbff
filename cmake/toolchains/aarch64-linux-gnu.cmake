# Cross compiles for arm64 Linux with Debian's compiler against an unpacked arm64 Debian (cmake/arm64/sysroot.sh makes it).
# SHUNT_ARM64_SYSROOT says where that is; CMake configures small projects of its own with this file, so the name is passed on to them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

if(NOT SHUNT_ARM64_SYSROOT)
  set(SHUNT_ARM64_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-sysroot)
endif()
get_filename_component(SHUNT_ARM64_SYSROOT ${SHUNT_ARM64_SYSROOT} ABSOLUTE)
if(NOT EXISTS ${SHUNT_ARM64_SYSROOT}/.complete)
  message(FATAL_ERROR "There is no complete arm64 sysroot at ${SHUNT_ARM64_SYSROOT}: run ./dev arm64, or cmake/arm64/sysroot.sh")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SHUNT_ARM64_SYSROOT)
set(CMAKE_SYSROOT ${SHUNT_ARM64_SYSROOT})

# Libraries, headers and packages from the sysroot only; programs from this machine only.
set(CMAKE_FIND_ROOT_PATH ${SHUNT_ARM64_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(ENV{PKG_CONFIG_DIR} "")
set(ENV{PKG_CONFIG_LIBDIR} ${SHUNT_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${SHUNT_ARM64_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${SHUNT_ARM64_SYSROOT})

# Libraries that libraries need, which the linker looks for itself.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${SHUNT_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,-rpath-link,${SHUNT_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -Wl,-rpath-link,${SHUNT_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu)

# This gcc looks for lld where it has no links to it; clang has to be told the target.
find_program(SHUNT_LLD ld.lld)
if(SHUNT_LLD)
  get_filename_component(SHUNT_LLD_DIR ${SHUNT_LLD} REALPATH)
  get_filename_component(SHUNT_LLD_DIR ${SHUNT_LLD_DIR} DIRECTORY)
  string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT " -B${SHUNT_LLD_DIR}")
endif()
set(SHUNT_CLANG_TARGET_FLAGS --target=aarch64-linux-gnu --sysroot=${SHUNT_ARM64_SYSROOT})
find_program(SHUNT_BPF_CLANG NAMES clang-19 clang)
set(SHUNT_NATIVE_PLUGIN ${CMAKE_CURRENT_LIST_DIR}/../../build/release/passes/shunt-passes.so CACHE FILEPATH "The passes for this machine's clang")
# FileCheck and lit run here; those of the sysroot would run too, but slowly.
if(EXISTS /usr/lib/llvm-19/bin/FileCheck)
  set(SHUNT_FILECHECK /usr/lib/llvm-19/bin/FileCheck CACHE FILEPATH "")
  set(SHUNT_LIT /usr/lib/llvm-19/build/utils/lit/lit.py CACHE FILEPATH "")
endif()

# No CMAKE_CROSSCOMPILING_EMULATOR: the kernel starts qemu-user by itself (cmake/arm64/binfmt.sh), as it must for the programs that tests
# start; CMake would put the emulator before the Python of this machine, too.
