// SPDX-License-Identifier: MIT
//
// Reads bodies of /v1/responses.

#include "tools/serve/api/openai_responses.h"

#include <utility>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/call_fields.h"
#include "tools/serve/api/chat_job.h"
#include "tools/serve/api/input_tokens.h"
#include "tools/serve/api/message_fields.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

JsonValue string_value(std::string_view text) {
  return JsonValue(std::string(text));
}

// Returns the member if it is a string, else "".
std::string text_member(const JsonValue& object, std::string_view name) {
  const JsonValue* member = object.member(name);
  return member == nullptr || member->text() == nullptr ? std::string() : *member->text();
}

// Makes the messages of a chat from input items. Calls and reasoning belong to the message of the
// assistant that they stand beside.
class ItemReader {
 public:
  explicit ItemReader(FieldReport& report) : report_(report) {}

  void read(const JsonValue& item, std::size_t index) {
    const std::string path = "input[" + std::to_string(index) + "]";
    const JsonValue* type = item.member("type");
    const std::string name = type == nullptr ? "message" : text_member(item, "type");
    if (item.object() == nullptr || name == "message") {
      read_message(item);
    } else if (name == "function_call") {
      read_call(item);
    } else if (name == "function_call_output") {
      JsonValue result{JsonObject()};
      result.set("role", string_value("tool"));
      result.set("tool_call_id", string_value(text_member(item, "call_id")));
      const JsonValue* output = item.member("output");
      result.set("content", output == nullptr ? JsonValue() : *output);
      add(std::move(result));
    } else if (name == "reasoning") {
      read_reasoning(item);
    } else if (!report_.error) {
      report_.error = invalid_field(
          path + ".type", "'" + path + "' is a '" + name.substr(0, 64) +
                              "', expected 'message', 'function_call', 'function_call_output' or "
                              "'reasoning'");
    }
  }

  JsonValue take() { return JsonValue(std::move(messages_)); }

 private:
  void add(JsonValue message) { messages_.push_back(std::move(message)); }

  void read_message(const JsonValue& item) {
    const bool follows_reasoning = !messages_.empty() && is_open_ &&
                                   text_member(item, "role") == "assistant" &&
                                   messages_.back().member("content") == nullptr;
    if (follows_reasoning) {
      const JsonValue* content = item.member("content");
      messages_.back().set("content", content == nullptr ? JsonValue() : *content);
      return;
    }
    is_open_ = text_member(item, "role") == "assistant";
    JsonValue message = item;
    if (item.object() != nullptr) drop_item_members(message);
    add(std::move(message));
  }

  // What an item has beside a message: type, id, status.
  static void drop_item_members(JsonValue& message) {
    JsonObject kept;
    for (JsonMember& member : *message.object()) {
      if (member.name == "role" || member.name == "content") kept.push_back(std::move(member));
    }
    message = JsonValue(std::move(kept));
  }

  // Returns the message of the assistant that goes on, or a new one.
  JsonValue& open_assistant() {
    if (!is_open_) {
      JsonValue message{JsonObject()};
      message.set("role", string_value("assistant"));
      add(std::move(message));
      is_open_ = true;
    }
    return messages_.back();
  }

  void read_call(const JsonValue& item) {
    JsonValue function{JsonObject()};
    const JsonValue* name = item.member("name");
    function.set("name", name == nullptr ? JsonValue() : *name);
    function.set("arguments", string_value(text_member(item, "arguments")));
    JsonValue call{JsonObject()};
    call.set("id", string_value(text_member(item, "call_id")));
    call.set("type", string_value("function"));
    call.set("function", std::move(function));
    JsonValue& message = open_assistant();
    const JsonValue* calls = message.member("tool_calls");
    JsonArray all = calls == nullptr ? JsonArray() : *calls->array();
    all.push_back(std::move(call));
    message.set("tool_calls", JsonValue(std::move(all)));
  }

  void read_reasoning(const JsonValue& item) {
    std::string text;
    for (const std::string_view list : {"content", "summary"}) {
      const JsonValue* parts = item.member(list);
      if (!text.empty() || parts == nullptr || parts->array() == nullptr) continue;
      for (const JsonValue& part : *parts->array()) text += text_member(part, "text");
    }
    // Without a text (encrypted, or empty) there is nothing to repeat.
    if (text.empty()) return;
    is_open_ = false;
    open_assistant().set("reasoning_content", JsonValue(std::move(text)));
  }

  FieldReport& report_;
  JsonArray messages_;
  bool is_open_ = false;  // the last message is an assistant's that may go on
};

void read_input(FieldReader& fields, FieldReport& report, ResponsesCall& response) {
  JsonArray messages;
  const JsonValue* instructions = fields.find("instructions");
  std::optional<std::string> system;
  fields.read_text("instructions", system);
  if (system && instructions != nullptr) {
    response.instructions = instructions->to_text();
    JsonValue message{JsonObject()};
    message.set("role", string_value("system"));
    message.set("content", JsonValue(*system));
    messages.push_back(std::move(message));
  }
  const JsonValue* input = fields.find("input");
  JsonValue items{JsonArray()};
  if (input == nullptr) {
    fields.fail("input", "'input' is missing, expected a string or an array of items");
  } else if (input->text() != nullptr) {
    JsonValue message{JsonObject()};
    message.set("role", string_value("user"));
    message.set("content", *input);
    items.array()->push_back(std::move(message));
  } else if (const JsonArray* array = fields.read_array("input")) {
    ItemReader reader(report);
    for (std::size_t i = 0; i < array->size(); ++i) reader.read((*array)[i], i);
    items = reader.take();
  }
  if (!report.error) normalize_messages(items, "input", report);
  if (report.error) return;
  for (JsonValue& message : *items.array()) messages.push_back(std::move(message));
  response.call.messages = JsonValue(std::move(messages)).to_text();
}

