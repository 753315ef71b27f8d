// SPDX-License-Identifier: MIT
//
// Writes messages of Anthropic's interface. A message is a list of blocks: thinking, texts and
// calls. In a stream a block begins, grows and ends, each with an event of its own.

#include <algorithm>
#include <utility>

#include "tools/serve/api/anthropic.h"
#include "tools/serve/api/json_writer.h"

namespace qsf_tools {

namespace {

class AnthropicFormat : public AnswerFormat {
 public:
  AnthropicFormat(const AnthropicCall& call, AnswerOutput output, const ApiSettings& settings)
      : output_(std::move(output)),
        settings_(settings),
        stop_sequences_(call.stop_sequences),
        shows_thinking_(call.shows_thinking) {}

  void on_part(std::size_t /*choice*/, const AnswerPart& part,
               std::span<const AnswerToken> /*tokens*/) override {
    if (part.kind == AnswerPart::Kind::kReasoning && !shows_thinking_) return;
    add_part(part);
  }

  void on_choice_end(std::size_t /*choice*/, const ChoiceEnd& end) override {
    const TextResult& result = end.result;
    // The texts that end a message of the template are no sequences of the client.
    const bool is_sequence = result.end == TextEnd::kStopString &&
                             std::find(stop_sequences_.begin(), stop_sequences_.end(),
                                       result.stop_string) != stop_sequences_.end();
    if (is_sequence) stop_sequence_ = result.stop_string;
    if (end.called_tools && result.end != TextEnd::kLength) {
      stop_reason_ = "tool_use";
    } else if (result.end == TextEnd::kLength) {
      stop_reason_ = "max_tokens";
    } else {
      stop_reason_ = is_sequence ? "stop_sequence" : "end_turn";
    }
  }

 protected:
  virtual void add_part(const AnswerPart& part) = 0;

  // Leaves the object open, behind the model.
  JsonWriter begin_message(const AnswerStart& start) const {
    JsonWriter json;
    json.begin_object().member("id", settings_.make_id("msg_")).member("type", "message");
    json.member("role", "assistant").member("model", start.model_name);
    return json;
  }

  // Why it ended. Members that this server has no use for are null: Anthropic requires them.
  void write_stop(JsonWriter& json) const {
    json.text_or_null("stop_reason", stop_reason_);
    if (stop_reason_ == "stop_sequence") {
      json.member("stop_sequence", stop_sequence_);
    } else {
      json.null_member("stop_sequence");
    }
    json.null_member("stop_details").null_member("container");
  }

  // Of a message, or in message_delta. input_tokens are those that were computed.
  static void write_usage(JsonWriter& json, const AnswerUsage& usage, bool is_message) {
    json.name("usage").begin_object();
    json.member("input_tokens", usage.prompt_tokens - usage.cached_tokens);
    json.member("cache_creation_input_tokens", 0);
    json.member("cache_read_input_tokens", usage.cached_tokens);
    json.member("output_tokens", usage.generated_tokens);
    json.name("output_tokens_details").begin_object();
    json.member("thinking_tokens", usage.reasoning_tokens).end_object();
    json.null_member("server_tool_use");
    if (is_message) {
      json.null_member("cache_creation").null_member("inference_geo");
      json.member("service_tier", "standard");
    }
    json.end_object();
  }

  // A text block, and what a tool_use block begins with.
  static void write_text(JsonWriter& json, std::string_view text) {
    json.member("type", "text").member("text", text).null_member("citations");
  }
  void write_call_head(JsonWriter& json, const ToolCall& call) const {
    json.member("type", "tool_use").member("id", settings_.make_id("toolu_"));
    json.name("caller").begin_object().member("type", "direct").end_object();
    json.member("name", call.name);
  }

  AnswerOutput output_;
  const ApiSettings& settings_;
  std::vector<std::string> stop_sequences_;
  bool shows_thinking_;
  std::string_view stop_reason_;
  std::string stop_sequence_;
};

class AnthropicWholeFormat : public AnthropicFormat {
 public:
  using AnthropicFormat::AnthropicFormat;

  void on_start(const AnswerStart& start) override { head_ = begin_message(start); }

  void on_end(const AnswerUsage& usage) override {
    head_.name("content").begin_array();
    for (const AnswerPart& part : parts_) write_block(part);
    head_.end_array();
    write_stop(head_);
    write_usage(head_, usage, /*is_message=*/true);
    head_.end_object();
    output_.respond(200, head_.take());
  }

  void on_error(const ApiError& error) override {
    output_.respond(anthropic_error_response(error));
  }

