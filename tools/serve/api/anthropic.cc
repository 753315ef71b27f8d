// SPDX-License-Identifier: MIT
//
// Reads bodies of /v1/messages: Anthropic's messages are lists of blocks, of which calls and their
// results become fields and messages of their own.

#include "tools/serve/api/anthropic.h"

#include <climits>
#include <utility>

#include "tools/serve/api/call_fields.h"
#include "tools/serve/api/chat_job.h"
#include "tools/serve/api/input_tokens.h"
#include "tools/serve/api/interface_request.h"
#include "tools/serve/api/json_writer.h"

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxAnthropicTools = 512;
constexpr std::size_t kMaxShownBytes = 64;

std::string quoted_path(std::string_view path) {
  return "'" + std::string(path) + "'";
}

JsonValue message_of(std::string_view role, std::string content) {
  JsonValue message{JsonObject()};
  message.set("role", JsonValue(std::string(role)));
  message.set("content", JsonValue(std::move(content)));
  return message;
}

// Converts one conversation.
class MessageReader {
 public:
  explicit MessageReader(FieldReport& report) : report_(report) {}

  void add_system(const JsonValue& system) {
    std::string text = text_of(system, "system");
    if (!text.empty()) messages_.push_back(message_of("system", std::move(text)));
  }

  void add(const JsonValue& message, const std::string& path) {
    const std::string* role = text_member(message, "role", path);
    if (role == nullptr) return;
    const JsonValue* content = message.member("content");
    if (content == nullptr || (content->text() == nullptr && content->array() == nullptr)) {
      return fail(path + ".content",
                  quoted_path(path + ".content") + " is missing, or no string or array of blocks");
    }
    if (*role == "user") {
      add_user(*content, path + ".content");
    } else if (*role == "assistant") {
      add_assistant(*content, path + ".content");
    } else {
      fail(path + ".role", quoted_path(path + ".role") + " is '" + role->substr(0, kMaxShownBytes) +
                               "', expected 'user' or 'assistant'");
    }
  }

  // Whether the conversation ends with words of the assistant, which the answer goes on with.
  bool ends_with_answer() const {
    if (messages_.empty()) return false;
    const JsonValue* role = messages_.back().member("role");
    return *role->text() == "assistant" && messages_.back().member("tool_calls") == nullptr;
  }
  JsonArray take() { return std::move(messages_); }

 private:
  void fail(std::string param, std::string message) {
    report_invalid(report_, std::move(param), std::move(message));
  }

  const std::string* text_member(const JsonValue& object, std::string_view name,
                                 const std::string& path) {
    const JsonValue* value = object.member(name);
    if (value != nullptr && value->text() != nullptr) return value->text();
    const std::string param = path + "." + std::string(name);
    fail(param, quoted_path(param) + " is missing or no string");
    return nullptr;
  }

  void refuse_block(const std::string& type, const std::string& path) {
    if (type == "image" || type == "document" || type == "file") {
      const std::string what = type == "image" ? "an image" : "a " + type;
      return fail(path,
                  quoted_path(path) + " is " + what + ": the model was imported for text alone");
    }
    fail(path + ".type", quoted_path(path + ".type") + " is '" + type.substr(0, kMaxShownBytes) +
                             "', which is not supported here");
  }

  // A string, or the text of blocks, each on lines of its own.
  std::string text_of(const JsonValue& content, const std::string& path) {
    if (content.text() != nullptr) return *content.text();
    std::string text;
    if (content.array() == nullptr) {
      fail(path, quoted_path(path) + " is " + content.type_name() +
                     ", expected a string or an array of blocks");
      return text;
    }
    for (std::size_t i = 0; i < content.array()->size(); ++i) {
      const std::string block_path = indexed_path(path, i);
      const JsonValue& block = (*content.array())[i];
      const std::string* type = text_member(block, "type", block_path);
      if (type == nullptr) return text;
      if (*type != "text") {
        refuse_block(*type, block_path);
        return text;
      }
      if (const std::string* words = text_member(block, "text", block_path)) add_line(text, *words);
    }
    return text;
  }

  static void add_line(std::string& text, std::string_view words) {
    if (!text.empty()) text += '\n';
    text += words;
  }

