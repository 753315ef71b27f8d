# SPDX-License-Identifier: MIT
#
# WebAssembly by Debian's Emscripten.
set(CMAKE_SYSTEM_NAME Emscripten)
find_file(qsf_emscripten_toolchain Emscripten.cmake
          PATHS /usr/share/emscripten /usr/lib/emscripten PATH_SUFFIXES cmake/Modules/Platform
          REQUIRED NO_CMAKE_FIND_ROOT_PATH)
include(${qsf_emscripten_toolchain})
