// SPDX-License-Identifier: MIT
//
// Writes answers as chat.completion, whole or as a stream of chunks.
//
// The stream: a chunk with the role when the request is admitted, chunks of text, one chunk a tool
// call, one with the finish reason for each choice, usage if asked for, [DONE]. Clients depend on
// details: finish_reason is null rather than absent, content is there from the start, and an empty
// list of choices comes with usage alone.

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

// What all bodies of one answer have in common.
struct AnswerHead {
  std::string id;
  std::int64_t created = 0;
  std::string model;
  std::string fingerprint = system_fingerprint();

  // Leaves the object open.
  void begin(JsonWriter& json, std::string_view object) const {
    json.begin_object().member("id", id).member("object", object).member("created", created);
    json.member("model", model).member("system_fingerprint", fingerprint);
  }
};

class ChatWholeFormat : public AnswerFormat {
 public:
  ChatWholeFormat(const OpenAiChatCall& chat, AnswerOutput output, const ApiSettings& settings)
      : output_(std::move(output)), settings_(settings), log_probs_(chat.call.text.log_probs) {}

  void on_start(const AnswerStart& start) override {
    head_.id = settings_.make_id("chatcmpl-");
    head_.created = settings_.now_seconds();
    head_.model = start.model_name;
    choices_.resize(start.n_choices);
  }

  void on_part(std::size_t index, const AnswerPart& part,
               std::span<const AnswerToken> tokens) override {
    Choice& choice = choices_[index];
    switch (part.kind) {
      case AnswerPart::Kind::kText: choice.content += part.text; break;
      case AnswerPart::Kind::kReasoning: choice.reasoning += part.text; break;
      case AnswerPart::Kind::kToolCall:
        choice.calls.push_back({settings_.make_id("call_"), part.call});
        break;
    }
    for (const AnswerToken& token : tokens) write_chat_log_prob(choice.log_probs, token);
  }

  void on_choice_end(std::size_t index, const ChoiceEnd& end) override {
    choices_[index].finish_reason = finish_reason(end);
  }

  void on_end(const AnswerUsage& usage) override {
    JsonWriter json;
    head_.begin(json, "chat.completion");
    json.name("choices").begin_array();
    for (std::size_t i = 0; i < choices_.size(); ++i) write_choice(json, i);
    json.end_array().name("usage");
    write_usage(json, usage);
    json.end_object();
    output_.respond(200, json.take());
  }

  void on_error(const ApiError& error) override { output_.respond(openai_error_response(error)); }

 private:
  struct Choice {
    std::string content;
    std::string reasoning;
    std::vector<std::pair<std::string, ToolCall>> calls;  // with their ids
    JsonWriter log_probs;                                 // entries, between commas
    std::string_view finish_reason;
  };

  void write_choice(JsonWriter& json, std::size_t index) const {
    const Choice& choice = choices_[index];
    json.begin_object().member("index", index);
    json.name("message").begin_object().member("role", "assistant");
    if (choice.content.empty() && !choice.calls.empty()) {
      json.null_member("content");
    } else {
      json.member("content", choice.content);
    }
    json.null_member("refusal");
    if (!choice.reasoning.empty()) json.member("reasoning_content", choice.reasoning);
    if (!choice.calls.empty()) {
      json.name("tool_calls").begin_array();
      for (const auto& [id, call] : choice.calls) write_tool_call(json, call, id, -1);
      json.end_array();
    }
    json.end_object();
    if (log_probs_) {
      json.name("logprobs").begin_object().name("content");
      json.raw("[" + choice.log_probs.str() + "]");
      json.null_member("refusal").end_object();
    } else {
      json.null_member("logprobs");
    }
    json.member("finish_reason", choice.finish_reason).end_object();
  }

  AnswerOutput output_;
  const ApiSettings& settings_;
  bool log_probs_;
  AnswerHead head_;
  std::vector<Choice> choices_;
};

class ChatStreamFormat : public AnswerFormat {
 public:
  ChatStreamFormat(const OpenAiChatCall& chat, AnswerOutput output, const ApiSettings& settings)
      : output_(std::move(output)),
        settings_(settings),
        log_probs_(chat.call.text.log_probs),
        include_usage_(chat.include_usage) {}

  void on_start(const AnswerStart& start) override {
    head_.id = settings_.make_id("chatcmpl-");
    head_.created = settings_.now_seconds();
    head_.model = start.model_name;
    n_calls_.resize(start.n_choices);
    output_.start_events();
    for (std::size_t i = 0; i < start.n_choices; ++i) {
      JsonWriter json = begin_chunk(i);
      json.member("role", "assistant").member("content", "");
      end_chunk(std::move(json), {}, {});
    }
  }

  void on_part(std::size_t index, const AnswerPart& part,
               std::span<const AnswerToken> tokens) override {
    JsonWriter json = begin_chunk(index);
    switch (part.kind) {
      case AnswerPart::Kind::kText: json.member("content", part.text); break;
      case AnswerPart::Kind::kReasoning: json.member("reasoning_content", part.text); break;
      case AnswerPart::Kind::kToolCall:
        // Whole: clients disagree on how calls in pieces look.
        json.name("tool_calls").begin_array();
        write_tool_call(json, part.call, settings_.make_id("call_"), n_calls_[index]++);
        json.end_array();
        break;
    }
    end_chunk(std::move(json), tokens, {});
  }

  void on_choice_end(std::size_t index, const ChoiceEnd& end) override {
    end_chunk(begin_chunk(index), {}, finish_reason(end));
  }

  void on_end(const AnswerUsage& usage) override {
    if (include_usage_) {
      JsonWriter json;
      head_.begin(json, kObject);
      json.name("choices").begin_array().end_array().name("usage");
      write_usage(json, usage);
      json.end_object();
      output_.event(json.str());
    }
    output_.event("[DONE]");
    output_.finish();
  }

  void on_error(const ApiError& error) override {
    if (!output_.has_started()) return output_.respond(openai_error_response(error));
    output_.event(openai_error_body(error));
    output_.finish();
  }

 private:
  static constexpr std::string_view kObject = "chat.completion.chunk";

  // Leaves the delta open.
  JsonWriter begin_chunk(std::size_t index) const {
    JsonWriter json;
    head_.begin(json, kObject);
    json.name("choices").begin_array().begin_object().member("index", index);
    json.name("delta").begin_object();
    return json;
  }

  // `reason` empty: null.
  void end_chunk(JsonWriter json, std::span<const AnswerToken> tokens, std::string_view reason) {
    json.end_object();
    if (log_probs_ && !tokens.empty()) {
      json.name("logprobs").begin_object().name("content").begin_array();
      for (const AnswerToken& token : tokens) write_chat_log_prob(json, token);
      json.end_array().null_member("refusal").end_object();
    } else {
      json.null_member("logprobs");
    }
    json.text_or_null("finish_reason", reason).end_object().end_array();
    if (include_usage_) json.null_member("usage");
    json.end_object();
    output_.event(json.str());
  }

  AnswerOutput output_;
  const ApiSettings& settings_;
  bool log_probs_;
  bool include_usage_;
  AnswerHead head_;
  std::vector<int> n_calls_;  // of each choice
};

}  // namespace

std::unique_ptr<AnswerFormat> make_openai_chat_format(const OpenAiChatCall& call,
                                                      AnswerOutput output,
                                                      const ApiSettings& settings) {
  if (call.call.stream) {
    return std::make_unique<ChatStreamFormat>(call, std::move(output), settings);
  }
  return std::make_unique<ChatWholeFormat>(call, std::move(output), settings);
}

}  // namespace qsf_tools
