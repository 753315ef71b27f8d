// SPDX-License-Identifier: MIT
//
// Writes answers as /v1/responses has them. The stream tells each item from its start to its end,
// every event with the next sequence_number; clients show an empty answer where one is missing.

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/openai_common.h"
#include "tools/serve/api/openai_responses.h"

namespace qsf_tools {

namespace {

class ResponsesFormat : public AnswerFormat {
 public:
  ResponsesFormat(const ResponsesCall& call, AnswerOutput output, const ApiSettings& settings)
      : output_(std::move(output)), settings_(settings), about_(call) {
    about_.call = ChatCall();
    about_.call.text = call.call.text;
    about_.call.stream = call.call.stream;
    about_.call.tool_use.parallel = call.call.tool_use.parallel;
  }

  void on_start(const AnswerStart& start) override {
    id_ = settings_.make_id("resp_");
    created_ = settings_.now_seconds();
    model_ = start.model_name;
    if (!about_.call.stream) return;
    output_.start_events();
    for (const char* type : {"response.created", "response.in_progress"}) {
      JsonWriter json = begin_event(type);
      json.name("response");
      write_response(json, nullptr, nullptr);
      send(type, std::move(json));
    }
  }

  void on_part(std::size_t /*choice*/, const AnswerPart& part,
               std::span<const AnswerToken> tokens) override {
    if (part.kind == AnswerPart::Kind::kToolCall) {
      close_item();
      return add_call(part.call);
    }
    if (!is_open_ || items_.back().kind != part.kind) {
      close_item();
      open_text_item(part.kind);
    }
    Item& item = items_.back();
    item.text += part.text;
    JsonWriter log_probs;
    for (const AnswerToken& token : tokens) {
      write_chat_log_prob(item.log_probs, token);
      write_chat_log_prob(log_probs, token);
    }
    if (!about_.call.stream) return;
    JsonWriter json = begin_item_event(delta_type(item), true);
    json.member("delta", part.text);
    if (item.kind == AnswerPart::Kind::kText) {
      json.raw_member("logprobs", "[" + log_probs.str() + "]");
    }
    send(delta_type(item), std::move(json));
  }

  void on_choice_end(std::size_t /*choice*/, const ChoiceEnd& end) override {
    is_cut_ = end.result.end == TextEnd::kLength;
    // An answer without text is an empty message.
    if (items_.empty()) open_text_item(AnswerPart::Kind::kText);
    close_item();
  }

  void on_end(const AnswerUsage& usage) override {
    if (!about_.call.stream) {
      JsonWriter json;
      write_response(json, &usage, nullptr);
      return output_.respond(200, json.take());
    }
    const char* type = is_cut_ ? "response.incomplete" : "response.completed";
    JsonWriter json = begin_event(type);
    json.name("response");
    write_response(json, &usage, nullptr);
    send(type, std::move(json));
    output_.finish();
  }

  void on_error(const ApiError& error) override {
    if (!output_.has_started()) return output_.respond(openai_error_response(error));
    is_cut_ = is_open_;
    constexpr const char* kType = "response.failed";
    JsonWriter json = begin_event(kType);
    json.name("response");
    write_response(json, nullptr, &error);
    send(kType, std::move(json));
    output_.finish();
  }

 private:
  using Kind = AnswerPart::Kind;

  struct Item {
    Kind kind = Kind::kText;
    std::string id;
    std::string call_id;
    ToolCall call;
    std::string text;
    JsonWriter log_probs;  // entries, between commas
  };

  static const char* delta_type(const Item& item) {
    return item.kind == Kind::kText ? "response.output_text.delta"
                                    : "response.reasoning_text.delta";
  }

  void open_text_item(Kind kind) {
    Item& item = items_.emplace_back();
    item.kind = kind;
    item.id = settings_.make_id(kind == Kind::kText ? "msg_" : "rs_");
    is_open_ = true;
    if (!about_.call.stream) return;
    send_item("response.output_item.added", false);
    JsonWriter json = begin_item_event("response.content_part.added", true);
    json.name("part");
    write_part(json, item);
    send("response.content_part.added", std::move(json));
  }

  void close_item() {
    if (!is_open_) return;
    is_open_ = false;
    if (!about_.call.stream) return;
    const Item& item = items_.back();
    const bool is_text = item.kind == Kind::kText;
    const char* done = is_text ? "response.output_text.done" : "response.reasoning_text.done";
    JsonWriter json = begin_item_event(done, true);
    json.member("text", item.text);
    if (is_text) json.raw_member("logprobs", "[" + item.log_probs.str() + "]");
    send(done, std::move(json));
    json = begin_item_event("response.content_part.done", true);
    json.name("part");
    write_part(json, item);
    send("response.content_part.done", std::move(json));
    send_item("response.output_item.done", true);
  }

  void add_call(const ToolCall& call) {
    Item& item = items_.emplace_back();
    item.kind = Kind::kToolCall;
    item.id = settings_.make_id("fc_");
    item.call_id = settings_.make_id("call_");
    item.call.name = call.name;
    if (about_.call.stream) send_item("response.output_item.added", false);
    item.call.arguments = call.arguments;
    if (!about_.call.stream) return;
    JsonWriter json = begin_item_event("response.function_call_arguments.delta", false);
    json.member("delta", call.arguments);
    send("response.function_call_arguments.delta", std::move(json));
    json = begin_item_event("response.function_call_arguments.done", false);
    json.member("name", call.name).member("arguments", call.arguments);
    send("response.function_call_arguments.done", std::move(json));
    send_item("response.output_item.done", true);
  }

