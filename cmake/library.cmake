# SPDX-License-Identifier: MIT
#
# libqsf.a for programs that embed the engine: one archive of all that capi links, since a user
# should not have to know the folders, with what pkg-config and CMake need to find and link it.
#
#   include/qsf/               the C interface
#   lib/libqsf.a               the engine
#   lib/pkgconfig/qsf.pc       pkg-config --static --cflags --libs qsf
#   lib/cmake/qsf/             find_package(qsf), targets qsf::qsf and, for libqsf.so, qsf::shared
#   share/doc/qsf/examples/    a program, and how to build it with either

include(CMakePackageConfigHelpers)

# Sets `folders` to every library of ours that `target` links, itself included, and `externals` to
# the libraries of the system that those link.
function(qsf_linked_libraries target folders externals)
  set(seen)
  set(found_folders)
  set(found_externals)
  set(pending ${target})
  while(pending)
    list(POP_FRONT pending library)
    if(library IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${library})
    if(library MATCHES "^qsf::(.*)")
      list(APPEND found_externals ${CMAKE_MATCH_1})
    elseif(library MATCHES "^qsf_")
      # Flags and libraries that are headers alone have no code of their own.
      get_target_property(type ${library} TYPE)
      set(links LINK_LIBRARIES)
      if(type STREQUAL "INTERFACE_LIBRARY")
        set(links INTERFACE_LINK_LIBRARIES)
      else()
        list(APPEND found_folders ${library})
      endif()
      get_target_property(linked ${library} ${links})
      if(linked)
        list(APPEND pending ${linked})
      endif()
    elseif(NOT library MATCHES "^(Threads::Threads|MPI::MPI_C)$")  # the latter: programs alone are installed
      message(FATAL_ERROR "cmake/library.cmake: ${target} links ${library}, which qsf.pc and qsfConfig.cmake do not know")
    endif()
  endwhile()
  set(${folders} ${found_folders} PARENT_SCOPE)
  set(${externals} ${found_externals} PARENT_SCOPE)
endfunction()

qsf_linked_libraries(qsf_capi qsf_archive_folders qsf_archive_externals)

set(qsf_archive_objects ${qsf_archive_folders})
list(TRANSFORM qsf_archive_objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
add_library(qsf_archive STATIC ${qsf_archive_objects})
set_target_properties(qsf_archive PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME qsf)
# The C++ library that this compiler links by itself, as a C program has to name it.
set(qsf_cxx_library stdc++)
if("c++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  set(qsf_cxx_library c++)
endif()

# A library that describes itself to pkg-config is left to do so; another one is named plainly.
find_package(PkgConfig QUIET)
set(qsf_pc_requires)
set(qsf_pc_libs)
foreach(name IN LISTS qsf_archive_externals)
  set(found)
  if(PKG_CONFIG_FOUND)
    foreach(module IN ITEMS lib${name} ${name})
      if(NOT found)
        execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --exists ${module} RESULT_VARIABLE status)
        if(status EQUAL 0)
          set(found ${module})
        endif()
      endif()
    endforeach()
  endif()
  if(found)
    list(APPEND qsf_pc_requires ${found})
  else()
    string(APPEND qsf_pc_libs "-l${name} ")
  endif()
endforeach()
list(JOIN qsf_pc_requires ", " qsf_pc_requires)
string(APPEND qsf_pc_libs "-l${qsf_cxx_library} -lm -pthread")

# Folders relative to the file itself, so that an installation may be moved.
file(RELATIVE_PATH qsf_pc_prefix
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" qsf_pc_prefix ${qsf_pc_prefix})
file(RELATIVE_PATH qsf_pc_includedir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(RELATIVE_PATH qsf_pc_libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
set(qsf_config_folder ${PROJECT_BINARY_DIR}/packaging)
configure_file(${PROJECT_SOURCE_DIR}/packaging/qsf.pc.in ${qsf_config_folder}/qsf.pc @ONLY)

set(qsf_archive_path ${CMAKE_INSTALL_LIBDIR}/libqsf.a)
set(qsf_shared_path ${CMAKE_INSTALL_LIBDIR}/libqsf.so.${PROJECT_VERSION_MAJOR})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/packaging/qsfConfig.cmake.in ${qsf_config_folder}/qsfConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/qsf
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR qsf_archive_path qsf_shared_path
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${qsf_config_folder}/qsfConfigVersion.cmake
                                 COMPATIBILITY SameMajorVersion)

install(TARGETS qsf_archive ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/qsf
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN *.h)
install(FILES ${qsf_config_folder}/qsf.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(FILES ${qsf_config_folder}/qsfConfig.cmake ${qsf_config_folder}/qsfConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/qsf COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/examples/hello.c ${PROJECT_SOURCE_DIR}/examples/two_sessions.c
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/pkg_config ${PROJECT_SOURCE_DIR}/examples/cmake_package
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)
