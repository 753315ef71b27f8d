# SPDX-License-Identifier: MIT
#
# WebAssembly with threads, which share its memory.
set(QSF_WASM_THREADS ON)
set(QSF_WASM_LIBRARIES "${CMAKE_CURRENT_LIST_DIR}/../build/wasm_threads_libraries" CACHE PATH
    "Where libraries for WebAssembly with threads lie, in include/ and lib/")
include(${CMAKE_CURRENT_LIST_DIR}/wasm_toolchain.cmake)
add_compile_options(-pthread)
add_link_options(-pthread)
