# SPDX-License-Identifier: MIT
qsf_program(bench
  SOURCES bench/bench_attention_kernels.cc
          bench/bench_kernels.cc
          bench/bench_machine.cc
          bench/bench_main.cc
          bench/bench_model.cc
          bench/bench_options.cc
          bench/bench_report.cc
          bench/bench_routing.cc
          bench/bench_stream.cc
          bench/bench_texts.cc
          bench/bench_weight_kernels.cc
  SYSTEM_SOURCES bench/bench_system bench/cpu_name
  DEPS qsf_engine qsf_convert qsf_kernels qsf_json)
if(QSF_BUILD_TESTS)
  # Times of grammar masks; built when it is asked for.
  add_executable(qsf-grammar-bench EXCLUDE_FROM_ALL bench/grammar_bench.cc bench/grammar_passes.cc)
  target_link_libraries(qsf-grammar-bench PRIVATE qsf_flags qsf_grammar qsf_engine)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME qsf_bench_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench/qsf_bench_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_bench_test PROPERTIES LABELS ${qsf_many_runs_label} TIMEOUT 600)
endif()
