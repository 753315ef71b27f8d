# SPDX-License-Identifier: MIT
#
# What `cmake --build build/release --target package` makes, in packages/ of the build folder:
#
#   qsf_VERSION-1_ARCH.deb           program, bundled model, man pages, completions
#   libqsf0_VERSION-1_ARCH.deb       shared library
#   libqsf-dev_VERSION-1_ARCH.deb    header, archive, files for pkg-config and CMake, examples
#   qsf-VERSION-linux-ARCH.tar.gz    the contents of the first package, for other systems
#
# A build for Linux on another machine makes those of programs; the others' dependencies are known
# where the libraries are installed.
#
# scripts/package/make_packages makes all of them.

find_program(QSF_SHLIBDEPS dpkg-shlibdeps)
find_program(QSF_GZIP gzip)
mark_as_advanced(QSF_SHLIBDEPS QSF_GZIP)
set(QSF_PACKAGE_MAINTAINER "The QSF authors <maintainers@qsf.example.org>"
    CACHE STRING "Who answers for the packages: Name <address>")

set(CPACK_PACKAGE_NAME qsf)
set(CPACK_PACKAGE_VENDOR "The QSF authors")
set(CPACK_PACKAGE_CONTACT "${QSF_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

# Sets `owner` to the Debian package that a file belongs to, or to nothing. A library for another
# machine is in the package of the same name here, which has the same licence.
function(qsf_debian_owner path owner)
  if(CMAKE_CROSSCOMPILING)
    get_filename_component(name ${path} NAME)
    set(path "/usr/lib/*/${name}")
  endif()
  execute_process(COMMAND dpkg-query --search ${path} OUTPUT_VARIABLE found RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0)
    string(REGEX REPLACE ":.*" "" found "${found}")
    set(${owner} ${found} PARENT_SCOPE)
  else()
    set(${owner} "" PARENT_SCOPE)
  endif()
endfunction()

# Who ships a library inside a program ships its licence: what its Debian package says, or at least
# a paragraph of ours.
file(READ ${PROJECT_SOURCE_DIR}/packaging/debian/copyright qsf_copyright)
get_cmake_property(qsf_library_variables CACHE_VARIABLES)
list(FILTER qsf_library_variables INCLUDE REGEX "^QSF_.+_LIBRARY$")
foreach(variable IN LISTS qsf_library_variables)
  if(NOT ${variable})
    continue()
  endif()
  string(REGEX REPLACE "^QSF_(.+)_LIBRARY$" "\\1" name ${variable})
  string(REGEX REPLACE "-[0-9]+$" "" stem ${name})
  qsf_debian_owner(${${variable}} owner)
  set(licence /usr/share/doc/${owner}/copyright)
  if(owner AND EXISTS ${licence})
    file(REAL_PATH ${licence} licence)
    install(FILES ${licence} DESTINATION ${CMAKE_INSTALL_DOCDIR}/libraries RENAME ${owner}.txt
            COMPONENT tools)
  elseif(NOT qsf_copyright MATCHES "\nFiles: ${stem}\n")
    message(FATAL_ERROR "packaging/debian/copyright: no paragraph 'Files: ${stem}', whose code the tools contain; add its copyright and licence")
  endif()
endforeach()

# And a bill of materials: no scanner sees a library in a static program.
include(cmake/sbom.cmake)
qsf_write_sbom(${PROJECT_BINARY_DIR}/packaging/sbom)
install(FILES ${PROJECT_BINARY_DIR}/packaging/sbom/sboms/qsf.cdx.json
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/sboms COMPONENT tools)

# The tarball; settings that differ by generator are made when packages are.
string(TOLOWER ${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR} qsf_system)
set(qsf_tarball_name qsf-${PROJECT_VERSION}-${qsf_system})
set(qsf_debian_components tools completions debian)
if(NOT CMAKE_CROSSCOMPILING)
  list(APPEND qsf_debian_components shared debian_shared development debian_development)
endif()
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/packaging/by_generator.cmake)
configure_file(${PROJECT_SOURCE_DIR}/packaging/by_generator.cmake.in ${CPACK_PROJECT_CONFIG_FILE} @ONLY)
set(CPACK_GENERATOR TGZ)
if(NOT QSF_SHLIBDEPS OR NOT QSF_GZIP OR NOT QSF_DOCUMENTATION OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  include(CPack)
  return()
endif()

# The packages' own files, where Debian wants them: compressed, dated and one set for each package.
set(qsf_debian_folder ${PROJECT_BINARY_DIR}/packaging/debian)
set(ENV{SOURCE_DATE_EPOCH} ${QSF_DATE_EPOCH})
string(TIMESTAMP qsf_date_of_packages "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${PROJECT_SOURCE_DIR}/packaging/debian/changelog.in ${qsf_debian_folder}/changelog @ONLY)
set(qsf_compressed)
function(qsf_compress from to)
  add_custom_command(OUTPUT ${to} VERBATIM DEPENDS ${from}
    COMMAND ${CMAKE_COMMAND} -DGZIP=${QSF_GZIP} -DFROM=${from} -DTO=${to} -P ${PROJECT_SOURCE_DIR}/cmake/compress.cmake)
  set(qsf_compressed ${qsf_compressed} ${to} PARENT_SCOPE)
endfunction()
qsf_compress(${qsf_debian_folder}/changelog ${qsf_debian_folder}/changelog.Debian.gz)
qsf_compress(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${qsf_debian_folder}/changelog.gz)
foreach(tool IN LISTS qsf_tools)
  qsf_compress(${QSF_MAN_FOLDER}/${tool}.1 ${qsf_debian_folder}/man/${tool}.1.gz)
endforeach()
add_custom_target(debian_files ALL DEPENDS ${qsf_compressed})
add_dependencies(debian_files documentation)

install(DIRECTORY ${qsf_debian_folder}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/NOTICE
              ${qsf_debian_folder}/changelog.Debian.gz ${qsf_debian_folder}/changelog.gz
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/qsf.lintian-overrides RENAME qsf
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT debian EXCLUDE_FROM_ALL)
set(qsf_shared_package libqsf${PROJECT_VERSION_MAJOR})
install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/copyright
              ${qsf_debian_folder}/changelog.Debian.gz ${qsf_debian_folder}/changelog.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libqsf-dev COMPONENT debian_development EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/copyright
              ${qsf_debian_folder}/changelog.Debian.gz ${qsf_debian_folder}/changelog.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${qsf_shared_package} COMPONENT debian_shared EXCLUDE_FROM_ALL)

# The Debian packages that the libraries of libqsf.a come from.
set(qsf_debian_libraries)
foreach(name IN LISTS qsf_archive_externals)
  qsf_debian_owner(${QSF_${name}_LIBRARY} owner)
  if(owner)
    list(APPEND qsf_debian_libraries ${owner})
  else()
    message(STATUS "libqsf-dev will not name the package of ${name}: ${QSF_${name}_LIBRARY} belongs to none")
  endif()
endforeach()
list(JOIN qsf_debian_libraries ", " qsf_debian_libraries)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_DEB_COMPONENT_INSTALL ON)
foreach(component IN ITEMS TOOLS COMPLETIONS DEBIAN)
  set(CPACK_COMPONENT_${component}_GROUP programs)
