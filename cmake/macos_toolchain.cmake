# SPDX-License-Identifier: MIT
#
# macOS on Apple silicon from another machine: the compiler that the Python package ziglang brings,
# with its headers and stubs of Apple's libraries. What it builds has never been run.
#
# scripts/package/build_macos builds all of it. QSF_ZIG, a variable or the environment's, is the
# program zig; QSF_MACOS_LIBRARIES the folder that scripts/package/build_libraries made with this
# file. Headers alone are this machine's, by links.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_DEPLOYMENT_TARGET 13.0)
if(NOT QSF_ZIG)
  set(QSF_ZIG "$ENV{QSF_ZIG}" CACHE FILEPATH "The program zig" FORCE)
endif()
if(NOT QSF_ZIG)
  message(FATAL_ERROR "No zig: run scripts/package/build_macos, or pip install ziglang and set QSF_ZIG to its program zig")
endif()
set(QSF_MACOS_LIBRARIES "" CACHE PATH "What scripts/package/build_libraries made for macOS")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QSF_ZIG QSF_MACOS_LIBRARIES)

# zig is several programs in one; CMake wants one path for each.
foreach(tool IN ITEMS cc c++ ar ranlib)
  set(qsf_zig_command "${tool}")
  if(tool MATCHES "^c")
    string(APPEND qsf_zig_command " -target aarch64-macos.${CMAKE_OSX_DEPLOYMENT_TARGET}")
  endif()
  set(qsf_zig_${tool} ${CMAKE_BINARY_DIR}/zig/${tool})
  file(WRITE ${qsf_zig_${tool}} "#!/bin/sh\nexec ${QSF_ZIG} ${qsf_zig_command} \"$@\"\n")
  file(CHMOD ${qsf_zig_${tool}} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_C_COMPILER ${qsf_zig_cc})
set(CMAKE_CXX_COMPILER ${qsf_zig_c++})
set(CMAKE_AR ${qsf_zig_ar})
set(CMAKE_RANLIB ${qsf_zig_ranlib})
# Libraries get their names when they are linked, and export what is declared so: zig takes no list.
set(CMAKE_INSTALL_NAME_TOOL true)
set(CMAKE_INSTALL_NAME_DIR @rpath)
set(CMAKE_BUILD_WITH_INSTALL_NAME_DIR ON)
# A function that is younger than the oldest macOS is an error.
set(CMAKE_C_FLAGS_INIT "-fvisibility=hidden -Werror=unguarded-availability-new")
set(CMAKE_CXX_FLAGS_INIT "-fvisibility=hidden -Werror=unguarded-availability-new")

set(qsf_host_headers ${CMAKE_BINARY_DIR}/host_headers)
foreach(name IN ITEMS boost CLI nlohmann eigen3 histedit.h)
  if(EXISTS /usr/include/${name} AND NOT EXISTS ${qsf_host_headers}/include/${name})
    file(MAKE_DIRECTORY ${qsf_host_headers}/include)
    file(CREATE_LINK /usr/include/${name} ${qsf_host_headers}/include/${name} SYMBOLIC)
  endif()
endforeach()
set(CMAKE_FIND_ROOT_PATH ${QSF_MACOS_LIBRARIES} ${qsf_host_headers} ${CMAKE_CURRENT_LIST_DIR}/../packaging/macos)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
