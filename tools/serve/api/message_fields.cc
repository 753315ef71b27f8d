// SPDX-License-Identifier: MIT
#include "tools/serve/api/message_fields.h"

#include <algorithm>
#include <array>

#include "tools/serve/api/api_error.h"

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxTools = 512;
constexpr std::size_t kMaxToolNameBytes = 256;

std::string at_index(std::string_view array, std::size_t index) {
  return std::string(array) + "[" + std::to_string(index) + "]";
}

void fail(FieldReport& report, std::string param, std::string message) {
  if (!report.error) report.error = invalid_field(std::move(param), std::move(message));
}

// What a content part that is no text is called; empty for a type that nobody knows.
std::string_view media_name(std::string_view type) {
  if (type == "image_url" || type == "input_image" || type == "image") return "an image";
  if (type == "input_audio" || type == "audio" || type == "audio_url") return "audio";
  if (type == "file" || type == "input_file" || type == "document") return "a file";
  if (type == "video_url" || type == "input_video" || type == "video") return "a video";
  return {};
}

// Appends the text of a content part.
void append_part(const JsonValue& part, const std::string& path, std::string& text,
                 FieldReport& report) {
  const JsonValue* type = part.member("type");
  if (type == nullptr || type->text() == nullptr) {
    return fail(report, path,
                "'" + path + "' is " + part.type_name() + ", expected an object with a type");
  }
  const std::string& name = *type->text();
  const bool is_text = name == "text" || name == "input_text" || name == "output_text";
  if (!is_text && name != "refusal") {
    const std::string_view media = media_name(name);
    if (media.empty()) {
      return fail(
          report, path + ".type",
          "'" + path + "' has the unknown type '" + name.substr(0, 64) + "', expected 'text'");
    }
    return fail(
        report, path,
        "'" + path + "' is " + std::string(media) + ": the model was imported for text alone");
  }
  const std::string_view field = is_text ? "text" : "refusal";
  const JsonValue* value = part.member(field);
  if (value == nullptr || value->text() == nullptr) {
    const std::string param = path + "." + std::string(field);
    return fail(report, param, "'" + param + "' is missing or no string");
  }
  text += *value->text();
}

void normalize_content(JsonValue& message, const std::string& path, bool may_be_null,
                       FieldReport& report) {
  const std::string param = path + ".content";
  const JsonValue* content = message.member("content");
  if (content == nullptr || content->is_null()) {
    if (!may_be_null) fail(report, param, "'" + param + "' is missing, expected a string");
    return;
  }
  if (content->text() != nullptr) return;
  const JsonArray* parts = content->array();
  if (parts == nullptr) {
    return fail(
        report, param,
        "'" + param + "' is " + content->type_name() + ", expected a string or an array of parts");
  }
  std::string text;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    if (i != 0) text += '\n';
    append_part((*parts)[i], at_index(param, i), text, report);
  }
  message.set("content", JsonValue(std::move(text)));
}

void check_calls(const JsonValue& message, const std::string& path, FieldReport& report) {
  const JsonValue* calls = message.member("tool_calls");
  if (calls == nullptr || calls->is_null()) return;
  const std::string param = path + ".tool_calls";
  if (calls->array() == nullptr) {
    return fail(report, param, "'" + param + "' is " + calls->type_name() + ", expected an array");
  }
  for (std::size_t i = 0; i < calls->array()->size(); ++i) {
    const JsonValue* function = (*calls->array())[i].member("function");
    const JsonValue* name = function == nullptr ? nullptr : function->member("name");
    if (name != nullptr && name->text() != nullptr) continue;
    const std::string call = at_index(param, i);
    return fail(report, call + ".function.name",
                "'" + call + "' is no call of a function with a name");
  }
}

void normalize_message(JsonValue& message, const std::string& path, FieldReport& report) {
  static constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                             "assistant", "tool",      "function"};
  if (message.object() == nullptr) {
    return fail(report, path, "'" + path + "' is " + message.type_name() + ", expected an object");
  }
  const JsonValue* role = message.member("role");
  const std::string* name = role == nullptr ? nullptr : role->text();
  if (name == nullptr || std::find(kRoles.begin(), kRoles.end(), *name) == kRoles.end()) {
    const std::string got = role == nullptr ? "missing" : role->to_text().substr(0, 64);
    return fail(report, path + ".role",
                "'" + path + ".role' is " + got +
                    ", expected 'system', 'developer', 'user', 'assistant' or 'tool'");
  }
  const bool is_assistant = *name == "assistant";
  normalize_content(message, path, is_assistant, report);
  if (is_assistant) check_calls(message, path, report);
  if (*name == "function") message.set("role", JsonValue(std::string("tool")));
}

