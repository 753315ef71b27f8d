# SPDX-License-Identifier: MIT
# The published schema of receipts, as a string that qsf-parity verify checks them with.
file(READ ${PROJECT_SOURCE_DIR}/docs/parity-receipt.schema.json QSF_PARITY_SCHEMA)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/docs/parity-receipt.schema.json)
set(qsf_parity_schema ${CMAKE_CURRENT_BINARY_DIR}/parity_receipt_schema.cc)
configure_file(parity/parity_receipt_schema.cc.in ${qsf_parity_schema} @ONLY)

qsf_program(parity
  SOURCES parity/json_schema.cc
          parity/parity_compare.cc
          parity/qsf_parity.cc
          parity/qsf_parity_child.cc
          parity/qsf_parity_engine.cc
          parity/qsf_parity_logits.cc
          parity/qsf_parity_observer.cc
          parity/qsf_parity_options.cc
          parity/qsf_parity_process.cc
          parity/qsf_parity_receipt.cc
          parity/qsf_parity_result.cc
          parity/qsf_parity_run.cc
          parity/qsf_parity_trace.cc
          parity/qsf_parity_verify.cc
          parity/sha256.cc
          ${qsf_parity_schema}
  DEPS qsf_capi qsf_engine qsf_program_bench qsf_json)
target_include_directories(qsf_program_parity PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
qsf_test(parity_compare_test SOURCES parity/parity_compare.cc parity/parity_compare_test.cc LABELS unit)
qsf_test(sha256_test SOURCES parity/sha256.cc parity/sha256_test.cc LABELS unit)
if(QSF_BUILD_TESTS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME qsf_parity_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/parity/qsf_parity_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_parity_test PROPERTIES LABELS model TIMEOUT 600)
  add_test(NAME qsf_parity_llama_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/parity/qsf_parity_llama_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_parity_llama_test PROPERTIES LABELS model TIMEOUT 1800 SKIP_RETURN_CODE 77)
endif()
