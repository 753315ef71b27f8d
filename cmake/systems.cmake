# SPDX-License-Identifier: MIT
#
# Which sources a system compiles. A file named for one holds what only that system has; the others
# have siblings: memory_linux.cc, memory_windows.cc. POSIX is what Linux, macOS and WebAssembly
# share. scripts/check/check_systems.py refuses headers of systems in all other files.

if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(QSF_SYSTEM_SUFFIXES linux posix)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
  set(QSF_SYSTEM_SUFFIXES macos posix)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Emscripten")
  set(QSF_SYSTEM_SUFFIXES wasm posix)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Windows")
  set(QSF_SYSTEM_SUFFIXES windows)
else()
  message(FATAL_ERROR "No sources for ${CMAKE_SYSTEM_NAME}: add it to cmake/systems.cmake")
endif()

# qsf_system_sources(OUT NAME ...)
# Sets OUT to those of NAME_<suffix>.cc in this folder that are for this system. A name without any
# is of no use there, or its functions are missing when programs are linked.
function(qsf_system_sources out)
  set(found)
  foreach(name IN LISTS ARGN)
    foreach(suffix IN LISTS QSF_SYSTEM_SUFFIXES)
      if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${name}_${suffix}.cc)
        list(APPEND found ${name}_${suffix}.cc)
        if(suffix STREQUAL "windows")
          # The macros of windows.h are for no other source.
          set_source_files_properties(${name}_${suffix}.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        endif()
      endif()
    endforeach()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()
