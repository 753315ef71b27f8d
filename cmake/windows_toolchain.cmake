# SPDX-License-Identifier: MIT
#
# Windows x64 from another machine: Debian's MinGW-w64 with POSIX threads (the flavour with win32
# threads has no std::thread), and programs run in Wine.
#
# Libraries come from scripts/package/build_libraries, which needs this file and gives the folder
# for QSF_WINDOWS_LIBRARIES. Headers alone are this machine's, by links to them: all of /usr/include
# would bring its C library.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
find_program(QSF_WINE NAMES wine64 wine PATHS /usr/lib/wine NO_CMAKE_FIND_ROOT_PATH)
if(QSF_WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QSF_WINE})
endif()

set(QSF_WINDOWS_LIBRARIES "" CACHE PATH "What scripts/package/build_libraries made for Windows")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QSF_WINDOWS_LIBRARIES)
set(qsf_host_headers ${CMAKE_BINARY_DIR}/host_headers)
foreach(folder IN ITEMS boost CLI nlohmann eigen3)
  if(EXISTS /usr/include/${folder} AND NOT EXISTS ${qsf_host_headers}/include/${folder})
    file(MAKE_DIRECTORY ${qsf_host_headers}/include)
    file(CREATE_LINK /usr/include/${folder} ${qsf_host_headers}/include/${folder} SYMBOLIC)
  endif()
endforeach()
set(CMAKE_FIND_ROOT_PATH ${QSF_WINDOWS_LIBRARIES} ${qsf_host_headers} /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