  // Leaves the object open.
  JsonWriter begin_event(const char* type) {
    JsonWriter json;
    json.begin_object().member("type", type).member("sequence_number", n_events_++);
    return json;
  }

  // An event about the last item.
  JsonWriter begin_item_event(const char* type, bool has_content) {
    JsonWriter json = begin_event(type);
    json.member("item_id", items_.back().id).member("output_index", items_.size() - 1);
    if (has_content) json.member("content_index", 0);
    return json;
  }

  void send_item(const char* type, bool is_done) {
    JsonWriter json = begin_event(type);
    json.member("output_index", items_.size() - 1).name("item");
    write_item(json, items_.back(), is_done);
    send(type, std::move(json));
  }

  void send(const char* type, JsonWriter json) {
    json.end_object();
    output_.event(type, json.str());
  }

  static void write_part(JsonWriter& json, const Item& item) {
    json.begin_object();
    if (item.kind == Kind::kReasoning) {
      json.member("type", "reasoning_text").member("text", item.text);
    } else {
      json.member("type", "output_text").member("text", item.text);
      json.name("annotations").begin_array().end_array();
      json.raw_member("logprobs", "[" + item.log_probs.str() + "]");
    }
    json.end_object();
  }

  // An item that is not done has no content yet.
  void write_item(JsonWriter& json, const Item& item, bool is_done) const {
    json.begin_object().member("id", item.id);
    const bool is_cut = is_cut_ && &item == &items_.back() && item.kind != Kind::kToolCall;
    const char* status = !is_done ? "in_progress" : is_cut ? "incomplete" : "completed";
    switch (item.kind) {
      case Kind::kText:
        json.member("type", "message").member("status", status).member("role", "assistant");
        break;
      case Kind::kReasoning:
        json.member("type", "reasoning").member("status", status);
        json.name("summary").begin_array().end_array();
        break;
      case Kind::kToolCall:
        json.member("type", "function_call").member("status", status);
        json.member("call_id", item.call_id).member("name", item.call.name);
        json.member("arguments", item.call.arguments).end_object();
        return;
    }
    json.name("content").begin_array();
    if (is_done) write_part(json, item);
    json.end_array().end_object();
  }

  static void write_usage_of(JsonWriter& json, const AnswerUsage& usage) {
    json.begin_object().member("input_tokens", usage.prompt_tokens);
    json.name("input_tokens_details").begin_object();
    json.member("cached_tokens", usage.cached_tokens).member("cache_write_tokens", 0).end_object();
    json.member("output_tokens", usage.generated_tokens);
    json.name("output_tokens_details").begin_object();
    json.member("reasoning_tokens", usage.reasoning_tokens).end_object();
    json.member("total_tokens", usage.prompt_tokens + usage.generated_tokens).end_object();
  }

  // `usage` null: the answer is not complete.
  void write_response(JsonWriter& json, const AnswerUsage* usage, const ApiError* error) const {
    const char* status = error != nullptr   ? "failed"
                         : usage == nullptr ? "in_progress"
                         : is_cut_          ? "incomplete"
                                            : "completed";
    json.begin_object().member("id", id_).member("object", "response");
    json.member("created_at", created_).member("status", status).member("background", false);
    if (error != nullptr) {
      const char* const code = error->status < 500 ? "invalid_prompt" : "server_error";
      json.name("error").begin_object().member("code", code);
      json.member("message", error->message).end_object();
    } else {
      json.null_member("error");
    }
    if (usage != nullptr && is_cut_) {
      json.name("incomplete_details").begin_object();
      json.member("reason", "max_output_tokens").end_object();
    } else {
      json.null_member("incomplete_details");
    }
    json.raw_member("instructions", about_.instructions);
    json.name("max_output_tokens");
    const int max_tokens = about_.call.text.max_tokens;
    max_tokens < 0 ? json.null() : json.integer(max_tokens);
    json.member("model", model_).name("output").begin_array();
    if (usage != nullptr || error != nullptr) {
      for (const Item& item : items_) write_item(json, item, true);
    }
    json.end_array().member("parallel_tool_calls", about_.call.tool_use.parallel);
    json.null_member("previous_response_id");
    json.name("reasoning").begin_object().raw_member("effort", about_.effort);
    json.null_member("summary").end_object();
    json.member("service_tier", "default").member("store", false);
    json.member("temperature", about_.call.text.sampling.temperature);
    json.name("text").begin_object().raw_member("format", about_.format).end_object();
    json.raw_member("tool_choice", about_.tool_choice).raw_member("tools", about_.tools);
    json.member("top_logprobs", about_.call.text.n_top_log_probs);
    json.member("top_p", about_.call.text.sampling.top_p).member("truncation", "disabled");
    // Never null: OpenAI's document has no null for it.
    if (usage != nullptr) write_usage_of(json.name("usage"), *usage);
    json.raw_member("metadata", about_.metadata).end_object();
  }

  AnswerOutput output_;
  const ApiSettings& settings_;
  ResponsesCall about_;  // what a response repeats; of the call, limits and sampling alone
  std::string id_;
  std::int64_t created_ = 0;
  std::string model_;
  std::vector<Item> items_;
  bool is_open_ = false;  // the last item is text that goes on
  bool is_cut_ = false;
  std::int64_t n_events_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_responses_format(const ResponsesCall& call, AnswerOutput output,
                                                    const ApiSettings& settings) {
  return std::make_unique<ResponsesFormat>(call, std::move(output), settings);
}

}  // namespace qsf_tools