// Puts tools of the flat form {type, name, parameters} into that of a chat, and repeats them.
void nest_tools(JsonValue& body, ResponsesCall& response) {
  const JsonValue* tools = body.member("tools");
  if (tools == nullptr || tools->array() == nullptr) return;
  JsonArray nested;
  JsonArray repeated;
  for (const JsonValue& tool : *tools->array()) {
    if (text_member(tool, "type") != "function") {
      nested.push_back(tool);
      continue;
    }
    JsonValue flat{JsonObject()};
    flat.set("type", string_value("function"));
    JsonValue function{JsonObject()};
    for (const std::string_view name : {"name", "description", "parameters", "strict"}) {
      const JsonValue* member = tool.member(name);
      if (member != nullptr) function.set(name, *member);
      if (member != nullptr || name != "description") {
        flat.set(name, member == nullptr ? JsonValue() : *member);
      }
    }
    if (flat.member("strict")->is_null()) flat.set("strict", JsonValue(false));
    JsonValue wrapped{JsonObject()};
    wrapped.set("type", string_value("function"));
    wrapped.set("function", std::move(function));
    nested.push_back(std::move(wrapped));
    repeated.push_back(std::move(flat));
  }
  response.tools = JsonValue(std::move(repeated)).to_text();
  body.set("tools", JsonValue(std::move(nested)));
}

void read_text_options(FieldReader& fields, FieldReport& report, ResponsesCall& response) {
  const JsonValue* value = fields.read_object("text");
  if (value == nullptr) return;
  FieldReader text(*value, "text", report);
  if (const JsonValue* format = text.find("format")) response.format = format->to_text();
  read_format(text, "format", report, response.call.text.constraint);
  std::size_t verbosity = 0;
  text.read_word("verbosity", {"medium"}, verbosity);
}

void read_reasoning(FieldReader& fields, FieldReport& report, ResponsesCall& response) {
  const JsonValue* value = fields.read_object("reasoning");
  if (value == nullptr) return;
  FieldReader reasoning(*value, "reasoning", report);
  reasoning.accept({"summary", "generate_summary"});
  std::string effort;
  reasoning.read("effort", effort);
  if (effort.empty()) return;
  response.effort = string_value(effort).to_text();
  // As a chat has it.
  JsonValue chat{JsonObject()};
  chat.set("reasoning_effort", JsonValue(effort));
  FieldReader chat_fields(chat, "", report);
  read_template_variables(chat_fields, response.call);
}

void read_include(FieldReader& fields, TextRequest& text) {
  fields.read("top_logprobs", text.n_top_log_probs, 0, kMaxChatTopLogProbs);
  const JsonArray* include = fields.read_array("include");
  if (include == nullptr) return;
  for (const JsonValue& item : *include) {
    const std::string* name = item.text();
    if (name == nullptr) return fields.fail("include", "'include' is not an array of strings");
    if (*name == "message.output_text.logprobs") text.log_probs = true;
  }
}

// What would need stored state, and what is not built.
void refuse_stored_state(FieldReader& fields) {
  constexpr std::string_view kNoState = "answers are not stored; send the whole conversation";
  fields.not_built("previous_response_id", kNeutralEmpty, kNoState);
  fields.not_built("conversation", kNeutralEmpty, kNoState);
  fields.not_built("prompt", kNeutralEmpty, "prompts are not stored");
  fields.not_built("background", kNeutralFalse);
  fields.not_built("context_management", kNeutralEmpty);
  fields.not_built("max_tool_calls", kNeutralNull);
  std::size_t word = 0;
  fields.read_word("truncation", {"disabled"}, word);
}

}  // namespace

ResponsesCall read_responses(JsonValue body, const ApiSettings& settings, FieldReport& report) {
  ResponsesCall response;
  ChatCall& call = response.call;
  nest_tools(body, response);
  FieldReader fields(body, "", report);
  fields.read("model", call.model);
  fields.read("cache_salt", call.cache_salt);
  read_input(fields, report, response);
  call.tools = read_tools(fields, report, call.tool_use);
  if (const JsonValue* choice = fields.find("tool_choice"))
    response.tool_choice = choice->to_text();
  if (const JsonValue* metadata = fields.find("metadata")) response.metadata = metadata->to_text();
  read_reasoning(fields, report, response);
  read_max_tokens(fields, "max_output_tokens", call.text.max_tokens);
  read_sampling(fields, settings, call);
  read_stop(fields, "stop", settings, call.text);
  read_text_options(fields, report, response);
  read_constraint(fields, report, call.text.constraint);
  read_include(fields, call.text);
  fields.read("stream", call.stream);
  refuse_stored_state(fields);
  accept_without_effect(fields);
  fields.accept({"stream_options"});
  fields.finish(settings.strict_fields);
  return response;
}

std::shared_ptr<ServeJob> handle_responses(const ApiRequest& request) {
  FieldReport report;
  ResponsesCall response;
  if (std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    response = read_responses(std::move(*body), *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  std::unique_ptr<AnswerFormat> format = make_responses_format(
      response, AnswerOutput(request.exchange, report.ignored), *request.settings);
  return make_chat_job(std::move(response.call), std::move(format), request.exchange,
                       request.tenant, *request.settings);
}

std::shared_ptr<ServeJob> handle_responses_input_tokens(const ApiRequest& request) {
  FieldReport report;
  ResponsesCall response;
  if (std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    response = read_responses(std::move(*body), *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  return make_input_tokens_job(std::move(response.call), report.ignored, request,
                               &input_tokens_body, &openai_error_response);
}

}  // namespace qsf_tools
