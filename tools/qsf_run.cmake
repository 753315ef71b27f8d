# SPDX-License-Identifier: MIT
add_library(qsf_tool_support STATIC common/tool_support.cc common/command_line.cc common/option_parser.cc)
target_link_libraries(qsf_tool_support PUBLIC qsf_flags qsf_cli11)
add_executable(qsf-run run/qsf_run.cc common/bundled_model.cc run/chat_input.cc run/chat_interrupt.cc run/chat_save.cc
  run/line_editor.cc common/model_cache.cc run/qsf_run_chat.cc run/run_engine.cc run/run_options.cc run/run_report.cc run/run_session.cc run/text_output.cc)
target_link_libraries(qsf-run PRIVATE qsf_capi qsf_tool_support qsf_json qsf_libedit)

# The way from the installed tools to the installed models, which no prefix is part of.
file(RELATIVE_PATH qsf_models_from_bin
     ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/qsf/models)
target_compile_definitions(qsf-run PRIVATE QSF_MODELS_FROM_BIN="${qsf_models_from_bin}")
set_source_files_properties(common/option_parser.cc PROPERTIES
  COMPILE_DEFINITIONS QSF_VERSION="${PROJECT_VERSION}")
