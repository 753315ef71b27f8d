# SPDX-License-Identifier: MIT
qsf_program(perplexity
  SOURCES perplexity/logits_compare.cc perplexity/perplexity_record.cc perplexity/qsf_perplexity.cc
  DEPS qsf_capi)
qsf_test(logits_compare_test SOURCES perplexity/logits_compare.cc perplexity/logits_compare_test.cc LABELS unit)