  // Results of calls become messages of the role tool, between the texts around them.
  void add_user(const JsonValue& content, const std::string& path) {
    if (content.text() != nullptr) {
      messages_.push_back(message_of("user", *content.text()));
      return;
    }
    std::string text;
    const auto flush = [&] {
      if (!text.empty()) messages_.push_back(message_of("user", std::exchange(text, {})));
    };
    for (std::size_t i = 0; i < content.array()->size(); ++i) {
      const std::string block_path = indexed_path(path, i);
      const JsonValue& block = (*content.array())[i];
      const std::string* type = text_member(block, "type", block_path);
      if (type == nullptr) return;
      if (*type == "text") {
        const std::string* words = text_member(block, "text", block_path);
        if (words != nullptr) add_line(text, *words);
      } else if (*type == "tool_result") {
        flush();
        add_result(block, block_path);
      } else {
        refuse_block(*type, block_path);
      }
    }
    flush();
  }

  void add_result(const JsonValue& block, const std::string& path) {
    const std::string* id = text_member(block, "tool_use_id", path);
    if (id == nullptr) return;
    const JsonValue* content = block.member("content");
    const bool has_content = content != nullptr && !content->is_null();
    JsonValue message =
        message_of("tool", has_content ? text_of(*content, path + ".content") : std::string());
    message.set("tool_call_id", JsonValue(*id));
    const JsonValue* name = name_of_call(*id);
    if (name != nullptr) message.set("name", *name);
    messages_.push_back(std::move(message));
  }

  // Returns the name of an earlier call, which some templates write beside its result.
  const JsonValue* name_of_call(const std::string& id) const {
    for (auto message = messages_.rbegin(); message != messages_.rend(); ++message) {
      const JsonValue* calls = message->member("tool_calls");
      if (calls == nullptr) continue;
      for (const JsonValue& call : *calls->array()) {
        if (*call.member("id")->text() == id) return call.member("function")->member("name");
      }
    }
    return nullptr;
  }

  void add_assistant(const JsonValue& content, const std::string& path) {
    std::string text;
    std::string thinking;
    JsonArray calls;
    if (content.text() != nullptr) {
      text = *content.text();
    } else {
      for (std::size_t i = 0; i < content.array()->size(); ++i) {
        read_answer_block((*content.array())[i], indexed_path(path, i), text, thinking, calls);
      }
    }
    JsonValue message = message_of("assistant", std::move(text));
    if (!thinking.empty()) message.set("reasoning_content", JsonValue(std::move(thinking)));
    if (!calls.empty()) message.set("tool_calls", JsonValue(std::move(calls)));
    messages_.push_back(std::move(message));
  }

  void read_answer_block(const JsonValue& block, const std::string& path, std::string& text,
                         std::string& thinking, JsonArray& calls) {
    const std::string* type = text_member(block, "type", path);
    if (type == nullptr || *type == "redacted_thinking") return;
    if (*type == "text") {
      if (const std::string* words = text_member(block, "text", path)) add_line(text, *words);
    } else if (*type == "thinking") {
      if (const std::string* words = text_member(block, "thinking", path)) {
        add_line(thinking, *words);
      }
    } else if (*type == "tool_use") {
      const std::string* id = text_member(block, "id", path);
      const std::string* name = text_member(block, "name", path);
      const JsonValue* input = block.member("input");
      if (id == nullptr || name == nullptr) return;
      if (input == nullptr || input->object() == nullptr) {
        return fail(path + ".input", quoted_path(path + ".input") + " is missing or no object");
      }
      calls.push_back(function_call(*id, *name, input->to_text()));
    } else {
      refuse_block(*type, path);
    }
  }

  FieldReport& report_;
  JsonArray messages_;
};

