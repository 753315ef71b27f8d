# SPDX-License-Identifier: MIT
add_executable(qsf-perplexity perplexity/logits_compare.cc perplexity/perplexity_record.cc perplexity/qsf_perplexity.cc)
target_link_libraries(qsf-perplexity PRIVATE qsf_capi qsf_tool_support)
qsf_test(logits_compare_test SOURCES perplexity/logits_compare.cc perplexity/logits_compare_test.cc LABELS unit)
