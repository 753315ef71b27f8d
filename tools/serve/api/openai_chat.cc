// SPDX-License-Identifier: MIT
//
// Reads bodies of /v1/chat/completions.

#include "tools/serve/api/call_fields.h"
#include "tools/serve/api/chat_job.h"
#include "tools/serve/api/input_tokens.h"
#include "tools/serve/api/message_fields.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

void read_chat_log_probs(FieldReader& fields, TextRequest& text) {
  fields.read("logprobs", text.log_probs);
  fields.read("top_logprobs", text.n_top_log_probs, 0, kMaxChatTopLogProbs);
  if (text.n_top_log_probs > 0 && !text.log_probs) {
    fields.fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
}

void read_stream(FieldReader& fields, FieldReport& report, OpenAiChatCall& chat) {
  fields.read("stream", chat.call.stream);
  const JsonValue* value = fields.read_object("stream_options");
  if (value == nullptr) return;
  FieldReader options(*value, "stream_options", report);
  options.read("include_usage", chat.include_usage);
  options.accept({"include_obfuscation"});
  options.not_built("continuous_usage_stats", kNeutralFalse);
}

void read_prompt_shape(FieldReader& fields, ChatCall& call) {
  fields.read("continue_final_message", call.continue_final_message);
  call.add_generation_prompt = !call.continue_final_message;
  fields.read("add_generation_prompt", call.add_generation_prompt);
  if (call.continue_final_message && call.add_generation_prompt) {
    fields.fail("continue_final_message",
                "'continue_final_message' and 'add_generation_prompt' are both true: an answer "
                "either continues the last message or begins a new one");
  }
  std::size_t word = 0;
  fields.read_word("reasoning_format", {"auto", "deepseek", "none"}, word);
  call.split_reasoning = word != 2;
}

// Fields that change the text and are not built.
void refuse_unbuilt_chat_fields(FieldReader& fields) {
  if (const JsonValue* modalities = fields.find("modalities"); modalities != nullptr) {
    const JsonArray* names = modalities->array();
    const bool is_text = names != nullptr && names->size() == 1 &&
                         names->front().text() != nullptr && *names->front().text() == "text";
    if (!is_text) fields.not_built("modalities", kNeutralEmpty, "answers are text alone");
  }
  fields.not_built("audio", kNeutralEmpty, "answers are text alone");
  fields.not_built("functions", kNeutralEmpty, "use 'tools'");
  const JsonValue* function_call = fields.find("function_call");
  const std::string* how = function_call == nullptr ? nullptr : function_call->text();
  if (how == nullptr || (*how != "none" && *how != "auto")) {
    fields.not_built("function_call", kNeutralEmpty, "use 'tool_choice'");
  }
  fields.not_built("web_search_options", kNeutralEmpty);
  std::size_t verbosity = 0;
  fields.read_word("verbosity", {"medium"}, verbosity);
  fields.not_built("chat_template", kNeutralEmpty, "templates belong to the model");
  fields.not_built("documents", kNeutralEmpty);
  fields.not_built("echo", kNeutralFalse);
}

}  // namespace

OpenAiChatCall read_openai_chat(const JsonValue& body, const ApiSettings& settings,
                                FieldReport& report) {
  OpenAiChatCall chat;
  ChatCall& call = chat.call;
  FieldReader fields(body, "", report);
  fields.read("model", call.model);
  fields.read("cache_salt", call.cache_salt);
  if (const JsonValue* messages = fields.find("messages")) {
    JsonValue normalized = *messages;
    normalize_messages(normalized, "messages", report);
    call.messages = normalized.to_text();
  } else {
    fields.fail("messages", "'messages' is missing, expected an array of messages");
  }
  call.tools = read_tools(fields, report, call.tool_use);
  read_template_variables(fields, call);
  read_prompt_shape(fields, call);
  fields.read("n", call.n, 1, settings.max_choices);
  read_max_tokens(fields, "max_tokens", call.text.max_tokens);
  read_max_tokens(fields, "max_completion_tokens", call.text.max_tokens);
  read_sampling(fields, settings, call);
  read_stop(fields, "stop", settings, call.text);
  read_constraint(fields, report, call.text.constraint);
  read_chat_log_probs(fields, call.text);
  read_stream(fields, report, chat);
  refuse_unbuilt_chat_fields(fields);
  fields.not_built("best_of", kNeutralOne);
  accept_without_effect(fields);
  fields.finish(settings.strict_fields);
  return chat;
}

std::shared_ptr<ServeJob> handle_chat_completions(const ApiRequest& request) {
  FieldReport report;
  OpenAiChatCall chat;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    chat = read_openai_chat(*body, *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  std::unique_ptr<AnswerFormat> format = make_openai_chat_format(
      chat, AnswerOutput(request.exchange, report.ignored), *request.settings);
  return make_chat_job(std::move(chat.call), std::move(format), request.exchange, request.tenant,
                       *request.settings);
}

std::shared_ptr<ServeJob> handle_chat_input_tokens(const ApiRequest& request) {
  FieldReport report;
  OpenAiChatCall chat;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    chat = read_openai_chat(*body, *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  return make_input_tokens_job(std::move(chat.call), report.ignored, request, &input_tokens_body,
                               &openai_error_response);
}

}  // namespace qsf_tools
