# SPDX-License-Identifier: MIT
add_executable(qsf-perplexity logits_compare.cc perplexity_record.cc qsf_perplexity.cc)
target_link_libraries(qsf-perplexity PRIVATE qsf_capi qsf_tool_support)
qsf_test(logits_compare_test SOURCES logits_compare.cc logits_compare_test.cc LABELS unit)
