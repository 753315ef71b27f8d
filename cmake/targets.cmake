# SPDX-License-Identifier: MIT
#
# How a folder declares what it builds. The dependencies named here repeat src/layers.txt as link
# edges; scripts/check_layers.py holds the includes to that table.

# qsf_library(NAME SOURCES a.cc ... DEPS base ... [PRIVATE_DEPS qsf::lz4 ...])
function(qsf_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(qsf_${name} STATIC ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPS PREPEND qsf_)
  target_link_libraries(qsf_${name} PUBLIC qsf_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# qsf_test(NAME SOURCES a_test.cc ... DEPS base ... LABELS unit [PRIVATE_DEPS ...] [TIMEOUT seconds])
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
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # Fixed paths a test may use: data in the source tree, scratch in the build tree, and shared test
  # material beside the checkout, which may be absent (tests then say so and skip).
  target_compile_definitions(${name} PRIVATE
    QSF_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    QSF_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    QSF_SHARED_DIR="${PROJECT_SOURCE_DIR}/../shared")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