// Reads one entry of `tools` into `use`.
void read_tool(const JsonValue& tool, const std::string& path, ToolUse& use, FieldReport& report) {
  const JsonValue* type = tool.member("type");
  if (type == nullptr || type->text() == nullptr || *type->text() != "function") {
    const std::string got = type == nullptr ? "missing" : type->to_text().substr(0, 64);
    return fail(
        report, path + ".type",
        "'" + path + ".type' is " + got + ", expected 'function': no other tools are supported");
  }
  const JsonValue* function = tool.member("function");
  const JsonValue* name = function == nullptr ? nullptr : function->member("name");
  if (name == nullptr || name->text() == nullptr || name->text()->empty() ||
      name->text()->size() > kMaxToolNameBytes) {
    return fail(report, path + ".function.name",
                "'" + path + ".function.name' is missing, empty, too long or no string");
  }
  const auto has_name = [name](const ToolDefinition& other) { return other.name == *name->text(); };
  if (std::any_of(use.tools.begin(), use.tools.end(), has_name)) {
    return fail(report, path + ".function.name",
                "'" + path + ".function.name' is '" + *name->text() + "', as that of another tool");
  }
  ToolDefinition definition;
  definition.name = *name->text();
  const JsonValue* parameters = function->member("parameters");
  if (parameters != nullptr && !parameters->is_null()) {
    if (parameters->object() == nullptr) {
      const std::string param = path + ".function.parameters";
      return fail(
          report, param,
          "'" + param + "' is " + parameters->type_name() + ", expected a JSON Schema, an object");
    }
    definition.parameters = parameters->to_text();
  }
  use.tools.push_back(std::move(definition));
}

// Returns the name in {"type": "function", "function": {"name": ...}}, or in the shorter form of
// /v1/responses {"type": "function", "name": ...}; null where it is neither.
const std::string* chosen_name(const JsonValue& choice) {
  const JsonValue* type = choice.member("type");
  if (type == nullptr || type->text() == nullptr || *type->text() != "function") return nullptr;
  const JsonValue* function = choice.member("function");
  const JsonValue* name = (function == nullptr ? choice : *function).member("name");
  return name == nullptr ? nullptr : name->text();
}

void read_tool_choice(FieldReader& fields, ToolUse& use) {
  constexpr std::string_view kField = "tool_choice";
  const JsonValue* choice = fields.find(kField);
  if (choice == nullptr) return;
  if (choice->object() == nullptr) {
    std::size_t word = 1;
    fields.read_word(kField, {"none", "auto", "required"}, word);
    use.choice = std::array{ToolChoice::kNone, ToolChoice::kAuto, ToolChoice::kRequired}[word];
  } else if (const std::string* name = chosen_name(*choice)) {
    use.choice = ToolChoice::kNamed;
    use.named = *name;
    const auto has_name = [name](const ToolDefinition& tool) { return tool.name == *name; };
    if (std::none_of(use.tools.begin(), use.tools.end(), has_name)) {
      fields.fail(kField,
                  "'tool_choice' names '" + name->substr(0, 64) + "', which is none of 'tools'");
    }
  } else {
    fields.fail(kField, "'tool_choice' is an object that names no function");
  }
  if (use.choice == ToolChoice::kRequired && use.tools.empty()) {
    fields.fail(kField, "'tool_choice' is 'required', but there are no 'tools'");
  }
}

}  // namespace

void normalize_messages(JsonValue& messages, const std::string& path, FieldReport& report) {
  JsonArray* items = messages.array();
  if (items == nullptr) {
    return fail(report, path,
                "'" + path + "' is " + messages.type_name() + ", expected an array of messages");
  }
  if (items->empty()) fail(report, path, "'" + path + "' is empty, expected at least one message");
  for (std::size_t i = 0; i < items->size() && !report.error; ++i) {
    normalize_message((*items)[i], at_index(path, i), report);
  }
}

std::string read_tools(FieldReader& fields, FieldReport& report, ToolUse& use) {
  std::string text;
  const JsonArray* tools = fields.read_array("tools");
  if (tools != nullptr && tools->size() > kMaxTools) {
    fields.fail("tools", "'tools' has " + std::to_string(tools->size()) +
                             " entries, expected at most " + std::to_string(kMaxTools));
  } else if (tools != nullptr && !tools->empty()) {
    for (std::size_t i = 0; i < tools->size(); ++i) {
      read_tool((*tools)[i], fields.full_name(at_index("tools", i)), use, report);
    }
    text = JsonValue(*tools).to_text();
  }
  read_tool_choice(fields, use);
  fields.read("parallel_tool_calls", use.parallel);
  return report.error ? std::string() : text;
}

}  // namespace qsf_tools
