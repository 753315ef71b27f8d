// SPDX-License-Identifier: MIT

#include "chat/chat_messages.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja_json.h"

namespace qsf {
namespace {

constexpr std::string_view kBlankLine = "\n\n";

// Arguments in text are parsed to at most this depth: five levels are around them.
constexpr int kMaxArgumentsDepth = kMaxChatJsonDepth - 8;

std::string shown(std::string_view text) {
  constexpr std::size_t kShownBytes = 60;
  return std::string(text.substr(0, kShownBytes));
}

Status check_parts(const ChatJson& content, std::size_t index) {
  for (std::size_t i = 0; i < content.items.size(); ++i) {
    const std::string* type = content.items[i].find_string("type");
    if (type == nullptr) {
      return invalid_argument("messages[%zu].content[%zu]: expected an object with a type", index,
                              i);
    }
    if (*type != "text") {
      return invalid_argument(
          "messages[%zu].content[%zu]: type '%s', but the model reads text alone", index, i,
          shown(*type).c_str());
    }
    if (content.items[i].find_string("text") == nullptr) {
      return invalid_argument("messages[%zu].content[%zu].text: expected a string", index, i);
    }
  }
  return ok_status();
}

std::string joined_parts(const ChatJson& content) {
  std::string text;
  for (const ChatJson& part : content.items) {
    if (&part != &content.items.front()) text += '\n';
    text += *part.find_string("text");
  }
  return text;
}

ChatJson text_part(std::string_view text) {
  return ChatJson::of_object(
      {{"type", ChatJson::of_string("text")}, {"text", ChatJson::of_string(text)}});
}

// Nine letters and digits for an id of any form: the same for the same id.
std::string short_id(const std::string& id) {
  constexpr std::size_t kLength = 9;
  const auto is_alphanumeric = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  if (id.size() == kLength && std::all_of(id.begin(), id.end(), is_alphanumeric)) return id;
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string made;
  for (; made.size() < kLength; hash /= kDigits.size()) made += kDigits[hash % kDigits.size()];
  return made;
}

class Adapter {
 public:
  Adapter(ChatJson messages, std::optional<ChatJson> tools, const ChatTemplateTraits& traits)
      : traits_(traits) {
    if (!traits_.takes_tools || !traits_.takes_calls) {
      traits_.takes_calls = false;
      traits_.calls_without_content = false;
      traits_.arguments_as_text = false;
      traits_.short_call_ids = false;
      traits_.single_calls = false;
    }
    chat_.messages = std::move(messages);
    chat_.tools = std::move(tools);
  }

  Result<AdaptedChat> run(bool continue_final) {
    QSF_RETURN_IF_ERROR(check_tools());
    if (!chat_.messages.is_array() || chat_.messages.items.empty()) {
      return invalid_argument("messages: expected a list of at least one message");
    }
    QSF_RETURN_IF_ERROR(read_messages());
    if (continue_final) QSF_RETURN_IF_ERROR(mark_final());
    if (!traits_.takes_calls) QSF_RETURN_IF_ERROR(write_calls_as_text());
    if (traits_.takes_calls && traits_.single_calls) separate_calls();
    if (chat_.tools && !traits_.takes_tools) QSF_RETURN_IF_ERROR(describe_tools());
    if (!traits_.takes_system) merge_system();
    if (!traits_.takes_text && traits_.takes_parts) write_text_as_parts();
    if (!chat_.tools && traits_.needs_tool_list) chat_.tools = ChatJson::of_array();
    return std::move(chat_);
  }

 private:
  std::vector<ChatJson>& messages() { return chat_.messages.items; }

  // Of a message that was read: it has text, parts or none as content.
  static std::string text_of(const ChatJson& message) {
    const ChatJson* content = message.find("content");
    if (content == nullptr || content->is_null()) return {};
    return content->is_array() ? joined_parts(*content) : content->text;
  }
  static void set_text(ChatJson& message, std::string_view text) {
    message.set("content", ChatJson::of_string(text));
  }
  // The text in place, so that many additions cost no more than their bytes.
  static std::string& editable_text(ChatJson& message) {
    const ChatJson* content = message.find("content");
    if (content == nullptr || !content->is_string()) set_text(message, text_of(message));
    return message.find("content")->text;
  }
  static bool has_role(const ChatJson& message, std::string_view role) {
    return *message.find_string("role") == role;
  }

  Status check_tools();
  Status read_messages();
  Status read_content(ChatJson& message, std::size_t index);
  Status read_calls(ChatJson& message, std::size_t index);
  Status read_arguments(ChatJson& function);
  static void name_reasoning(ChatJson& message);
  void read_result(ChatJson& message);
  Status mark_final();
  Status write_calls_as_text();
  void separate_calls();
  Status describe_tools();
  void merge_system();
  void write_text_as_parts();

