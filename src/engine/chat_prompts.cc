// SPDX-License-Identifier: MIT

#include "engine/chat_prompts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "chat/chat_messages.h"

namespace qsf {
namespace {

// The model's own template, and some that requests name.
constexpr std::size_t kMaxKept = 4;

// Variables that callers set by other options.
constexpr std::string_view kOwnVariables[] = {"messages", "tools", "add_generation_prompt",
                                              "bos_token", "eos_token"};

// Parses `text`; nothing for an empty one and for null.
Result<std::optional<ChatJson>> parse_optional(std::string_view text, const char* what) {
  std::optional<ChatJson> parsed;
  if (text.empty()) return parsed;
  QSF_ASSIGN_OR_RETURN(ChatJson json, parse_chat_json(text, what));
  if (!json.is_null()) parsed = std::move(json);
  return parsed;
}

Result<std::optional<ChatJson>> parse_variables(std::string_view text) {
  QSF_ASSIGN_OR_RETURN(std::optional<ChatJson> variables, parse_optional(text, "variables"));
  if (!variables) return variables;
  if (!variables->is_object()) return invalid_argument("variables: expected an object");
  for (const std::string_view name : kOwnVariables) {
    if (variables->find(name) == nullptr) continue;
    return invalid_argument("variables: '%s' cannot be set here", std::string(name).c_str());
  }
  return variables;
}

// Cuts the text at the mark, which adapt_chat put behind the last message's text.
Status cut_at_mark(ChatText& text) {
  const std::size_t at = text.text.rfind(kContinueMark);
  if (at == std::string::npos) {
    return invalid_argument(
        "continue_final_message: the template does not write the last message as it is");
  }
  text.text.resize(at);
  text.trust.resize(at);
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const ChatPrompts::Prepared>> ChatPrompts::prepare(
    std::string_view name_or_source, std::int64_t now_seconds) {
  const auto find_kept = [this, name_or_source] {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [name_or_source](const auto& kept) {
      return kept->name_or_source == name_or_source;
    });
    if (found != kept_.end()) std::rotate(found, found + 1, kept_.end());
    return found != kept_.end();
  };
  {
    const std::lock_guard lock(mutex_);
    if (find_kept()) return kept_.back();
  }
  // Outside the lock: a template that takes long holds up nobody else.
  QSF_ASSIGN_OR_RETURN(ChatFormat format,
                       ChatFormat::create(spec_, tokenizer_, name_or_source, now_seconds));
  const ChatTemplateTraits traits = format.find_traits();
  auto prepared = std::make_shared<const Prepared>(
      Prepared{std::string(name_or_source), std::move(format), traits});
  const std::lock_guard lock(mutex_);
  if (find_kept()) return kept_.back();
  if (kept_.size() == kMaxKept) kept_.erase(kept_.begin());
  kept_.push_back(prepared);
  return std::shared_ptr<const Prepared>(std::move(prepared));
}

Result<ChatPrompt> ChatPrompts::make(const ChatPromptOptions& options) {
  QSF_ASSIGN_OR_RETURN(ChatJson messages, parse_chat_json(options.messages, "messages"));
  QSF_ASSIGN_OR_RETURN(std::optional<ChatJson> tools, parse_optional(options.tools, "tools"));
  QSF_ASSIGN_OR_RETURN(const std::optional<ChatJson> variables, parse_variables(options.variables));
  QSF_ASSIGN_OR_RETURN(const std::shared_ptr<const Prepared> prepared,
                       prepare(options.chat_template, options.now_seconds));
  const ChatFormat& format = prepared->format;
  QSF_ASSIGN_OR_RETURN(AdaptedChat chat,
                       adapt_chat(std::move(messages), std::move(tools), prepared->traits,
                                  options.continue_final_message));
  const auto render = [&] {
    return format.render(
        {.json_messages = &chat.messages,
         .tools = chat.tools ? &*chat.tools : nullptr,
         .variables = variables ? &*variables : nullptr,
         .add_generation_prompt = options.add_generation_prompt && !options.continue_final_message,
         .now_seconds = options.now_seconds});
  };
  Result<ChatText> text = render();
  if (!text.has_value() && chat.has_odd_arguments) {
    wrap_odd_arguments(chat);
    text = render();
  }
  if (!text.has_value()) return std::move(text).error();
  if (options.continue_final_message) QSF_RETURN_IF_ERROR(cut_at_mark(*text));

  ChatPrompt prompt;
  QSF_RETURN_IF_ERROR(format.encode(*text, 0, prompt.tokens));
  prompt.text = std::move(text->text);
  prompt.end_tokens.assign(format.end_tokens().begin(), format.end_tokens().end());
  prompt.end_texts.assign(format.end_texts().begin(), format.end_texts().end());
  prompt.merges_system = !prepared->traits.takes_system;
  prompt.tools_in_system = chat.tools_in_system;
  return prompt;
}

}  // namespace qsf
