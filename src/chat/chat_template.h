// SPDX-License-Identifier: MIT
//
// Chat templates: turn messages into the text format that a chat model was trained on.
//
// A model's file contains its template as source in the Jinja language. It is rendered byte for
// byte as Hugging Face transformers renders it, and each byte of the result is marked as trusted
// (written by the template) or untrusted (from a message). Control tokens are recognised only in
// trusted text, so a message cannot end its turn by containing the text of the token. The renderer
// supports the part of Jinja that templates of public models use and refuses the rest by name.
// docs/decisions/009-chat-templates.md has the reasons.

#ifndef QSF_CHAT_CHAT_TEMPLATE_H_
#define QSF_CHAT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_json.h"

namespace qsf {

namespace jinja {
struct Program;
}

struct ChatMessage {
  std::string_view role;
  std::string_view content;
};

// A piece of the rendered text. Trusted are the template's literals, bos_token and eos_token,
// numbers, booleans and dates, and common roles of messages (system, user, assistant ...), because
// some templates form a control token around them. All other text of messages, tools and variables
// stays untrusted through every operation.
struct ChatPiece {
  std::string text;
  bool trusted;
};

struct ChatTemplateInput {
  std::span<const ChatMessage> messages = {};
  // In place of `messages`, where not null: a list of whole messages.
  const ChatJson* json_messages = nullptr;
  const ChatJson* tools = nullptr;  // null: the variable is none
  // An object, or null: further variables. Those that this struct sets, and functions, win.
  const ChatJson* variables = nullptr;
  bool add_generation_prompt = true;
  // Empty where the model has no such token; the variable is then undefined in the template.
  std::string_view bos_token = {};
  std::string_view eos_token = {};
  // The time of strftime_now, in UTC: seconds since 1970.
  std::int64_t now_seconds = 0;
};

class ChatTemplate {
 public:
  // Parses `source`, which need not outlive the call.
  // Fails  kCorrupt, with the line: a syntax error. kUnsupported, with line and name: tags,
  // filters,
  //        tests, methods, functions and operators of Jinja that chat templates do not use; more
  //        than 1 MB of source; deep nesting
  static Result<ChatTemplate> parse(std::string_view source);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders a conversation.
  // Guarantees  the pieces' texts, one after the other, are the rendered text; no piece is empty,
  //             and neighbours differ in trust
  // Fails  kInvalidArgument, with the line: when the template raises an exception of its own (its
  //        message is in the status) or an operation fails as in Python. kUnsupported: when it
  //        exceeds the limits of steps, memory or output, which are far above the needs of chat
  //        templates
  // Threads  any number may render at once
  Result<std::vector<ChatPiece>> render(const ChatTemplateInput& input) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const jinja::Program> program);

  std::unique_ptr<const jinja::Program> program_;
};

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
};

// Returns the templates for models whose file has none: chatml, llama2, llama3, mistral, phi3,
// zephyr, gemma, and plain for base models, which joins the contents with blank lines.
// Threads  any
std::span<const BuiltinTemplate> builtin_templates();

}  // namespace qsf

#endif  // QSF_CHAT_CHAT_TEMPLATE_H_
