# SPDX-License-Identifier: MIT
add_executable(qsf-inspect inspect/qsf_inspect.cc inspect/qsf_inspect_gguf.cc inspect/qsf_inspect_plan.cc inspect/qsf_inspect_report.cc inspect/qsf_inspect_verify.cc)
target_link_libraries(qsf-inspect PRIVATE qsf_capi qsf_format qsf_import_models qsf_tokenizer qsf_tool_support qsf_json)
target_compile_definitions(qsf-inspect PRIVATE QSF_VERSION="${PROJECT_VERSION}")
qsf_test(qsf_inspect_test SOURCES inspect/qsf_inspect_test.cc DEPS format format_testing PRIVATE_DEPS qsf_json
         LABELS unit)
if(QSF_BUILD_TESTS)
  add_dependencies(qsf_inspect_test qsf-inspect qsf-convert)
endif()
