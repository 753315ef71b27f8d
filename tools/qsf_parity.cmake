# SPDX-License-Identifier: MIT
qsf_program(parity
  SOURCES parity/parity_child.cc
          parity/parity_json.cc
          parity/parity_main.cc
          parity/parity_options.cc
          parity/parity_receipt.cc
          parity/parity_result.cc
          parity/parity_run.cc
          parity/parity_source.cc
          parity/parity_trace.cc
          parity/parity_verify.cc
          parity/sha256.cc
  DEPS qsf_capi qsf_engine qsf_program_bench qsf_json)
qsf_test(parity_test
  SOURCES parity/parity_json.cc parity/parity_result.cc parity/parity_result_test.cc
          parity/parity_trace.cc parity/parity_trace_test.cc parity/sha256.cc parity/sha256_test.cc
  DEPS engine model_testing PRIVATE_DEPS qsf_json qsf_tool_support LABELS unit)
if(QSF_BUILD_TESTS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME qsf_parity_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/parity/qsf_parity_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_parity_test PROPERTIES LABELS ${qsf_many_runs_label} TIMEOUT 600)
  add_test(NAME qsf_parity_llama_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/parity/qsf_parity_llama_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_parity_llama_test PROPERTIES LABELS model TIMEOUT 1800 SKIP_RETURN_CODE 77)
endif()