 private:
  void add_part(const AnswerPart& part) override {
    const bool is_call = part.kind == AnswerPart::Kind::kToolCall;
    if (!is_call && !parts_.empty() && parts_.back().kind == part.kind) {
      parts_.back().text += part.text;
    } else {
      parts_.push_back(part);
    }
  }

  void write_block(const AnswerPart& part) {
    head_.begin_object();
    switch (part.kind) {
      case AnswerPart::Kind::kText: write_text(head_, part.text); break;
      case AnswerPart::Kind::kReasoning:
        head_.member("type", "thinking").member("thinking", part.text).member("signature", "");
        break;
      case AnswerPart::Kind::kToolCall:
        write_call_head(head_, part.call);
        head_.raw_member("input", part.call.arguments);
        break;
    }
    head_.end_object();
  }

  JsonWriter head_;
  std::vector<AnswerPart> parts_;  // neighbours of one kind joined
};

class AnthropicStreamFormat : public AnthropicFormat {
 public:
  using AnthropicFormat::AnthropicFormat;

  void on_start(const AnswerStart& start) override {
    output_.start_events("event: ping\ndata: {\"type\":\"ping\"}\n\n");
    JsonWriter message = begin_message(start);
    message.name("content").begin_array().end_array();
    write_stop(message);
    AnswerUsage usage;
    usage.prompt_tokens = start.prompt_tokens;
    write_usage(message, usage, /*is_message=*/true);
    message.end_object();
    JsonWriter json = begin_event("message_start");
    json.raw_member("message", message.str());
    send("message_start", std::move(json));
  }

  void on_end(const AnswerUsage& usage) override {
    end_block();
    JsonWriter json = begin_event("message_delta");
    json.name("delta").begin_object();
    write_stop(json);
    json.end_object();
    write_usage(json, usage, /*is_message=*/false);
    send("message_delta", std::move(json));
    send("message_stop", begin_event("message_stop"));
    output_.finish();
  }

  void on_error(const ApiError& error) override {
    if (!output_.has_started()) return output_.respond(anthropic_error_response(error));
    output_.event("error", anthropic_error_body(error));
    output_.finish();
  }

 private:
  void add_part(const AnswerPart& part) override {
    const bool is_call = part.kind == AnswerPart::Kind::kToolCall;
    if (!is_open_ || is_call || part.kind != kind_) begin_block(part);
    JsonWriter json = begin_event("content_block_delta");
    json.member("index", index_).name("delta").begin_object();
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        json.member("type", "text_delta").member("text", part.text);
        break;
      case AnswerPart::Kind::kReasoning:
        json.member("type", "thinking_delta").member("thinking", part.text);
        break;
      case AnswerPart::Kind::kToolCall:
        json.member("type", "input_json_delta").member("partial_json", part.call.arguments);
        break;
    }
    json.end_object();
    send("content_block_delta", std::move(json));
  }

  void begin_block(const AnswerPart& part) {
    end_block();
    is_open_ = true;
    kind_ = part.kind;
    JsonWriter json = begin_event("content_block_start");
    json.member("index", index_).name("content_block").begin_object();
    switch (part.kind) {
      case AnswerPart::Kind::kText: write_text(json, ""); break;
      case AnswerPart::Kind::kReasoning:
        json.member("type", "thinking").member("thinking", "").member("signature", "");
        break;
      case AnswerPart::Kind::kToolCall:
        write_call_head(json, part.call);
        json.raw_member("input", "{}");
        break;
    }
    json.end_object();
    send("content_block_start", std::move(json));
  }

  void end_block() {
    if (!is_open_) return;
    JsonWriter json = begin_event("content_block_stop");
    json.member("index", index_++);
    send("content_block_stop", std::move(json));
    is_open_ = false;
  }

  // Leaves the object open.
  static JsonWriter begin_event(std::string_view type) {
    JsonWriter json;
    json.begin_object().member("type", type);
    return json;
  }
  void send(std::string_view type, JsonWriter json) {
    json.end_object();
    output_.event(type, json.str());
  }

  bool is_open_ = false;
  AnswerPart::Kind kind_ = AnswerPart::Kind::kText;  // of the block that is open
  int index_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_anthropic_format(const AnthropicCall& call, AnswerOutput output,
                                                    const ApiSettings& settings) {
  if (call.call.stream) {
    return std::make_unique<AnthropicStreamFormat>(call, std::move(output), settings);
  }
  return std::make_unique<AnthropicWholeFormat>(call, std::move(output), settings);
}

}  // namespace qsf_tools
