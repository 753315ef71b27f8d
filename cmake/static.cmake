# SPDX-License-Identifier: MIT
#
# How programs are linked. A release needs no shared library, where the C library and all others have
# archives: position-independent where the C library can start such a program, so that its addresses
# are random. Elsewhere a release needs the C library and those without an archive; compiler runtimes
# are inside. (Not both: gcc goes back to shared libraries after the C++ library that
# -static-libstdc++ names.) Other builds are linked as usual.

set(qsf_static_default OFF)
if(WIN32)
  # Compiler runtimes and POSIX threads are inside; the addresses of programs are random by default.
  set(qsf_static_default ON)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT QSF_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -static-pie QSF_STATIC_PIE)
  check_linker_flag(CXX -static QSF_STATIC_PLAIN)
  if(QSF_STATIC_PIE OR QSF_STATIC_PLAIN)
    set(qsf_static_default ON)
  endif()
  get_cmake_property(qsf_cached CACHE_VARIABLES)
  list(FILTER qsf_cached INCLUDE REGEX "^QSF_.+_LIBRARY$")
  foreach(variable IN LISTS qsf_cached)
    if(${variable} AND NOT ${variable} MATCHES "\\.a$")
      set(qsf_static_default OFF)
      message(STATUS "Linked with shared libraries: ${${variable}} is no archive")
    endif()
  endforeach()
endif()
option(QSF_STATIC "Link programs with no shared library at all" ${qsf_static_default})

if(QSF_STATIC)
  target_link_options(qsf_flags INTERFACE $<IF:$<BOOL:${QSF_STATIC_PIE}>,-static-pie,-static>)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT QSF_SANITIZE)
  target_link_options(qsf_flags INTERFACE -static-libgcc $<$<LINK_LANGUAGE:CXX>:-static-libstdc++>)
endif()
