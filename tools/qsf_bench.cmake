# SPDX-License-Identifier: MIT
qsf_program(bench
  SOURCES bench/qsf_bench.cc
          bench/qsf_bench_attend.cc
          bench/qsf_bench_cost.cc
          bench/qsf_bench_encode.cc
          bench/qsf_bench_gptq.cc
          bench/qsf_bench_h2o.cc
          bench/qsf_bench_kernels.cc
          bench/qsf_bench_limits.cc
          bench/qsf_bench_machine.cc
          bench/qsf_bench_matmul.cc
          bench/qsf_bench_model.cc
          bench/qsf_bench_options.cc
          bench/qsf_bench_peer.cc
          bench/qsf_bench_report.cc
          bench/qsf_bench_samples.cc
          bench/qsf_bench_small_kernels.cc
          bench/qsf_bench_stream.cc
  DEPS qsf_engine qsf_convert qsf_kernels qsf_json)
if(QSF_BUILD_TESTS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME qsf_bench_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench/qsf_bench_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_bench_test PROPERTIES LABELS model TIMEOUT 600)
endif()
