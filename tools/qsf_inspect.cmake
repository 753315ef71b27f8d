# SPDX-License-Identifier: MIT
qsf_program(inspect
  SOURCES inspect/qsf_inspect.cc
          inspect/qsf_inspect_adapter.cc
          inspect/qsf_inspect_gguf.cc
          inspect/qsf_inspect_plan.cc
          inspect/qsf_inspect_report.cc
          inspect/qsf_inspect_verify.cc
  DEPS qsf_capi qsf_format qsf_import_models qsf_tokenizer qsf_json)
qsf_test(qsf_inspect_test SOURCES inspect/qsf_inspect_test.cc DEPS format format_testing PRIVATE_DEPS qsf_json
         LABELS unit)
if(QSF_BUILD_TESTS)
  add_dependencies(qsf_inspect_test qsf)
endif()
