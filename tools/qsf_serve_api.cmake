# SPDX-License-Identifier: MIT
#
# The interfaces of `qsf serve`: from the bodies of requests to texts, and back to bytes.
add_library(qsf_serve_api STATIC
  serve/api/answer_output.cc serve/api/anthropic.cc serve/api/anthropic_format.cc
  serve/api/api_error.cc serve/api/api_settings.cc serve/api/call_fields.cc serve/api/chat_job.cc
  serve/api/embedding_inputs.cc
  serve/api/engine_access.cc serve/api/input_tokens.cc serve/api/interface_request.cc
  serve/api/json_fields.cc serve/api/json_value.cc serve/api/json_writer.cc
  serve/api/llama_infill.cc serve/api/llama_server.cc serve/api/message_fields.cc
  serve/api/ollama.cc serve/api/ollama_embed.cc serve/api/ollama_format.cc
  serve/api/ollama_models.cc serve/api/openai_chat.cc serve/api/openai_chat_format.cc
  serve/api/openai_common.cc serve/api/openai_completions.cc serve/api/openai_embeddings.cc
  serve/api/openai_models.cc serve/api/openai_responses.cc serve/api/openai_responses_format.cc
  serve/api/raw_prompt.cc serve/api/router.cc)
target_link_libraries(qsf_serve_api PRIVATE qsf_flags qsf_json PUBLIC qsf_capi qsf_serve_http
                      qsf_serve_syntax)
qsf_compile_together(qsf_serve_api)
qsf_optimise_lightly(qsf_serve_api)

qsf_test(serve_api_test
  SOURCES serve/api/anthropic_test.cc serve/api/json_value_test.cc serve/api/llama_server_test.cc
          serve/api/ollama_test.cc serve/api/openai_chat_test.cc
          serve/api/openai_completions_test.cc serve/api/openai_family_calls_test.cc
          serve/api/openai_fields_test.cc serve/api/openai_responses_test.cc
          serve/api/router_test.cc
  PRIVATE_DEPS qsf_serve_api qsf_serve_syntax LABELS unit)
