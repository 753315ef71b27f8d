# SPDX-License-Identifier: MIT
#
# Libraries of the system, linked statically where their archives are installed, so that the tools
# need nothing but the C library at run time. Each has a line in docs/decisions/002-dependencies.md.

find_package(Threads REQUIRED)

# GoogleTest as built for this machine; another one's is built from the source that Debian ships.
set(QSF_GTEST_SOURCE /usr/src/googletest CACHE PATH "GoogleTest's source, for tests of another machine")
if(QSF_BUILD_TESTS AND EMSCRIPTEN)
  # Its own build would choose another kind of exceptions.
  add_library(qsf_gtest STATIC EXCLUDE_FROM_ALL ${QSF_GTEST_SOURCE}/googletest/src/gtest-all.cc
              ${QSF_GTEST_SOURCE}/googlemock/src/gmock-all.cc ${QSF_GTEST_SOURCE}/googlemock/src/gmock_main.cc)
  target_include_directories(qsf_gtest PRIVATE ${QSF_GTEST_SOURCE}/googletest ${QSF_GTEST_SOURCE}/googlemock)
  target_include_directories(qsf_gtest SYSTEM PUBLIC ${QSF_GTEST_SOURCE}/googletest/include
                             ${QSF_GTEST_SOURCE}/googlemock/include)
  target_compile_options(qsf_gtest PRIVATE -w -fwasm-exceptions)
  foreach(name IN ITEMS gtest gtest_main gmock)
    add_library(GTest::${name} ALIAS qsf_gtest)
  endforeach()
elseif(QSF_BUILD_TESTS AND CMAKE_CROSSCOMPILING)
  set(INSTALL_GTEST OFF)
  add_subdirectory(${QSF_GTEST_SOURCE} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
  foreach(name IN ITEMS gtest gtest_main gmock)
    if(NOT TARGET GTest::${name})
      add_library(GTest::${name} ALIAS ${name})
    endif()
  endforeach()
elseif(QSF_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

if(QSF_KERNELS_ONLY)
  return()
endif()

# Imports NAME as qsf::NAME from an archive, or from a shared library where no archive exists.
# QSF_NAME_SHARED is the one that libqsf.so links, the other way round.
function(qsf_import_library name header)
  find_path(QSF_${name}_INCLUDE ${header} REQUIRED)
  find_library(QSF_${name}_LIBRARY NAMES lib${name}.a ${name} REQUIRED)
  if(NOT QSF_ENGINE_ONLY)
    find_library(QSF_${name}_SHARED ${name} REQUIRED)
  endif()
  add_library(qsf::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(qsf::${name} PROPERTIES
    IMPORTED_LOCATION ${QSF_${name}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${QSF_${name}_INCLUDE})
endfunction()

qsf_import_library(lz4 lz4.h)
qsf_import_library(zstd zstd.h)
qsf_import_library(pcre2-8 pcre2.h)
qsf_import_library(utf8proc utf8proc.h)

# JSON, header-only. For another system the header of this machine is reached through a link: the
# folder that it lies in has this machine's C library too.
find_path(QSF_JSON_INCLUDE nlohmann/json.hpp PATHS /usr/local/include /usr/include
          REQUIRED NO_CMAKE_FIND_ROOT_PATH)
set(qsf_json_include ${QSF_JSON_INCLUDE})
if(NOT CMAKE_SYSTEM_NAME STREQUAL CMAKE_HOST_SYSTEM_NAME)
  set(qsf_json_include ${PROJECT_BINARY_DIR}/headers)
  file(MAKE_DIRECTORY ${qsf_json_include})
  file(CREATE_LINK ${QSF_JSON_INCLUDE}/nlohmann ${qsf_json_include}/nlohmann SYMBOLIC)
endif()
add_library(qsf_json INTERFACE)
target_include_directories(qsf_json SYSTEM INTERFACE ${qsf_json_include})

if(QSF_ENGINE_ONLY)
  return()
endif()

# io_uring of the Linux kernel; without it files are read by threads.
if(QSF_URING)
  qsf_import_library(uring liburing.h)
endif()

# libedit, which needs a terminal library, and as an archive also libbsd and libmd. The console of
# Windows edits lines itself; the headers of the libraries above mean archives there if told so.
add_library(qsf_libedit INTERFACE)
if(WIN32)
  set_property(TARGET qsf::pcre2-8 PROPERTY INTERFACE_COMPILE_DEFINITIONS PCRE2_STATIC)
  set_property(TARGET qsf::utf8proc PROPERTY INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)
else()
  qsf_import_library(edit histedit.h)
  target_link_libraries(qsf_libedit INTERFACE qsf::edit)
  foreach(name IN ITEMS bsd md tinfo)
    find_library(QSF_${name}_LIBRARY NAMES lib${name}.a ${name})
    if(QSF_${name}_LIBRARY)
      target_link_libraries(qsf_libedit INTERFACE ${QSF_${name}_LIBRARY})
    endif()
  endforeach()
endif()

# Boost.Asio and Beast 1.74 or newer, header-only, for the HTTP server. Without exceptions: what it
# would throw ends the program (tools/serve/http/http_server.cc).
find_path(QSF_BOOST_INCLUDE boost/beast/http/basic_parser.hpp REQUIRED)
file(STRINGS ${QSF_BOOST_INCLUDE}/boost/version.hpp qsf_boost_version REGEX "^#define BOOST_VERSION [0-9]+")
string(REGEX REPLACE "[^0-9]" "" qsf_boost_version "${qsf_boost_version}")
if(qsf_boost_version LESS 107400)
  message(FATAL_ERROR "Boost ${qsf_boost_version} in ${QSF_BOOST_INCLUDE}: expected 107400 (1.74) or newer")
endif()
add_library(qsf_boost INTERFACE)
target_include_directories(qsf_boost SYSTEM INTERFACE ${QSF_BOOST_INCLUDE})
target_compile_definitions(qsf_boost INTERFACE BOOST_NO_EXCEPTIONS BOOST_ASIO_DISABLE_CONCEPTS
                           BOOST_ASIO_DISABLE_FENCED_BLOCK BOOST_ERROR_CODE_HEADER_ONLY)
# Windows waits at sockets as everyone does, on the network thread: by select(), for at most some
# hundred connections. Its completion ports would need threads of their own for that.
target_compile_definitions(qsf_boost INTERFACE $<$<PLATFORM_ID:Windows>:BOOST_ASIO_DISABLE_IOCP>)

# Header-only: Eigen (error compensation) and CLI11 (tools).
find_path(QSF_EIGEN_INCLUDE Eigen/Core PATH_SUFFIXES eigen3 REQUIRED)
add_library(qsf_eigen INTERFACE)
target_include_directories(qsf_eigen SYSTEM INTERFACE ${QSF_EIGEN_INCLUDE})
find_path(QSF_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
add_library(qsf_cli11 INTERFACE)
target_include_directories(qsf_cli11 SYSTEM INTERFACE ${QSF_CLI11_INCLUDE})
