# SPDX-License-Identifier: MIT
#
# libqsf.so, of the objects that cmake/library.cmake archives:
#
#   lib/libqsf.so.0            the engine, SONAME 0 until 1.0
#   lib/libqsf.so              a link to it, for linkers
#
# Its symbols have versions (src/capi/libqsf.map): a program needs those of the header it was
# compiled with, and runs with every later library.

if(QSF_COVERAGE OR (QSF_SANITIZE AND NOT "address" IN_LIST QSF_SANITIZE))
  return()
endif()

set(qsf_map ${PROJECT_SOURCE_DIR}/src/capi/libqsf.map)
if(WIN32)
  # qsf.dll exports the same names. Other compilers make their import library from the list too.
  file(STRINGS ${qsf_map} qsf_exports REGEX "^ +qsf_[a-z0-9_]+;$")
  string(REGEX REPLACE "[ ;\\\\]+" "\n  " qsf_exports "${qsf_exports}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/qsf.def CONTENT "LIBRARY qsf.dll\nEXPORTS@qsf_exports@\n")
  add_library(qsf_shared SHARED ${qsf_archive_objects} ${PROJECT_BINARY_DIR}/qsf.def)
  set_target_properties(qsf_shared PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME qsf PREFIX "")
  foreach(name IN LISTS qsf_archive_externals)
    target_link_libraries(qsf_shared PRIVATE ${QSF_${name}_LIBRARY})
  endforeach()
  target_link_options(qsf_shared PRIVATE LINKER:--no-insert-timestamp)
  target_link_libraries(qsf_shared PRIVATE -static Threads::Threads)
  install(TARGETS qsf_shared RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT shared
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(FILES ${PROJECT_BINARY_DIR}/qsf.def DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  return()
endif()
add_library(qsf_shared SHARED ${qsf_archive_objects})
set_target_properties(qsf_shared PROPERTIES
  LINKER_LANGUAGE CXX OUTPUT_NAME qsf VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${qsf_map})
target_link_options(qsf_shared PRIVATE LINKER:--version-script=${qsf_map})
# Shared ones: those of the system are updated by it, and archives may not be position-independent.
# A wheel brings its own.
set(qsf_shared_kind SHARED)
if(QSF_WHEEL)
  set(qsf_shared_kind LIBRARY)
endif()
foreach(name IN LISTS qsf_archive_externals)
  target_link_libraries(qsf_shared PRIVATE ${QSF_${name}_${qsf_shared_kind}})
endforeach()
target_link_libraries(qsf_shared PRIVATE Threads::Threads)
if(QSF_SANITIZE)
  # For the Python package's tests alone (./check long python), with the sanitizer's functions in
  # the program that loads it.
  set_target_properties(qsf_shared PROPERTIES EXCLUDE_FROM_ALL ON)
  return()
endif()
target_link_options(qsf_shared PRIVATE LINKER:--no-undefined)

install(TARGETS qsf_shared
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT shared NAMELINK_COMPONENT development)

if(QSF_BUILD_TESTS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME exports_test
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/check/check_exports.py
                   $<TARGET_FILE:qsf_shared> ${PROJECT_SOURCE_DIR}/testdata/abi
                   ${PROJECT_SOURCE_DIR}/include/qsf)
  set_tests_properties(exports_test PROPERTIES LABELS unit)

  # A program of a release, with its header, in place of this library's.
  add_executable(capi_0_1_shared_test ${PROJECT_SOURCE_DIR}/src/capi/capi_0_1_test.c)
  target_include_directories(capi_0_1_shared_test PRIVATE
    ${PROJECT_SOURCE_DIR}/testdata/abi/0.1 ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(capi_0_1_shared_test PRIVATE qsf_shared)
  set_target_properties(capi_0_1_shared_test PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME capi_0_1_shared_test COMMAND capi_0_1_shared_test ${PROJECT_BINARY_DIR}/tests/tales-5M-4bit.qsf)
  set_tests_properties(capi_0_1_shared_test PROPERTIES
    FIXTURES_REQUIRED test_model LABELS model TIMEOUT 600)
endif()
