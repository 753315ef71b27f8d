# SPDX-License-Identifier: MIT
add_library(qsf_tool_support STATIC tool_support.cc)
target_link_libraries(qsf_tool_support PUBLIC qsf_flags qsf_cli11)
add_executable(qsf-run qsf_run.cc run_options.cc run_report.cc text_output.cc)
target_link_libraries(qsf-run PRIVATE qsf_capi qsf_tool_support)
