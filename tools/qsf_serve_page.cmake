# SPDX-License-Identifier: MIT
#
# The web page of qsf serve, as a library that holds its files, and its tests.
set(qsf_page_dir ${CMAKE_CURRENT_SOURCE_DIR}/serve/page)
file(STRINGS ${qsf_page_dir}/page_files.txt qsf_page_lines REGEX "^[^#]")
set(qsf_page_sources ${qsf_page_dir}/page_files.txt ${qsf_page_dir}/page_headers.txt)
foreach(line IN LISTS qsf_page_lines)
  string(REGEX REPLACE "^[^ ]+ ([^ ]+) .*$" "\\1" name "${line}")
  list(APPEND qsf_page_sources ${qsf_page_dir}/${name})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${qsf_page_dir}/page_files.txt)
set(qsf_embedded_page ${CMAKE_CURRENT_BINARY_DIR}/embedded_page.cc)
add_custom_command(OUTPUT ${qsf_embedded_page} VERBATIM
  COMMAND ${CMAKE_COMMAND} -D OUTPUT=${qsf_embedded_page} -P ${qsf_page_dir}/embed_page.cmake
  DEPENDS ${qsf_page_dir}/embed_page.cmake ${qsf_page_sources}
  COMMENT "Embedding the web page")
add_library(qsf_serve_page STATIC serve/page/page.cc ${qsf_embedded_page})
target_link_libraries(qsf_serve_page PRIVATE qsf_flags)
qsf_compile_together(qsf_serve_page)
qsf_optimise_lightly(qsf_serve_page)
qsf_test(serve_page_test SOURCES serve/page/page_test.cc PRIVATE_DEPS qsf_serve_page LABELS unit)
# The page in Chromium, against scripted answers: nothing of it depends on how the program was built.
if(QSF_BUILD_TESTS AND NOT QSF_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME serve_page_browser_test COMMAND ${Python3_EXECUTABLE} ${qsf_page_dir}/page_browser_test.py)
  set_tests_properties(serve_page_browser_test PROPERTIES LABELS slow TIMEOUT 900 SKIP_RETURN_CODE 77)
endif()
