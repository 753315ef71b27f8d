# SPDX-License-Identifier: MIT
#
# The programs are commands of one binary, `qsf`. Each is a library with an entry function
# (tools/common/programs.h); qsf-NAME in the folder of the binary is a link to it.

# qsf_program(NAME SOURCES a.cc ... [SYSTEM_SOURCES b ...] DEPS qsf_capi ... [DEFINITIONS A=1 ...])
#
# The target qsf-NAME builds the binary and its links.
function(qsf_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;SYSTEM_SOURCES;DEPS;DEFINITIONS" ${ARGN})
  qsf_system_sources(system_sources ${ARG_SYSTEM_SOURCES})
  add_library(qsf_program_${name} STATIC ${ARG_SOURCES} ${system_sources})
  target_link_libraries(qsf_program_${name} PRIVATE qsf_flags qsf_tool_support ${ARG_DEPS})
  target_compile_definitions(qsf_program_${name} PRIVATE QSF_VERSION="${PROJECT_VERSION}" ${ARG_DEFINITIONS})
  qsf_compile_together(qsf_program_${name})
  qsf_optimise_lightly(qsf_program_${name})
endfunction()

# qsf_link(NAME...): makes the links qsf-NAME, which older scripts use.
function(qsf_link)
  foreach(name IN LISTS ARGN)
    add_custom_command(TARGET qsf POST_BUILD VERBATIM
      COMMAND ${CMAKE_COMMAND} -E create_symlink qsf ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/qsf-${name})
    add_custom_target(qsf-${name} DEPENDS qsf)
    set_property(GLOBAL APPEND PROPERTY QSF_LINKS qsf-${name})
  endforeach()
endfunction()