  struct Call {
    std::string id;
    std::string name;
  };

  ChatTemplateTraits traits_;
  AdaptedChat chat_;
  // Those of the last message with calls, and the first of them that may have no result yet.
  std::vector<Call> calls_;
  std::map<std::string, std::size_t, std::less<>> call_by_id_;
  std::size_t next_call_ = 0;
  std::size_t n_calls_ = 0;  // of all messages
};

// Also takes functions without the wrapper around them.
Status Adapter::check_tools() {
  if (!chat_.tools || chat_.tools->is_null()) {
    chat_.tools.reset();
    return ok_status();
  }
  if (!chat_.tools->is_array()) return invalid_argument("tools: expected a list");
  for (std::size_t i = 0; i < chat_.tools->items.size(); ++i) {
    ChatJson& tool = chat_.tools->items[i];
    if (tool.find("function") == nullptr && tool.find("name") != nullptr) {
      tool.remove("type");
      tool = ChatJson::of_object(
          {{"type", ChatJson::of_string("function")}, {"function", std::move(tool)}});
    }
    const ChatJson* function = tool.find("function");
    if (function == nullptr || function->find_string("name") == nullptr) {
      return invalid_argument("tools[%zu]: expected a function with a name", i);
    }
  }
  if (chat_.tools->items.empty()) chat_.tools.reset();
  return ok_status();
}

Status Adapter::read_messages() {
  std::vector<ChatJson> read;
  for (std::size_t i = 0; i < messages().size(); ++i) {
    ChatJson& message = messages()[i];
    if (!message.is_object()) return invalid_argument("messages[%zu]: expected an object", i);
    if (message.find_string("role") == nullptr) {
      return invalid_argument("messages[%zu].role: expected a string", i);
    }
    const ChatJson* calls = message.find("tool_calls");
    if (calls != nullptr && (calls->is_null() || (calls->is_array() && calls->items.empty()))) {
      message.remove("tool_calls");
    }
    QSF_RETURN_IF_ERROR(read_content(message, i));
    QSF_RETURN_IF_ERROR(read_calls(message, i));
    name_reasoning(message);
    if (has_role(message, "tool")) read_result(message);
    if (has_role(message, "developer") && !traits_.takes_developer) {
      message.set("role", ChatJson::of_string("system"));
      // Templates have room for one system message, at the start.
      if (read.size() == 1 && has_role(read[0], "system")) {
        editable_text(read[0]).append(kBlankLine).append(text_of(message));
        continue;
      }
    }
    read.push_back(std::move(message));
  }
  messages() = std::move(read);
  return ok_status();
}

Status Adapter::read_content(ChatJson& message, std::size_t index) {
  const ChatJson* content = message.find("content");
  if (content == nullptr || content->is_null()) {
    if (!traits_.calls_without_content || message.find("tool_calls") == nullptr) {
      set_text(message, "");
    }
    return ok_status();
  }
  if (content->is_array()) {
    QSF_RETURN_IF_ERROR(check_parts(*content, index));
    // Few templates that read parts do so in every role.
    const bool keeps_parts =
        traits_.takes_parts && (!traits_.takes_text || has_role(message, "user"));
    if (!keeps_parts) set_text(message, joined_parts(*content));
    return ok_status();
  }
  if (content->is_string()) return ok_status();
  return invalid_argument("messages[%zu].content: expected a string or a list of parts", index);
}

Status Adapter::read_calls(ChatJson& message, std::size_t index) {
  ChatJson* calls = message.find("tool_calls");
  if (calls == nullptr) return ok_status();
  if (!calls->is_array()) {
    return invalid_argument("messages[%zu].tool_calls: expected a list", index);
  }
  calls_.clear();
  call_by_id_.clear();
  next_call_ = 0;
  for (std::size_t i = 0; i < calls->items.size(); ++i) {
    ChatJson& call = calls->items[i];
    if (call.find("function") == nullptr && call.find("name") != nullptr) {
      ChatJson id = call.find("id") == nullptr ? ChatJson() : *call.find("id");
      call.remove("type");
      call.remove("id");
      call = ChatJson::of_object({{"id", std::move(id)},
                                  {"type", ChatJson::of_string("function")},
                                  {"function", std::move(call)}});
    }
    ChatJson* function = call.find("function");
    const std::string* name = function == nullptr ? nullptr : function->find_string("name");
    if (name == nullptr) {
      return invalid_argument("messages[%zu].tool_calls[%zu]: expected a function with a name",
                              index, i);
    }
    const std::string called = *name;
    QSF_RETURN_IF_ERROR(read_arguments(*function));
    char number[24];
    std::snprintf(number, sizeof number, "call%05zu", ++n_calls_ % 100'000);
    const std::string* given = call.find_string("id");
    const std::string id = given == nullptr ? number : *given;
    call_by_id_.emplace(id, calls_.size());
    calls_.push_back({id, called});
    if (given == nullptr || traits_.short_call_ids) {
      call.set("id", ChatJson::of_string(traits_.short_call_ids ? short_id(id) : id));
    }
  }
  if (traits_.calls_without_content && text_of(message).empty()) message.set("content", {});
  return ok_status();
}

// Clients send arguments as text; most templates print them as an object.
Status Adapter::read_arguments(ChatJson& function) {
  ChatJson* arguments = function.find("arguments");
  if (arguments == nullptr || arguments->is_null() || arguments->is_string("")) {
    function.set("arguments", ChatJson::of_object());
    arguments = function.find("arguments");
  }
  if (traits_.arguments_as_text) {
    if (arguments->is_string()) return ok_status();
    QSF_ASSIGN_OR_RETURN(const std::string text, jinja::write_json(*arguments));
    *arguments = ChatJson::of_string(text);
    return ok_status();
  }
  if (arguments->is_object()) return ok_status();
  if (arguments->is_string()) {
    auto parsed = parse_chat_json(arguments->text, "arguments", kMaxArgumentsDepth);
    if (parsed && parsed->is_object()) {
      *arguments = std::move(*parsed);
      return ok_status();
    }
  } else {
    QSF_ASSIGN_OR_RETURN(const std::string text, jinja::write_json(*arguments));
    *arguments = ChatJson::of_string(text);
  }
  chat_.has_odd_arguments = true;
  return ok_status();
}

// Reasoning has several names; transformers 5 gives templates these two.
void Adapter::name_reasoning(ChatJson& message) {
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const ChatJson* found = message.find(name);
    if (found == nullptr || found->is_null()) continue;
    const ChatJson reasoning = *found;
    if (message.find("thinking") == nullptr) message.set("thinking", reasoning);
    message.set("reasoning_content", reasoning);
    return;
  }
}

// A result without an id answers the calls in their order. Some templates print the tool's name,
// which clients leave out.
void Adapter::read_result(ChatJson& message) {
  const std::string* given = message.find_string("tool_call_id");
  std::size_t index = next_call_;
  if (given != nullptr) {
    const auto found = call_by_id_.find(*given);
    index = found == call_by_id_.end() ? calls_.size() : found->second;
  }
  std::string id = given == nullptr ? std::string() : *given;
  if (index < calls_.size()) {
    id = calls_[index].id;
    if (message.find_string("name") == nullptr) {
      message.set("name", ChatJson::of_string(calls_[index].name));
    }
    next_call_ = index + 1;
  }
  if (id.empty()) return;
  message.set("tool_call_id", ChatJson::of_string(traits_.short_call_ids ? short_id(id) : id));
}

Status Adapter::mark_final() {
  ChatJson& last = messages().back();
  if (!has_role(last, "assistant")) {
    return invalid_argument(
        "continue_final_message: the last message is of role '%s', expected "
        "'assistant'",
        shown(*last.find_string("role")).c_str());
  }
  if (last.find("tool_calls") != nullptr) {
    return invalid_argument("continue_final_message: the last message has tool calls");
  }
  ChatJson* content = last.find("content");
  if (content->is_string()) {
    content->text += kContinueMark;
  } else if (content->items.empty()) {
    content->items.push_back(text_part(kContinueMark));
  } else {
    content->items.back().find("text")->text += kContinueMark;
  }
  return ok_status();
}

// Calls stand in the text of the assistant, results in that of the user. Results of one message's
// calls, and what the user says next, become one message, since many templates want the roles to
// alternate.
Status Adapter::write_calls_as_text() {
  std::vector<ChatJson> written;
  bool after_result = false;
  for (ChatJson& message : messages()) {
    const bool is_result = has_role(message, "tool");
    if (const ChatJson* calls = message.find("tool_calls")) {
      std::string text = text_of(message);
      for (const ChatJson& call : calls->items) {
        const ChatJson& function = *call.find("function");
        ChatJson shown_call = ChatJson::of_object({{"name", *function.find("name")}});
        shown_call.set("arguments", *function.find("arguments"));
        QSF_ASSIGN_OR_RETURN(const std::string json, jinja::write_json(shown_call));
        if (!text.empty()) text += '\n';
        text += "<tool_call>\n" + json + "\n</tool_call>";
      }
      message.remove("tool_calls");
      set_text(message, text);
    } else if (is_result) {
      set_text(message, "<tool_response>\n" + text_of(message) + "\n</tool_response>");
      message.set("role", ChatJson::of_string("user"));
      message.remove("tool_call_id");
      message.remove("name");
    }
    if (after_result && has_role(message, "user")) {
      editable_text(written.back()).append("\n").append(text_of(message));
    } else {
      written.push_back(std::move(message));
    }
    after_result = is_result || (after_result && has_role(written.back(), "user"));
  }
  messages() = std::move(written);
  return ok_status();
}

// One message a call, each before its result.
void Adapter::separate_calls() {
  std::vector<ChatJson> written;
  std::vector<ChatJson> waiting;  // further calls of a message, the last first
  for (ChatJson& message : messages()) {
    if (!has_role(message, "tool")) {
      std::move(waiting.rbegin(), waiting.rend(), std::back_inserter(written));
      waiting.clear();
    } else if (!waiting.empty() && has_role(written.back(), "tool")) {
      written.push_back(std::move(waiting.back()));
      waiting.pop_back();
    }
    if (ChatJson* calls = message.find("tool_calls"); calls != nullptr && calls->items.size() > 1) {
      for (std::size_t i = calls->items.size(); i > 1; --i) {
        ChatJson& further =
            waiting.emplace_back(ChatJson::of_object({{"role", ChatJson::of_string("assistant")}}));
        further.set("content",
                    traits_.calls_without_content ? ChatJson() : ChatJson::of_string(""));
        further.set("tool_calls", ChatJson::of_array({std::move(calls->items[i - 1])}));
      }
      calls->items.resize(1);
    }
    written.push_back(std::move(message));
  }
  std::move(waiting.rbegin(), waiting.rend(), std::back_inserter(written));
  messages() = std::move(written);
}

Status Adapter::describe_tools() {
  std::string text =
      "# Tools\n\nYou can call these functions, described by one JSON object a line:\n<tools>\n";
  for (const ChatJson& tool : chat_.tools->items) {
    QSF_ASSIGN_OR_RETURN(const std::string json, jinja::write_json(*tool.find("function")));
    text += json + "\n";
  }
  text +=
      "</tools>\n\nTo call one, answer with its name and arguments as a JSON object in tags, once "
      "for each call:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>\n\nThe "
      "results come in <tool_response> tags.";
  chat_.tools.reset();
  chat_.tools_in_system = true;
  ChatJson& first = messages().front();
  if (has_role(first, "system") || has_role(first, "developer")) {
    const std::string system = text_of(first);
    set_text(first, system.empty() ? text : system + std::string(kBlankLine) + text);
    return ok_status();
  }
  messages().insert(messages().begin(),
                    ChatJson::of_object({{"role", ChatJson::of_string("system")},
                                         {"content", ChatJson::of_string(text)}}));
  return ok_status();
}

void Adapter::merge_system() {
  if (!has_role(messages().front(), "system")) return;
  const std::string system = text_of(messages().front());
  const auto user = std::find_if(messages().begin(), messages().end(),
                                 [](const ChatJson& m) { return has_role(m, "user"); });
  if (user == messages().end()) {
    messages().front().set("role", ChatJson::of_string("user"));
    return;
  }
  if (!system.empty()) set_text(*user, system + std::string(kBlankLine) + text_of(*user));
  messages().erase(messages().begin());
}

void Adapter::write_text_as_parts() {
  for (ChatJson& message : messages()) {
    const ChatJson* content = message.find("content");
    if (content == nullptr || !content->is_string()) continue;
    const std::string text = content->text;
    message.set("content", ChatJson::of_array({text_part(text)}));
  }
}

}  // namespace

Result<AdaptedChat> adapt_chat(ChatJson messages, std::optional<ChatJson> tools,
                               const ChatTemplateTraits& traits, bool continue_final) {
  return Adapter(std::move(messages), std::move(tools), traits).run(continue_final);
}

void wrap_odd_arguments(AdaptedChat& chat) {
  for (ChatJson& message : chat.messages.items) {
    ChatJson* calls = message.find("tool_calls");
    if (calls == nullptr) continue;
    for (ChatJson& call : calls->items) {
      ChatJson& arguments = *call.find("function")->find("arguments");
      if (arguments.is_object()) continue;
      arguments = ChatJson::of_object({{"arguments", std::move(arguments)}});
    }
  }
}

}  // namespace qsf
