# SPDX-License-Identifier: MIT
add_executable(qsf-bench qsf_bench.cc qsf_bench_attend.cc qsf_bench_cost.cc qsf_bench_encode.cc qsf_bench_gptq.cc qsf_bench_h2o.cc qsf_bench_kernels.cc qsf_bench_limits.cc
               qsf_bench_machine.cc qsf_bench_matmul.cc qsf_bench_model.cc qsf_bench_options.cc
               qsf_bench_peer.cc qsf_bench_report.cc qsf_bench_samples.cc qsf_bench_small_kernels.cc
               qsf_bench_stream.cc)
target_link_libraries(qsf-bench PRIVATE qsf_engine qsf_import_models qsf_kernels qsf_tool_support qsf_json)
target_compile_definitions(qsf-bench PRIVATE QSF_VERSION="${PROJECT_VERSION}")
if(QSF_BUILD_TESTS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME qsf_bench_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/qsf_bench_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_bench_test PROPERTIES LABELS model TIMEOUT 600)
endif()
