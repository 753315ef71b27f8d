# SPDX-License-Identifier: MIT
add_executable(qsf-perplexity qsf_perplexity.cc)
target_link_libraries(qsf-perplexity PRIVATE qsf_capi qsf_tool_support)
