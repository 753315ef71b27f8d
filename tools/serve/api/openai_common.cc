// SPDX-License-Identifier: MIT
#include "tools/serve/api/openai_common.h"

#include <cmath>

#include "tools/serve/api/api_error.h"

namespace qsf_tools {

bool accept_request(const ApiRequest& request, const FieldReport& report) {
  if (report.error) {
    request.exchange->respond(openai_error_response(*report.error));
    return false;
  }
  request.settings->counters.ignored_fields += report.ignored.size();
  return true;
}

std::string_view finish_reason(const ChoiceEnd& end) noexcept {
  if (end.result.end == TextEnd::kLength) return "length";
  return end.called_tools ? "tool_calls" : "stop";
}

void write_usage(JsonWriter& json, const AnswerUsage& usage) {
  json.begin_object();
  json.member("prompt_tokens", usage.prompt_tokens);
  json.member("completion_tokens", usage.generated_tokens);
  json.member("total_tokens", usage.prompt_tokens + usage.generated_tokens);
  json.name("prompt_tokens_details").begin_object();
  json.member("cached_tokens", usage.cached_tokens).end_object();
  json.name("completion_tokens_details").begin_object();
  json.member("reasoning_tokens", usage.reasoning_tokens).end_object();
  json.end_object();
}

float json_log_prob(float log_prob) noexcept {
  constexpr float kNone = -9999.0F;  // OpenAI's number for the same
  return std::isfinite(log_prob) ? log_prob : kNone;
}

namespace {

// Leaves the object open.
void begin_candidate(JsonWriter& json, const AnswerToken::Candidate& candidate) {
  json.begin_object();
  json.member("token", candidate.bytes);
  json.member("logprob", json_log_prob(candidate.log_prob));
  json.name("bytes").begin_array();
  for (const char byte : candidate.bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

}  // namespace

void write_chat_log_prob(JsonWriter& json, const AnswerToken& token) {
  begin_candidate(json, token.drawn);
  json.name("top_logprobs").begin_array();
  for (const AnswerToken::Candidate& candidate : token.top) {
    begin_candidate(json, candidate);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_tool_call(JsonWriter& json, const ToolCall& call, std::string_view id, int index) {
  json.begin_object();
  if (index >= 0) json.member("index", index);
  json.member("id", id).member("type", "function");
  json.name("function").begin_object();
  json.member("name", call.name).member("arguments", call.arguments);
  json.end_object().end_object();
}

std::string system_fingerprint() {
  return std::string("b") + qsf_version();
}

}  // namespace qsf_tools