// Reads a tool of the client's own. Anthropic's (computers, web search) run on its servers.
void read_anthropic_tool(const JsonValue& value, const std::string& path, FieldReport& report,
                         ToolUse& use, JsonArray& tools) {
  FieldReader tool(value, path, report);
  if (value.object() == nullptr) return tool.fail("name", quoted_path(path) + " is no object");
  std::string type = "custom";
  std::string name;
  std::string description;
  tool.read("type", type);
  tool.read("name", name);
  tool.read("description", description);
  if (type != "custom") {
    return tool.fail("type", quoted_path(path + ".type") + " is '" +
                                 type.substr(0, kMaxShownBytes) +
                                 "': only tools of the client's own are supported, 'custom'");
  }
  if (name.empty() || name.size() > 256) {
    return tool.fail("name", quoted_path(path + ".name") + " is missing, empty or too long");
  }
  for (const ToolDefinition& other : use.tools) {
    if (other.name != name) continue;
    return tool.fail("name",
                     quoted_path(path + ".name") + " is '" + name + "', as of another tool");
  }
  const JsonValue* schema = tool.read_object("input_schema");
  if (schema == nullptr) {
    return tool.fail("input_schema", quoted_path(path + ".input_schema") + " is missing");
  }
  use.tools.push_back({.name = name, .parameters = schema->to_text()});
  tools.push_back(function_tool(std::move(name), std::move(description), *schema));
}

std::string read_anthropic_tools(FieldReader& fields, FieldReport& report, ToolUse& use) {
  JsonArray tools;
  if (const JsonArray* values = fields.read_array("tools")) {
    if (values->size() > kMaxAnthropicTools) {
      fields.fail("tools", "'tools' has " + std::to_string(values->size()) +
                               " entries, expected at most " + std::to_string(kMaxAnthropicTools));
      return {};
    }
    for (std::size_t i = 0; i < values->size() && fields.ok(); ++i) {
      read_anthropic_tool((*values)[i], indexed_path("tools", i), report, use, tools);
    }
  }
  if (const JsonValue* value = fields.read_object("tool_choice")) {
    FieldReader choice(*value, "tool_choice", report);
    std::size_t word = 0;
    choice.read_word("type", {"auto", "any", "tool", "none"}, word);
    constexpr ToolChoice kChoices[] = {ToolChoice::kAuto, ToolChoice::kRequired, ToolChoice::kNamed,
                                       ToolChoice::kNone};
    use.choice = kChoices[word];
    bool alone = false;
    choice.read("disable_parallel_tool_use", alone);
    use.parallel = !alone;
    choice.read("name", use.named);
    const bool needs_tool = word == 1 || word == 2;
    bool is_known = word != 2;
    for (const ToolDefinition& tool : use.tools) is_known = is_known || tool.name == use.named;
    if (needs_tool && (use.tools.empty() || !is_known)) {
      choice.fail(word == 1 ? "type" : "name",
                  "'tool_choice' asks for a tool that is not in 'tools'");
    }
  }
  return tools.empty() ? std::string() : JsonValue(std::move(tools)).to_text();
}

// Whether a template thinks is its variable; a budget of tokens for it is not kept.
void read_thinking(FieldReader& fields, FieldReport& report, AnthropicCall& out) {
  const JsonValue* value = fields.read_object("thinking");
  if (value == nullptr) return;
  FieldReader thinking(*value, "thinking", report);
  std::size_t word = 0;
  thinking.read_word("type", {"disabled", "enabled", "adaptive"}, word);
  thinking.accept({"budget_tokens", "display"});
  out.shows_thinking = word != 0;
  out.call.variables = word == 0 ? R"({"enable_thinking":false})" : R"({"enable_thinking":true})";
}

void read_output_format(FieldReader& fields, FieldReport& report, TextConstraint& constraint) {
  const JsonValue* format = fields.read_object("output_format");
  if (const JsonValue* config = fields.read_object("output_config")) {
    if (format == nullptr) format = config->member("format");
  }
  if (format == nullptr || format->is_null()) return;
  FieldReader members(*format, "output_format", report);
  std::size_t word = 0;
  members.read_word("type", {"json_schema"}, word);
  if (const JsonValue* schema = members.read_object("schema")) {
    constraint.kind = TextConstraint::Kind::kJsonSchema;
    constraint.source = schema->to_text();
  } else {
    members.fail("schema", "'output_format.schema' is missing");
  }
}

