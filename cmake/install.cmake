# SPDX-License-Identifier: MIT
#
# What `cmake --install` puts where, apart from the library (cmake/library.cmake):
#
#   bin/qsf-*                  the tools
#   share/qsf/models/          the bundled model, which qsf-run finds from its own place:
#                              ../share/qsf/models when installed, models/ in a built tree
#   share/doc/qsf/             readme, licence, and those of the libraries inside
#
# The folders are GNUInstallDirs' and nothing installed holds their paths, so that an installation
# may be moved, or made below another root with DESTDIR.

set(QSF_BUNDLED_MODEL ${PROJECT_SOURCE_DIR}/models/tales-5M-4bit.qsf)

# Every program that tools/ declares, and none of its tests.
set(qsf_tools)
get_property(qsf_tool_targets DIRECTORY ${PROJECT_SOURCE_DIR}/tools PROPERTY BUILDSYSTEM_TARGETS)
foreach(target IN LISTS qsf_tool_targets)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE" AND NOT target MATCHES "_test$")
    list(APPEND qsf_tools ${target})
  endif()
endforeach()
install(TARGETS ${qsf_tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)

if(EXISTS ${QSF_BUNDLED_MODEL})
  install(FILES ${QSF_BUNDLED_MODEL} DESTINATION ${CMAKE_INSTALL_DATADIR}/qsf/models COMPONENT tools)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE ${PROJECT_SOURCE_DIR}/README.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT manual)

install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/copyright
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)

# Installs into the build tree and uses what was installed as a user would.
if(QSF_BUILD_TESTS AND NOT QSF_COVERAGE)
  add_test(NAME install_test
           COMMAND bash ${PROJECT_SOURCE_DIR}/scripts/package/install_test.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
                   ${CMAKE_C_COMPILER} "${QSF_SANITIZE}")
  set_tests_properties(install_test PROPERTIES LABELS model TIMEOUT 300)
endif()
