# SPDX-License-Identifier: MIT
# Tests of the whole column: they run the tools and the public interface on real files.
qsf_test(golden_logits_test SOURCES golden_logits_test.cc DEPS capi PRIVATE_DEPS qsf_json
         LABELS golden tier TIMEOUT 1200)
qsf_test(bitnet_golden_test SOURCES bitnet_golden_test.cc DEPS capi PRIVATE_DEPS qsf_json LABELS golden tier)
qsf_test(rotated_logits_test SOURCES rotated_logits_test.cc DEPS capi import_models LABELS golden)
qsf_test(decode_allocation_test SOURCES decode_allocation_test.cc DEPS allocation_counter capi LABELS model)
qsf_test(int8_rows_test SOURCES int8_rows_test.cc DEPS capi LABELS model tier)
qsf_test(engine_contract_test SOURCES engine_contract_test.cc DEPS capi LABELS model tier)
qsf_test(stories_test SOURCES stories_test.cc LABELS model tier TIMEOUT 1200)
if(QSF_BUILD_TESTS)
  add_dependencies(decode_allocation_test qsf-convert)
  add_dependencies(golden_logits_test qsf-convert)
  add_dependencies(bitnet_golden_test qsf-convert)
  add_dependencies(rotated_logits_test qsf-convert)
  add_dependencies(engine_contract_test qsf-convert)
  add_dependencies(stories_test qsf-convert qsf-run qsf-perplexity)
  # That golden logits catch a changed model: half their time, and the same on every tier and under
  # sanitizers.
  set_tests_properties(golden_logits_test PROPERTIES ENVIRONMENT GTEST_FILTER=-*IsCaught*)
  if(NOT QSF_SANITIZE)
    add_test(NAME golden_faults_test COMMAND golden_logits_test --gtest_filter=*IsCaught*)
    set_tests_properties(golden_faults_test PROPERTIES LABELS golden TIMEOUT 1200)
  endif()
  # Prompts on matrix units, which builds for tests have in software: some models of each kind.
  add_test(NAME golden_logits_amx_test
    COMMAND golden_logits_test
            --gtest_filter=*F32Matches*/llama_gqa_tied:*Narrow*/llama_gqa_tied:*F32Matches*/gemma2*:GoldenTierTest.*)
  set_tests_properties(golden_logits_amx_test PROPERTIES
    LABELS golden TIMEOUT 1200 ENVIRONMENT QSF_ISA=amx)
  # The longest begin first, so that none is left over at the end.
  set_tests_properties(golden_logits_test stories_test PROPERTIES COST 100)
endif()
