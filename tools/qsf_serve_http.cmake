# SPDX-License-Identifier: MIT
#
# The HTTP server under `qsf serve`, which knows nothing of models.
add_library(qsf_serve_http STATIC serve/http/http_connection.cc serve/http/http_head.cc
            serve/http/http_listener.cc serve/http/http_output.cc serve/http/http_server.cc)
target_link_libraries(qsf_serve_http PRIVATE qsf_flags qsf_boost)
qsf_compile_together(qsf_serve_http)
qsf_optimise_lightly(qsf_serve_http)

if(QSF_BUILD_TESTS)
  add_library(qsf_serve_http_testing STATIC EXCLUDE_FROM_ALL serve/http/testing/http_client.cc)
  target_link_libraries(qsf_serve_http_testing PRIVATE qsf_flags PUBLIC qsf_serve_http)
endif()
qsf_test(http_server_test SOURCES serve/http/http_server_test.cc DEPS serve_http serve_http_testing
         LABELS unit)
