// SPDX-License-Identifier: MIT
#include "tools/serve/api/api_error.h"

#include "tools/serve/api/json_writer.h"

namespace qsf_tools {

namespace {

// OpenAI's type of the errors that a server refuses requests with, by status.
std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return "invalid_request_error";
  }
}

// OpenAI's clients repeat a request after 408, 409, 429 and every 5xx.
bool stays_wrong(int status) {
  return status != 408 && status != 429 && status != 503;
}

}  // namespace

ApiError invalid_field(std::string param, std::string message, std::string code) {
  ApiError error;
  error.message = std::move(message);
  error.param = std::move(param);
  error.code = std::move(code);
  return error;
}

ApiError context_exceeded(int n_prompt_tokens, int n_ctx, std::string param) {
  ApiError error;
  error.message = "This model's maximum context length is " + std::to_string(n_ctx) +
                  " tokens. However, the prompt has " + std::to_string(n_prompt_tokens) +
                  " tokens, which leaves no room for an answer. Shorten it, or serve the model "
                  "with a longer context.";
  error.type = "exceed_context_size_error";
  error.param = std::move(param);
  error.code = "context_length_exceeded";
  error.n_prompt_tokens = n_prompt_tokens;
  error.n_ctx = n_ctx;
  return error;
}

ApiError model_not_found(std::string_view model) {
  ApiError error;
  error.status = 404;
  error.message = "The model '" + std::string(model) +
                  "' does not exist; /v1/models lists those "
                  "that do.";
  error.type = error_type(404);
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

ApiError engine_error(const qsf_error& error, std::string param) {
  ApiError out;
  out.message = error.message;
  const bool is_request = error.code == QSF_INVALID_ARGUMENT || error.code == QSF_UNSUPPORTED ||
                          error.code == QSF_OUT_OF_BUDGET;
  out.status = is_request ? 400 : 500;
  out.type = error_type(out.status);
  if (is_request) out.param = std::move(param);
  return out;
}

std::string openai_error_body(const ApiError& error) {
  JsonWriter json;
  json.begin_object().name("error").begin_object();
  json.member("message", error.message).member("type", error.type);
  json.text_or_null("param", error.param).text_or_null("code", error.code);
  if (error.n_ctx != 0) {
    json.member("n_prompt_tokens", error.n_prompt_tokens).member("n_ctx", error.n_ctx);
  }
  json.end_object().end_object();
  return json.take();
}

std::vector<HttpHeader> error_headers(const ApiError& error) {
  std::vector<HttpHeader> headers;
  if (error.retry_after_seconds > 0) {
    headers.push_back({"Retry-After", std::to_string(error.retry_after_seconds)});
  }
  if (stays_wrong(error.status)) headers.push_back({"x-should-retry", "false"});
  return headers;
}

HttpResponse openai_error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.headers = error_headers(error);
  response.headers.push_back({"Content-Type", "application/json"});
  response.body = openai_error_body(error);
  return response;
}

ApiError http_error(int status, std::string_view message) {
  ApiError error;
  error.status = status;
  error.message = std::string(message);
  error.type = error_type(status);
  return error;
}

}  // namespace qsf_tools
