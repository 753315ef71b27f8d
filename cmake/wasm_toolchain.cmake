# SPDX-License-Identifier: MIT
#
# WebAssembly by Debian's Emscripten, with the libraries that scripts/package/build_libraries built.
set(QSF_WASM_LIBRARIES "${CMAKE_CURRENT_LIST_DIR}/../build/wasm_libraries" CACHE PATH
    "Where libraries for WebAssembly lie, in include/ and lib/")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QSF_WASM_LIBRARIES)
find_file(QSF_EMSCRIPTEN_TOOLCHAIN Emscripten.cmake
          PATHS /usr/share/emscripten /usr/lib/emscripten PATH_SUFFIXES cmake/Modules/Platform
          REQUIRED NO_CMAKE_FIND_ROOT_PATH)
include(${QSF_EMSCRIPTEN_TOOLCHAIN})
list(APPEND CMAKE_FIND_ROOT_PATH ${QSF_WASM_LIBRARIES})
