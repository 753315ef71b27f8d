# SPDX-License-Identifier: MIT
#
# Man pages and shell completions of the tools, made from what the built tools say to --help, so
# that they cannot drift from it:
#
#   share/man/man1/qsf-*.1
#   share/bash-completion/completions/qsf-*
#   share/zsh/site-functions/_qsf-*
#   share/fish/vendor_completions.d/qsf-*.fish
#
# They need Python, and tools that this machine can run or emulate; without these an installation
# lacks them.

# The date of what is made: a build of the same commit makes the same bytes.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  set(QSF_DATE_EPOCH $ENV{SOURCE_DATE_EPOCH})
else()
  execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} log -1 --format=%ct
                  OUTPUT_VARIABLE QSF_DATE_EPOCH OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT QSF_DATE_EPOCH)
    file(TIMESTAMP ${PROJECT_SOURCE_DIR}/CHANGELOG.md QSF_DATE_EPOCH "%s" UTC)
  endif()
endif()

set(QSF_MAN_FOLDER ${PROJECT_BINARY_DIR}/packaging/man)
set(QSF_COMPLETIONS_FOLDER ${PROJECT_BINARY_DIR}/packaging/completions)
find_package(Python3 QUIET COMPONENTS Interpreter)
set(QSF_DOCUMENTATION ON)
if(NOT Python3_Interpreter_FOUND OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
  set(QSF_DOCUMENTATION OFF)
  message(STATUS "No man pages and completions: they need python3 and tools that run here")
endif()

if(QSF_DOCUMENTATION)
  set(qsf_scripts ${PROJECT_SOURCE_DIR}/scripts/package)
  list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " qsf_emulator)
  set(qsf_documentation_files)
  foreach(tool IN LISTS qsf_tools)
    set(page ${QSF_MAN_FOLDER}/${tool}.1)
    set(completion ${QSF_COMPLETIONS_FOLDER}/bash/${tool})
    add_custom_command(OUTPUT ${page} VERBATIM
      COMMAND ${CMAKE_COMMAND} -E env SOURCE_DATE_EPOCH=${QSF_DATE_EPOCH}
              "QSF_EMULATOR=${qsf_emulator}" ${Python3_EXECUTABLE}
              ${qsf_scripts}/make_man_page.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${tool} ${page} ${qsf_tools}
      DEPENDS qsf ${qsf_scripts}/make_man_page.py ${qsf_scripts}/cli_help.py)
    add_custom_command(OUTPUT ${completion} VERBATIM
      COMMAND ${CMAKE_COMMAND} -E env "QSF_EMULATOR=${qsf_emulator}" ${Python3_EXECUTABLE}
              ${qsf_scripts}/make_completions.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${tool}
              ${QSF_COMPLETIONS_FOLDER}
      DEPENDS qsf ${qsf_scripts}/make_completions.py ${qsf_scripts}/cli_help.py)
    list(APPEND qsf_documentation_files ${page} ${completion})
  endforeach()
  file(MAKE_DIRECTORY ${QSF_MAN_FOLDER})
  add_custom_target(documentation ALL DEPENDS ${qsf_documentation_files})

  install(DIRECTORY ${QSF_MAN_FOLDER}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT manual)
  install(DIRECTORY ${QSF_COMPLETIONS_FOLDER}/bash/ COMPONENT completions
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(DIRECTORY ${QSF_COMPLETIONS_FOLDER}/fish/ COMPONENT completions
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  # Where zsh looks by itself, and where Debian has zsh look instead.
  install(DIRECTORY ${QSF_COMPLETIONS_FOLDER}/zsh/ COMPONENT manual
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(DIRECTORY ${QSF_COMPLETIONS_FOLDER}/zsh/ COMPONENT debian EXCLUDE_FROM_ALL
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
endif()

if(QSF_BUILD_TESTS AND QSF_DOCUMENTATION)
  foreach(test IN ITEMS man bash zsh fish)
    add_test(NAME documentation_${test}_test
             COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/package/documentation_test.py
                     ${test} ${PROJECT_BINARY_DIR})
    set_tests_properties(documentation_${test}_test PROPERTIES LABELS unit SKIP_RETURN_CODE 77)
  endforeach()
endif()
