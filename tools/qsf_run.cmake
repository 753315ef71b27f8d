# SPDX-License-Identifier: MIT
add_library(qsf_tool_support STATIC tool_support.cc command_line.cc)
target_link_libraries(qsf_tool_support PUBLIC qsf_flags qsf_cli11)
add_executable(qsf-run qsf_run.cc bundled_model.cc chat_input.cc chat_interrupt.cc chat_save.cc
  line_editor.cc model_cache.cc qsf_run_chat.cc run_engine.cc run_options.cc run_report.cc run_session.cc text_output.cc)
target_link_libraries(qsf-run PRIVATE qsf_capi qsf_tool_support qsf_json qsf_libedit)

# The way from the installed tools to the installed models, which no prefix is part of.
file(RELATIVE_PATH qsf_models_from_bin
     ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/qsf/models)
target_compile_definitions(qsf-run PRIVATE QSF_MODELS_FROM_BIN="${qsf_models_from_bin}")
