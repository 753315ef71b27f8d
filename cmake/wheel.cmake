# SPDX-License-Identifier: MIT
#
# What a Python wheel holds beside the package python/qsf, which pyproject.toml names; the component
# `wheel` is installed into the package:
#
#   lib/libqsf.so.0            the engine, for a C library of version QSF_WHEEL_GLIBC or newer
#   bin/qsf                    the program, static
#
# and, into the wheel's dist-info (docs/decisions/060-wheels.md):
#
#   licenses/libraries/        what the packages of the libraries inside say
#   sboms/                     those libraries with their versions
#
# libqsf.so needs the C library and libgcc_s alone: the others and the C++ library are inside.

include(cmake/sbom.cmake)
set(QSF_WHEEL_GLIBC 2.28 CACHE STRING "Oldest C library that the wheel's libqsf.so runs with")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "QSF_WHEEL=ON: wheels are made by gcc on Linux; the compiler here is ${CMAKE_CXX_COMPILER_ID} for ${CMAKE_SYSTEM_NAME}")
endif()
if(NOT QSF_STATIC)
  message(FATAL_ERROR "QSF_WHEEL=ON: the wheel's program is static, which needs -DCMAKE_BUILD_TYPE=Release and an archive of every library; see the message 'Linked with shared libraries' above")
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(qsf_glibc_stubs ${PROJECT_BINARY_DIR}/glibc-${QSF_WHEEL_GLIBC})
execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/package/make_glibc_stubs.py
                        --max ${QSF_WHEEL_GLIBC} --compiler ${CMAKE_C_COMPILER} --to ${qsf_glibc_stubs}
                COMMAND_ERROR_IS_FATAL ANY)
target_sources(qsf_shared PRIVATE ${PROJECT_SOURCE_DIR}/packaging/wheel/glibc_substitutes.c)
target_link_options(qsf_shared PRIVATE -L${qsf_glibc_stubs} -static-libstdc++ LINKER:--gc-sections)

# One file, for a wheel has no symbolic links.
set_target_properties(qsf_shared PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})

install(TARGETS qsf_shared LIBRARY DESTINATION lib COMPONENT wheel NAMELINK_SKIP)
install(TARGETS qsf RUNTIME DESTINATION bin COMPONENT wheel)
# Set by scikit-build-core; without it, as in a build by hand, beside the rest.
set(qsf_dist_info ${SKBUILD_METADATA_DIR})
if(NOT qsf_dist_info)
  set(qsf_dist_info dist-info)
endif()
set(qsf_sbom_folder ${PROJECT_BINARY_DIR}/packaging/wheel)
qsf_write_sbom(${qsf_sbom_folder})
install(DIRECTORY ${qsf_sbom_folder}/sboms DESTINATION ${qsf_dist_info} COMPONENT wheel)
install(DIRECTORY ${qsf_sbom_folder}/libraries DESTINATION ${qsf_dist_info}/licenses COMPONENT wheel)
