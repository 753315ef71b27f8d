# SPDX-License-Identifier: MIT
#
# What `cmake --install` puts where, apart from the library (cmake/library.cmake):
#
#   bin/qsf                    the program
#   bin/qsf-*                  links to it
#   share/qsf/models/          the bundled model, which qsf finds from its own path:
#                              ../share/qsf/models when installed, models/ in a built tree
#   share/doc/qsf/             readme, licence, and those of the libraries inside
#
# The folders are GNUInstallDirs' and nothing installed holds their paths, so that an installation
# may be moved, or made below another root with DESTDIR.

set(QSF_BUNDLED_MODEL ${PROJECT_SOURCE_DIR}/models/tales-5M-4bit.qsf)

# The binary, and the links to it that are named after its commands.
get_property(qsf_links GLOBAL PROPERTY QSF_LINKS)
set(qsf_tools qsf ${qsf_links})
install(TARGETS qsf RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
list(TRANSFORM qsf_links PREPEND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ OUTPUT_VARIABLE qsf_link_files)
install(FILES ${qsf_link_files} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)

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
