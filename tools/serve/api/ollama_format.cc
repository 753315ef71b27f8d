// SPDX-License-Identifier: MIT
//
// Writes answers of /api/chat and /api/generate: one object, or a line for each part and a last one
// with the counts.

#include <utility>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/interface_request.h"
#include "tools/serve/api/json_writer.h"
#include "tools/serve/api/ollama.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

class OllamaFormat : public AnswerFormat {
 public:
  OllamaFormat(const OllamaCall& call, AnswerOutput output, const ApiSettings& settings)
      : output_(std::move(output)),
        settings_(settings),
        is_chat_(call.is_chat),
        streams_(call.call.stream),
        log_probs_(call.call.text.log_probs) {}

  void on_start(const AnswerStart& start) override {
    model_ = start.model_name;
    if (streams_) output_.start_lines();
  }

  void on_part(std::size_t /*choice*/, const AnswerPart& part,
               std::span<const AnswerToken> tokens) override {
    if (!streams_) {
      add(whole_, part, tokens);
      return;
    }
    Words words;
    add(words, part, tokens);
    JsonWriter json = begin_line(words);
    json.member("done", false).end_object();
    output_.line(json.str());
  }

  void on_choice_end(std::size_t /*choice*/, const ChoiceEnd& end) override {
    done_reason_ = end.result.end == TextEnd::kLength ? "length" : "stop";
  }

  void on_end(const AnswerUsage& usage) override {
    JsonWriter json = begin_line(whole_);
    json.member("done", true).member("done_reason", done_reason_);
    json.member("total_duration", usage.total_ns).member("load_duration", usage.load_ns);
    json.member("prompt_eval_count", usage.prompt_tokens);
    json.member("prompt_eval_duration", usage.prompt_ns);
    json.member("eval_count", usage.generated_tokens).member("eval_duration", usage.generate_ns);
    if (usage.dropped_messages > 0) json.member("dropped_messages", usage.dropped_messages);
    json.end_object();
    if (!streams_) return output_.respond(200, json.take());
    output_.line(json.str());
    output_.finish();
  }

  void on_error(const ApiError& error) override {
    if (!output_.has_started()) return output_.respond(ollama_error_response(error));
    output_.line(ollama_error_body(error));
    output_.finish();
  }

 private:
  // What a line says.
  struct Words {
    std::string text;
    std::string thinking;
    JsonWriter calls;      // entries, between commas
    JsonWriter log_probs;  // the same
  };

  void add(Words& words, const AnswerPart& part, std::span<const AnswerToken> tokens) {
    switch (part.kind) {
      case AnswerPart::Kind::kText: words.text += part.text; break;
      case AnswerPart::Kind::kReasoning: words.thinking += part.text; break;
      case AnswerPart::Kind::kToolCall:
        words.calls.begin_object().member("id", settings_.make_id("call_"));
        words.calls.name("function").begin_object();
        words.calls.member("index", n_calls_++).member("name", part.call.name);
        words.calls.raw_member("arguments", part.call.arguments);
        words.calls.end_object().end_object();
        break;
    }
    for (const AnswerToken& token : tokens) write_chat_log_prob(words.log_probs, token);
  }

  // Leaves the object open.
  JsonWriter begin_line(const Words& words) const {
    JsonWriter json;
    json.begin_object().member("model", model_);
    json.member("created_at", utc_time(settings_.now_seconds()));
    if (is_chat_) {
      json.name("message").begin_object().member("role", "assistant");
      json.member("content", words.text);
    } else {
      json.member("response", words.text);
    }
    if (!words.thinking.empty()) json.member("thinking", words.thinking);
    if (!words.calls.str().empty()) json.raw_member("tool_calls", "[" + words.calls.str() + "]");
    if (is_chat_) json.end_object();
    if (log_probs_ && !words.log_probs.str().empty()) {
      json.raw_member("logprobs", "[" + words.log_probs.str() + "]");
    }
    return json;
  }

  AnswerOutput output_;
  const ApiSettings& settings_;
  bool is_chat_;
  bool streams_;
  bool log_probs_;
  std::string model_;
  std::string_view done_reason_ = "stop";
  int n_calls_ = 0;
  Words whole_;  // unless it streams
};

}  // namespace

std::unique_ptr<AnswerFormat> make_ollama_format(const OllamaCall& call, AnswerOutput output,
                                                 const ApiSettings& settings) {
  return std::make_unique<OllamaFormat>(call, std::move(output), settings);
}

}  // namespace qsf_tools
