# SPDX-License-Identifier: MIT
#
# The HTTP server under `qsf serve`, which knows nothing of models.
qsf_system_sources(qsf_socket_sources serve/http/socket_calls serve/http/stream_socket
                   serve/http/wake_signal)
add_library(qsf_serve_http STATIC serve/http/http_connection.cc serve/http/http_head.cc
            serve/http/http_listener.cc serve/http/http_output.cc serve/http/http_server.cc
            ${qsf_socket_sources})
target_link_libraries(qsf_serve_http PRIVATE qsf_flags qsf_boost)
if(WIN32)
  target_link_libraries(qsf_serve_http PUBLIC ws2_32 mswsock)
endif()
qsf_compile_together(qsf_serve_http)
qsf_optimise_lightly(qsf_serve_http)

if(QSF_BUILD_TESTS)
  add_library(qsf_serve_http_testing STATIC EXCLUDE_FROM_ALL serve/http/testing/http_client.cc)
  target_link_libraries(qsf_serve_http_testing PRIVATE qsf_flags PUBLIC qsf_serve_http)
  add_executable(http_fuzz_test serve/http/http_fuzz_test.cc)
  target_link_libraries(http_fuzz_test PRIVATE qsf_flags qsf_serve_http_testing)
  set_target_properties(http_fuzz_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # `./check long http-fuzz` sends two million.
  add_test(NAME http_fuzz_test COMMAND http_fuzz_test)
  set_tests_properties(http_fuzz_test PROPERTIES LABELS unit TIMEOUT 300)
endif()
qsf_test(http_server_test
  SOURCES serve/http/http_limits_test.cc serve/http/http_server_test.cc serve/http/http_smuggling_test.cc
  DEPS serve_http serve_http_testing LABELS unit)
