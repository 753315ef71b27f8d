# SPDX-License-Identifier: MIT
#
# Writes a C++ source that holds the files of the web page and their headers (page.h).
#
#   cmake -D OUTPUT=FILE.cc -P embed_page.cmake
set(here ${CMAKE_CURRENT_LIST_DIR})
file(STRINGS ${here}/page_files.txt files REGEX "^[^#]")
set(arrays "")
set(table "")
set(index 0)
foreach(line IN LISTS files)
  # The types have semicolons, which would end an element of a list: this loop sees them escaped.
  string(REGEX MATCH "^([^ ]+) ([^ ]+) (.+)$" whole "${line}")
  if(NOT whole)
    message(FATAL_ERROR "${here}/page_files.txt: \"${line}\", expected: PATH FILE TYPE")
  endif()
  set(path ${CMAKE_MATCH_1})
  set(name ${CMAKE_MATCH_2})
  set(type "${CMAKE_MATCH_3}")
  file(READ ${here}/${name} bytes HEX)
  file(SHA256 ${here}/${name} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "const unsigned char kFile${index}[] = {\n${bytes}};\n")
  string(APPEND table "    {\"${path}\", \"${type}\",\n     {reinterpret_cast<const char*>(kFile${index}), "
                      "sizeof(kFile${index})}, \"\\\"${hash}\\\"\"},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(READ ${here}/page_headers.txt headers)
set(header_table "")
# Semicolons within a value are hidden while the text is a list of lines.
string(REPLACE ";" "\t" headers "${headers}")
string(REPLACE "\n" ";" headers "${headers}")
foreach(line IN LISTS headers)
  if(line MATCHES "^([^#:]+): (.+)$")
    string(REPLACE "\t" ";" value "${CMAKE_MATCH_2}")
    string(APPEND header_table "    {\"${CMAKE_MATCH_1}\", \"${value}\"},\n")
  endif()
endforeach()

file(WRITE ${OUTPUT} "// SPDX-License-Identifier: MIT
// Written by tools/serve/page/embed_page.cmake.
#include \"tools/serve/page/page.h\"

namespace qsf_tools {
namespace {

${arrays}
const PageFile kPageFiles[] = {
${table}};

const PageHeader kPageHeaders[] = {
${header_table}};

}  // namespace

std::span<const PageFile> page_files() noexcept { return kPageFiles; }
std::span<const PageHeader> page_headers() noexcept { return kPageHeaders; }

}  // namespace qsf_tools
")
