// SPDX-License-Identifier: MIT

#include "chat/chat_template_traits.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <optional>
#include <string>

namespace qsf {
namespace {

// Words that no template writes itself or changes.
constexpr std::string_view kText = "probing text";
constexpr std::string_view kName = "probing_name";
constexpr std::string_view kArgument = "probing_argument";
constexpr std::string_view kValue = "probing value";
constexpr std::string_view kOtherValue = "probing other";
constexpr std::string_view kResult = "probing result";

constexpr std::string_view kQuestion = R"({"role": "user", "content": "probing question"})";
constexpr std::string_view kTools = R"([{"type": "function", "function": {
    "name": "probing_name", "description": "probing description", "parameters": {
      "type": "object", "properties": {
        "probing_argument": {"type": "string", "description": "probing meaning"}},
      "required": ["probing_argument"]}}}])";
constexpr std::string_view kShortId = "probing01";
constexpr std::string_view kLongId = "call_probing0123456789ab";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// An object that Python printed, or text that was escaped once too often.
bool is_mangled(const std::string& text) {
  return holds(text, "'probing_argument'") || holds(text, R"(\"probing_argument)");
}

class Prober {
 public:
  Prober(const ChatTemplate& chat_template, std::string_view bos_token, std::string_view eos_token,
         std::int64_t now_seconds)
      : template_(chat_template), bos_(bos_token), eos_(eos_token), now_seconds_(now_seconds) {}

  ChatTemplateTraits find() {
    ChatTemplateTraits traits;
    const std::string question = "[" + std::string(kQuestion) + "]";
    traits.needs_tool_list = !render(question, "null") && render(question, "[]");
    if (traits.needs_tool_list) no_tools_ = "[]";
    traits.takes_text = writes(R"([{"role": "user", "content": "probing text"}])");
    traits.takes_parts =
        writes(R"([{"role": "user", "content": [{"type": "text", "text": "probing text"}]}])");
    const bool as_parts = traits.takes_parts && !traits.takes_text;
    traits.takes_system = writes_first("system", as_parts);
    traits.takes_developer = takes_developer(as_parts);
    const auto described = render(question, kTools);
    traits.takes_tools = described && holds(*described, kName);
    find_calls(traits);
    return traits;
  }

 private:
  std::optional<std::string> render(const std::string& messages, std::string_view tools) const {
    const auto parsed = parse_chat_json(messages, "messages");
    const auto parsed_tools = parse_chat_json(tools, "tools");
    if (!parsed || !parsed_tools) return std::nullopt;
    const auto pieces =
        template_.render({.json_messages = &*parsed,
                          .tools = parsed_tools->is_null() ? nullptr : &*parsed_tools,
                          .add_generation_prompt = true,
                          .bos_token = bos_,
                          .eos_token = eos_,
                          .now_seconds = now_seconds_});
    if (!pieces) return std::nullopt;
    std::string text;
    for (const ChatPiece& piece : *pieces) text += piece.text;
    return text;
  }

  // Whether the text is written as it stands, and not as a part of a list that Python printed.
  bool writes(const std::string& messages) const {
    const auto text = render(messages, no_tools_);
    return text && holds(*text, kText) && !holds(*text, "'probing text'") &&
           !holds(*text, "\"probing text\"");
  }

  static std::string first_message(std::string_view role, bool as_parts) {
    const std::string_view content =
        as_parts ? R"([{"type": "text", "text": "probing text"}])" : R"("probing text")";
    return R"([{"role": ")" + std::string(role) + R"(", "content": )" + std::string(content) +
           "}, " + std::string(kQuestion) + "]";
  }
  bool writes_first(std::string_view role, bool as_parts) const {
    return writes(first_message(role, as_parts));
  }

  // Other than as one of those templates that write any role.
  bool takes_developer(bool as_parts) const {
    constexpr std::string_view kOtherRole = "narrator";
    if (!writes_first("developer", as_parts)) return false;
    const auto text = render(first_message("developer", as_parts), no_tools_);
    const auto other = render(first_message(kOtherRole, as_parts), no_tools_);
    if (!text || !other) return true;
    std::string as_developer = lower(*other);
    const std::size_t at = as_developer.find(kOtherRole);
    if (at != std::string::npos) as_developer.replace(at, kOtherRole.size(), "developer");
    return as_developer != lower(*text);
  }

  // Whether the template writes calls and results, of which only the last argument differs.
  bool writes_calls(std::string_view content, bool arguments_as_text, std::string_view id,
                    std::initializer_list<std::string_view> values) const {
    std::string calls;
    std::string results;
    for (const std::string_view value : values) {
      const std::string_view quote = arguments_as_text ? R"(\")" : "\"";
      std::string arguments = "{";
      arguments.append(quote).append(kArgument).append(quote).append(": ");
      arguments.append(quote).append(value).append(quote).append("}");
      if (arguments_as_text) arguments = "\"" + arguments + "\"";
      calls += (calls.empty() ? R"({"id": ")" : R"(, {"id": ")") + std::string(id) +
               R"(", "type": "function", "function": {"name": "probing_name", "arguments": )" +
               arguments + "}}";
      results += R"(, {"role": "tool", "name": "probing_name", "tool_call_id": ")" +
                 std::string(id) + R"(", "content": "probing result"})";
    }
    // Without tools the words are in the calls alone.
    const auto text =
        render("[" + std::string(kQuestion) + R"(, {"role": "assistant", "content": )" +
                   std::string(content) + R"(, "tool_calls": [)" + calls + "]}" + results + "]",
               no_tools_);
    if (!text || is_mangled(*text)) return false;
    return holds(*text, kName) && holds(*text, kArgument) && holds(*text, kResult) &&
           std::all_of(values.begin(), values.end(),
                       [&text](std::string_view value) { return holds(*text, value); });
  }

  void find_calls(ChatTemplateTraits& traits) const {
    for (const bool as_text : {false, true}) {
      for (const bool without_content : {false, true}) {
        const std::string_view content = without_content ? "null" : "\"\"";
        if (!writes_calls(content, as_text, kShortId, {kValue})) continue;
        traits.takes_calls = true;
        traits.calls_without_content = without_content;
        traits.arguments_as_text = as_text;
        traits.short_call_ids = !writes_calls(content, as_text, kLongId, {kValue});
        traits.single_calls = !writes_calls(content, as_text, kShortId, {kValue, kOtherValue});
        return;
      }
    }
  }

  const ChatTemplate& template_;
  std::string_view bos_;
  std::string_view eos_;
  std::int64_t now_seconds_;
  std::string_view no_tools_ = "null";
};

}  // namespace

ChatTemplateTraits find_chat_template_traits(const ChatTemplate& chat_template,
                                             std::string_view bos_token, std::string_view eos_token,
                                             std::int64_t now_seconds) {
  return Prober(chat_template, bos_token, eos_token, now_seconds).find();
}

}  // namespace qsf
