# SPDX-License-Identifier: MIT
#
# Tests of the tools as a user runs them, and of the C API on the bundled model.
if(QSF_BUILD_TESTS)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(qsf_run_test ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  add_test(NAME qsf_run_test COMMAND ${qsf_run_test} Usage Failures Text Sessions Budget Disk Streaming)
  add_test(NAME qsf_run_damage_test COMMAND ${qsf_run_test} Damage)
  set_tests_properties(qsf_run_test PROPERTIES LABELS model TIMEOUT 600)
  set_tests_properties(qsf_run_damage_test PROPERTIES LABELS slow TIMEOUT 1200)

  add_test(NAME qsf_main_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/qsf_main_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_main_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_chat_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_chat_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_chat_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_sampling_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_sampling_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_sampling_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_speed_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_speed_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_speed_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_adapters_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_adapters_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_adapters_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_grammar_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_grammar_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_grammar_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_gguf_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_gguf_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_gguf_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_experts_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_experts_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_experts_test PROPERTIES LABELS model TIMEOUT 600)

  add_test(NAME qsf_run_quality_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/run/qsf_run_quality_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR})
  set_tests_properties(qsf_run_quality_test PROPERTIES LABELS model TIMEOUT 600)

  # A model of the tree's own for tests that take one as an argument.
  set(qsf_test_model ${PROJECT_BINARY_DIR}/tests/tales-5M-4bit.qsf)
  add_test(NAME convert_test_model COMMAND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/qsf-convert --quiet --quant-type 4bit
           ${PROJECT_SOURCE_DIR}/models/tales-5M ${qsf_test_model})
  add_test(NAME capi_model_test COMMAND capi_test ${qsf_test_model})
  add_test(NAME capi_chat_model_test COMMAND capi_chat_test ${qsf_test_model})
  add_test(NAME capi_generated_model_test COMMAND capi_generated_test ${qsf_test_model})
  add_test(NAME capi_grammar_model_test COMMAND capi_grammar_test ${qsf_test_model})
  add_test(NAME capi_plan_model_test COMMAND capi_plan_test ${qsf_test_model})
  add_test(NAME capi_prefix_model_test COMMAND capi_prefix_test ${qsf_test_model})
  add_test(NAME capi_sampler_model_test COMMAND capi_sampler_test ${qsf_test_model})
  add_test(NAME capi_serving_model_test COMMAND capi_serving_test ${qsf_test_model})
  add_test(NAME capi_session_model_test COMMAND capi_session_test ${qsf_test_model})
  add_test(NAME capi_hooks_model_test COMMAND capi_hooks_test ${qsf_test_model})
  add_test(NAME capi_speculation_model_test COMMAND capi_speculation_test ${qsf_test_model})
  add_test(NAME capi_step_model_test COMMAND capi_step_test ${qsf_test_model})
  set(qsf_chat_test_model ${PROJECT_BINARY_DIR}/tests/chat_model-4bit.qsf)
  add_test(NAME convert_chat_test_model COMMAND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/qsf-convert --quiet
           --quant-type 4bit ${PROJECT_SOURCE_DIR}/testdata/chat_model ${qsf_chat_test_model})
  add_test(NAME capi_random_calls_test COMMAND capi_random_calls_test ${qsf_chat_test_model})
  add_test(NAME capi_threads_test COMMAND capi_threads_test ${qsf_chat_test_model})
  add_test(NAME capi_chat_prompt_model_test COMMAND capi_chat_prompt_test ${qsf_chat_test_model})
  set_tests_properties(convert_chat_test_model PROPERTIES FIXTURES_SETUP chat_test_model LABELS model)
  set_tests_properties(capi_random_calls_test capi_threads_test capi_chat_prompt_model_test PROPERTIES
    FIXTURES_REQUIRED chat_test_model LABELS model TIMEOUT 600)
  add_test(NAME capi_window_model_test COMMAND capi_window_test ${qsf_test_model})
  add_test(NAME capi_0_1_model_test COMMAND capi_0_1_test ${qsf_test_model})
  add_test(NAME hello_test COMMAND hello ${qsf_test_model} "Once upon a time")
  add_test(NAME two_sessions_test COMMAND two_sessions ${qsf_test_model} "Once upon a time" "The fox said")
  set_tests_properties(convert_test_model PROPERTIES FIXTURES_SETUP test_model LABELS model)
  set_tests_properties(capi_model_test capi_chat_model_test capi_generated_model_test capi_plan_model_test
    capi_grammar_model_test capi_prefix_model_test capi_sampler_model_test capi_serving_model_test
    capi_session_model_test capi_speculation_model_test capi_step_model_test capi_window_model_test capi_0_1_model_test hello_test two_sessions_test PROPERTIES
    FIXTURES_REQUIRED test_model LABELS model TIMEOUT 600)
  set_tests_properties(hello_test PROPERTIES PASS_REGULAR_EXPRESSION "^Once upon a time[^\n]+")
  set_tests_properties(two_sessions_test PROPERTIES
    PASS_REGULAR_EXPRESSION "^Once upon a time[^\n]+\n(.*\n)?The fox said[^\n]+")
endif()
