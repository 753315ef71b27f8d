# SPDX-License-Identifier: MIT
#
# How a folder declares what it builds. The dependencies named here repeat src/layers.txt as link
# edges; scripts/check/check_layers.py holds the includes to that table.

# qsf_compile_together(NAME [BATCH])
# Compiles the sources of a target in few translation units, BATCH (48) in each: most of a source's
# compile time is headers and their templates. Names in anonymous namespaces are therefore unique in
# a target. Sources with options of their own, as kernels have, stay apart.
function(qsf_compile_together name)
  set(batch ${ARGN} 48)
  list(GET batch 0 batch)
  if(QSF_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
    # Of types in anonymous namespaces of sources that another one includes, as all do here.
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>")
  endif()
endfunction()

# Compiles a release of a target at -O1, in a fifth less time: for text, options and reports, where
# no user waits for a loop.
function(qsf_optimise_lightly name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# qsf_library(NAME SOURCES a.cc ... [SYSTEM_SOURCES b ...] DEPS base ... [PRIVATE_DEPS qsf::lz4 ...])
# Of b, those of b_linux.cc, b_posix.cc, ... that are for the system (cmake/systems.cmake).
function(qsf_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;SYSTEM_SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  qsf_system_sources(system_sources ${ARG_SYSTEM_SOURCES})
  add_library(qsf_${name} STATIC ${ARG_SOURCES} ${system_sources})
  list(TRANSFORM ARG_DEPS PREPEND qsf_)
  target_link_libraries(qsf_${name} PUBLIC qsf_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  qsf_compile_together(qsf_${name})
  if(name MATCHES "_testing$")
    set_target_properties(qsf_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# Tests are compiled at -Og whatever the library is, in three fifths of the time, and without the
# checks of undefined behaviour, which cost a third and are for the library.
set(qsf_test_options $<$<NOT:$<CONFIG:Debug>>:-Og>)
if(EMSCRIPTEN)
  set(qsf_test_options -O1)  # it has no -Og
endif()
if("undefined" IN_LIST QSF_SANITIZE)
  list(APPEND qsf_test_options -fno-sanitize=undefined)
endif()

# Compiles what every test includes once: GoogleTest takes a second and a half a source file. The
# flags are those of an executable, or the compiler would not take the result.
function(qsf_reuse_test_headers name)
  target_compile_options(${name} PRIVATE ${qsf_test_options})
  if(EMSCRIPTEN)
    return()
  endif()
  if(NOT TARGET qsf_test_headers)
    set(source ${PROJECT_BINARY_DIR}/test_headers.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(qsf_test_headers OBJECT EXCLUDE_FROM_ALL ${source})
    set_target_properties(qsf_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(qsf_test_headers PRIVATE -fPIE ${qsf_test_options})
    target_link_libraries(qsf_test_headers PRIVATE qsf_flags GTest::gmock)
    target_precompile_headers(qsf_test_headers PRIVATE
      <gmock/gmock.h> <gtest/gtest.h> <algorithm> <optional> <span> <string> <string_view> <vector>)
  endif()
  target_precompile_headers(${name} REUSE_FROM qsf_test_headers)
  # Of the C++ library's own strings, wrong, and only where its headers were precompiled (gcc 12).
  target_compile_options(${name} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>")
endfunction()

# Links a program that node runs, with the variables of its own environment.
function(qsf_run_by_node name)
  set_target_properties(${name} PROPERTIES
    RULE_LAUNCH_LINK "${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs ")
  target_link_options(${name} PRIVATE
    -sENVIRONMENT=node -sALLOW_MEMORY_GROWTH=1 -sEXIT_RUNTIME=1 -sTOTAL_STACK=1048576
    --pre-js ${PROJECT_SOURCE_DIR}/web/tests/node_environment.js)
endfunction()

# qsf_test(NAME SOURCES a_test.cc ... DEPS base ... LABELS unit [PRIVATE_DEPS ...] [TIMEOUT seconds])
# One program for the tests of a folder that have the same labels: compiled together they take a
# quarter of the time.
# Labels: unit, kernel, golden, model, slow (docs/testing.md).
function(qsf_test name)
  if(NOT QSF_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;PRIVATE_DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND qsf_)
  target_link_libraries(${name} PRIVATE qsf_flags ${ARG_DEPS} ${ARG_PRIVATE_DEPS} GTest::gmock GTest::gtest_main)
  qsf_reuse_test_headers(${name})
  list(LENGTH ARG_SOURCES n_sources)
  if(n_sources GREATER 1)
    qsf_compile_together(${name} 16)  # 2 GB for the compiler, with sanitizers
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(EMSCRIPTEN)
    qsf_run_by_node(${name})
  endif()
  # Fixed paths a test may use: data in the source tree, scratch in the build tree, and shared test
  # material beside the checkout, which may be absent (tests then say so and skip).
  target_compile_definitions(${name} PRIVATE
    QSF_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    QSF_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    QSF_SHARED_DIR="${PROJECT_SOURCE_DIR}/../shared")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
