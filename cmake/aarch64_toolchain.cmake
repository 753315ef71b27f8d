# SPDX-License-Identifier: MIT
#
# AArch64 from another machine: Debian's cross compiler, and programs run in qemu's user emulation
# as a processor that has every tier, or the one that QEMU_CPU names.
#
# Libraries come from packages for arm64 (dpkg --add-architecture arm64; liblz4-dev:arm64 and so on),
# or from a folder into which these were unpacked: QSF_AARCH64_LIBRARIES. Headers alone are those of
# this machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(QSF_AARCH64_LIBRARIES "" CACHE PATH "Where packages of libraries for arm64 were unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QSF_AARCH64_LIBRARIES)
set(CMAKE_FIND_ROOT_PATH ${QSF_AARCH64_LIBRARIES} /usr/aarch64-linux-gnu /)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