template <typename MakeJob>
std::shared_ptr<ServeJob> handle_anthropic(const ApiRequest& request, bool counts,
                                           MakeJob make_job) {
  FieldReport report;
  AnthropicCall call;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    call = read_anthropic(*body, *request.settings, counts, report);
  }
  if (!accept_request(request, report, &anthropic_error_response)) return nullptr;
  return make_job(std::move(call), report.ignored);
}

std::shared_ptr<ServeJob> handle_messages(const ApiRequest& request) {
  return handle_anthropic(
      request, false, [&](AnthropicCall call, const std::vector<std::string>& ignored) {
        std::unique_ptr<AnswerFormat> format =
            make_anthropic_format(call, AnswerOutput(request.exchange, ignored), *request.settings);
        return make_chat_job(std::move(call.call), std::move(format), request.exchange,
                             request.tenant, *request.settings);
      });
}

std::string count_body(int n_tokens) {
  JsonWriter json;
  json.begin_object().member("input_tokens", n_tokens).end_object();
  return json.take();
}

std::shared_ptr<ServeJob> handle_count_tokens(const ApiRequest& request) {
  return handle_anthropic(request, true,
                          [&](AnthropicCall call, const std::vector<std::string>& ignored) {
                            return make_input_tokens_job(std::move(call.call), ignored, request,
                                                         &count_body, &anthropic_error_response);
                          });
}

std::string_view anthropic_error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 500: return "api_error";
    case 503: return "overloaded_error";
    default: return "invalid_request_error";
  }
}

constexpr Route kAnthropicRoutes[] = {
    {"POST", "/v1/messages", &handle_messages, &anthropic_error_response},
    {"POST", "/v1/messages/count_tokens", &handle_count_tokens, &anthropic_error_response},
};

}  // namespace

AnthropicCall read_anthropic(const JsonValue& body, const ApiSettings& settings, bool counts,
                             FieldReport& report) {
  AnthropicCall out;
  ChatCall& call = out.call;
  FieldReader fields(body, "", report);
  fields.read("model", call.model);
  if (call.model.empty()) fields.fail("model", "'model' is missing, expected a model's name");
  fields.read("max_tokens", call.text.max_tokens, 1, INT_MAX);
  if (!counts && call.text.max_tokens == -1) {
    fields.fail("max_tokens", "'max_tokens' is missing, expected the most tokens of the answer");
  }
  MessageReader messages(report);
  if (const JsonValue* system = fields.find("system")) messages.add_system(*system);
  const JsonArray* items = fields.read_array("messages");
  if (items == nullptr || items->empty()) {
    fields.fail("messages", "'messages' is missing or empty, expected at least one message");
  } else {
    for (std::size_t i = 0; i < items->size() && fields.ok(); ++i) {
      messages.add((*items)[i], indexed_path("messages", i));
    }
  }
  call.continue_final_message = messages.ends_with_answer();
  call.add_generation_prompt = !call.continue_final_message;
  call.messages = JsonValue(messages.take()).to_text();
  call.tools = read_anthropic_tools(fields, report, call.tool_use);
  read_thinking(fields, report, out);
  read_output_format(fields, report, call.text.constraint);
  read_constraint(fields, report, call.text.constraint);
  read_sampling(fields, settings, call);
  read_stop(fields, "stop_sequences", settings, call.text);
  out.stop_sequences = call.text.stop;
  fields.read("stream", call.stream);
  fields.not_built("mcp_servers", kNeutralEmpty, "the client runs its tools");
  fields.not_built("container", kNeutralEmpty);
  fields.accept({"metadata", "service_tier", "context_management", "cache_control", "betas",
                 "inference_geo"});
  fields.finish(settings.strict_fields);
  return out;
}

std::string anthropic_error_body(const ApiError& error) {
  JsonWriter json;
  json.begin_object().member("type", "error").name("error").begin_object();
  json.member("type", anthropic_error_type(error.status)).member("message", error.message);
  json.end_object().null_member("request_id").end_object();
  return json.take();
}

HttpResponse anthropic_error_response(const ApiError& error) {
  HttpResponse response = {error.status, error_headers(error), anthropic_error_body(error)};
  response.headers.push_back({"Content-Type", "application/json"});
  return response;
}

std::span<const Route> anthropic_routes() {
  return kAnthropicRoutes;
}

}  // namespace qsf_tools
