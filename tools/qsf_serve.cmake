# SPDX-License-Identifier: MIT
#
# `qsf serve`: the HTTP server, the interfaces, the scheduler, the web page and the program.
include(qsf_serve_http.cmake)
include(qsf_serve_syntax.cmake)
include(qsf_serve_api.cmake)
include(qsf_serve_page.cmake)

add_library(qsf_serve_schedule STATIC serve/schedule/job_queue.cc serve/schedule/pass_rates.cc
            serve/schedule/scheduler.cc serve/schedule/scheduler_pass.cc
            serve/schedule/serve_metrics.cc serve/schedule/served_models.cc)
target_link_libraries(qsf_serve_schedule PRIVATE qsf_flags qsf_capi qsf_tool_support)
qsf_compile_together(qsf_serve_schedule)
qsf_optimise_lightly(qsf_serve_schedule)

qsf_program(serve
  SOURCES serve/cache_folder.cc serve/health_check.cc serve/qsf_serve.cc serve/serve_options.cc serve/serve_service.cc
          serve/web/file_answer.cc serve/web/file_sender.cc serve/web/web_folder.cc
  SYSTEM_SOURCES serve/end_requests serve/private_folder
  DEPS qsf_capi qsf_boost qsf_serve_http qsf_serve_api qsf_serve_syntax qsf_serve_schedule qsf_serve_page)

qsf_test(serve_schedule_test SOURCES serve/schedule/job_queue_test.cc
         serve/schedule/pass_rates_test.cc serve/schedule/serve_metrics_test.cc
         PRIVATE_DEPS qsf_serve_schedule LABELS unit)
qsf_test(scheduler_test SOURCES serve/schedule/scheduler_test.cc
         PRIVATE_DEPS qsf_capi qsf_tool_support qsf_serve_schedule LABELS model)
qsf_test(serve_web_test SOURCES serve/web/file_answer.cc serve/web/file_answer_test.cc
         PRIVATE_DEPS qsf_serve_http LABELS unit)
if(QSF_BUILD_TESTS)
  set_tests_properties(scheduler_test PROPERTIES FIXTURES_REQUIRED test_model)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME qsf_serve_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/serve/qsf_serve_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_SOURCE_DIR}
                   ${PROJECT_BINARY_DIR}/tests/tales-5M-4bit.qsf)
  add_test(NAME qsf_serve_faults_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/serve/qsf_serve_faults_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_BINARY_DIR}/tests/tales-5M-4bit.qsf)
  add_test(NAME qsf_serve_adapters_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/serve/qsf_serve_adapters_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_BINARY_DIR}/tests/tales-5M-4bit.qsf)
  add_test(NAME qsf_serve_web_test
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/serve/qsf_serve_web_test.py
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_BINARY_DIR}/tests/tales-5M-4bit.qsf)
  set_tests_properties(qsf_serve_test qsf_serve_adapters_test qsf_serve_faults_test qsf_serve_web_test PROPERTIES
                       FIXTURES_REQUIRED test_model LABELS model TIMEOUT 900)
endif()
