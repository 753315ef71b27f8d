# SPDX-License-Identifier: MIT
#
# Compiler flags, in one place. qsf_flags is linked by every target of the project.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(EMSCRIPTEN)
  set(CMAKE_POSITION_INDEPENDENT_CODE OFF)  # it would reach every variable through a table
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(QSF_CCACHE ccache)
if(QSF_CCACHE)
  # Without these it does not keep what was compiled with a precompiled header.
  set(qsf_launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${QSF_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${qsf_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${qsf_launcher})
endif()

add_library(qsf_flags INTERFACE)
target_include_directories(qsf_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                           ${PROJECT_SOURCE_DIR})
target_compile_definitions(qsf_flags INTERFACE _FILE_OFFSET_BITS=64)
# -ffp-contract=off: a fused multiply-add where the compiler likes one would make the bits of a row
# depend on the compiler. Never -ffast-math: it deletes NaN checks.
target_compile_options(qsf_flags INTERFACE
  -ffp-contract=off -fno-math-errno -fvisibility=hidden
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-qual -Wformat=2 -Wundef
  $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers>)
# Exceptions end what did not get its memory, which is an error of the call and not of the page.
if(EMSCRIPTEN)
  target_compile_options(qsf_flags INTERFACE -msimd128 $<$<COMPILE_LANGUAGE:CXX>:-fwasm-exceptions>)
  target_link_options(qsf_flags INTERFACE -fwasm-exceptions)
endif()
if(WIN32)
  # Windows 10, without the parts of windows.h that nobody here needs; the C library's printf, and no
  # error for a quota apart from a full disk.
  target_compile_definitions(qsf_flags INTERFACE _WIN32_WINNT=0x0A00 NTDDI_VERSION=0x0A000006 UNICODE _UNICODE
                             WIN32_LEAN_AND_MEAN NOMINMAX __USE_MINGW_ANSI_STDIO=1 EDQUOT=ENOSPC)
  # The compiler believes that the attribute of our functions means Microsoft's printf. It also keeps
  # vectors on the stack by moves that need an alignment which Windows does not promise (GCC bug
  # 54412); the assembler writes others instead.
  target_compile_options(qsf_flags INTERFACE -Wno-format -Wa,-muse-unaligned-vector-move)
  # The time of the build would make every build another one.
  target_link_options(qsf_flags INTERFACE LINKER:--no-insert-timestamp)
endif()
# gcc collects its garbage later: a tenth of the compile time for 150 MB more at its peak.
target_compile_options(qsf_flags INTERFACE
  "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-expand=300 --param ggc-min-heapsize=400000>")
if(QSF_WERROR)
  target_compile_options(qsf_flags INTERFACE -Werror)
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR QSF_SANITIZE)
  target_compile_definitions(qsf_flags INTERFACE QSF_ENABLE_DCHECK)
endif()
if(QSF_SANITIZE)
  string(REPLACE ";" "," qsf_sanitize_list "${QSF_SANITIZE}")
  target_compile_options(qsf_flags INTERFACE -fsanitize=${qsf_sanitize_list} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  # Programs at fixed addresses start in half the time: global variables have a relocation each.
  target_link_options(qsf_flags INTERFACE -fsanitize=${qsf_sanitize_list}
                      $<$<IN_LIST:address,${QSF_SANITIZE}>:-no-pie>)
endif()
# A release holds no folder of the machine that built it, so that every folder gives the same bytes.
# The relative map is for ccache, which writes paths so where it has a base folder.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT QSF_SANITIZE)
  file(RELATIVE_PATH qsf_source_from_binary ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  target_compile_options(qsf_flags INTERFACE -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=
                         -ffile-prefix-map=${PROJECT_BINARY_DIR}/=build/
                         -ffile-prefix-map=${qsf_source_from_binary}=)
endif()
# Tests run the kernels of matrix units on any CPU with AVX-512, on tiles of ordinary memory.
if(QSF_BUILD_TESTS AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  target_compile_definitions(qsf_flags INTERFACE QSF_EMULATE_AMX)
endif()
if(QSF_COVERAGE)
  target_compile_options(qsf_flags INTERFACE --coverage)
  target_link_options(qsf_flags INTERFACE --coverage)
endif()

# -O3 is for kernels (src/kernels/CMakeLists.txt); elsewhere it costs compile time and gives nothing.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