endforeach()
foreach(component IN ITEMS DEVELOPMENT DEBIAN_DEVELOPMENT)
  set(CPACK_COMPONENT_${component}_GROUP library)
endforeach()
foreach(component IN ITEMS SHARED DEBIAN_SHARED)
  set(CPACK_COMPONENT_${component}_GROUP shared)
endforeach()

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME qsf)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION utils)
if(NOT QSF_STATIC)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_PROGRAMS_DESCRIPTION "\
QSF converts language models to a weight file of its own, inspects and
measures them, and runs them on the processor. A weight may take 2 to 32
bits.
.
The package contains the tools and a small model that tells tales, so that
they work without any download.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libqsf-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SOURCE qsf)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS
    "${qsf_shared_package} (= ${PROJECT_VERSION}-1), ${qsf_debian_libraries}")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "\
QSF converts language models to a weight file of its own and runs them.
.
The package contains the engine as a static library, its header for C, the
files for pkg-config and CMake, and examples.")
set(CPACK_DEBIAN_SHARED_PACKAGE_NAME ${qsf_shared_package})
set(CPACK_DEBIAN_SHARED_PACKAGE_SOURCE qsf)
set(CPACK_DEBIAN_SHARED_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_SHARED_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_SHARED_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/debian/shared/triggers)
set(CPACK_DEBIAN_SHARED_DESCRIPTION "\
QSF converts language models to a weight file of its own and runs them.
.
The package contains the engine as a shared library.")
include(CPack)
