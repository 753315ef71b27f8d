// SPDX-License-Identifier: MIT
//
// Chat templates: messages into the text that a chat model was trained on.
//
// A model's file brings its template as source in the Jinja language. It is rendered here byte for
// byte as Hugging Face transformers renders it, and every byte of the result knows where it is
// from: control tokens may be recognised in what the template wrote and nowhere else, or a message
// could end its own turn by spelling the token that does. docs/decisions/009-chat-templates.md says
// why it is our own renderer, and what of the language there is.

#ifndef QSF_CHAT_CHAT_TEMPLATE_H_
#define QSF_CHAT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf {

namespace jinja {
struct Program;
}

struct ChatMessage {
  std::string_view role;
  std::string_view content;
};

// A piece of the rendered text. `trusted` says that the template wrote it: its literals, bos_token
// and eos_token, numbers and dates that it computed, and a message's role when that is one of the
// names that chats agree on (system, user, assistant ...), since some templates form a control
// token around it. All other text of a message is untrusted through whatever the template does
// with it.
struct ChatPiece {
  std::string text;
  bool trusted;
};

struct ChatTemplateInput {
  std::span<const ChatMessage> messages;
  bool add_generation_prompt = true;
  // A token that the model has not: empty; the template then sees an undefined variable.
  std::string_view bos_token;
  std::string_view eos_token;
  // What strftime_now shows, in UTC: seconds since 1970.
  std::int64_t now_seconds = 0;
};

class ChatTemplate {
 public:
  // Parses `source`, which need not outlive the call.
  // Fails  kCorrupt, with the line: on what is no Jinja. kUnsupported, with line and name: on what
  //        chat templates do not use (include, extends, import, block, recursive loops), on
  //        unknown filters and tests, and on more than 1 MB or deep nesting
  static Result<ChatTemplate> parse(std::string_view source);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders a conversation.
  // Guarantees  the pieces' texts, one after the other, are the rendered text; no piece is empty,
  //             and neighbours differ in trust
  // Fails  kInvalidArgument, with the line: when the template raises an exception of its own (its
  //        message is in the status) or does what Python refuses. kUnsupported: when it needs more
  //        steps, memory or output than a chat template can be in need of
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
// zephyr, gemma, and plain, which joins the contents alone with blank lines, for base models.
// Threads  any
std::span<const BuiltinTemplate> builtin_templates();

}  // namespace qsf

#endif  // QSF_CHAT_CHAT_TEMPLATE_H_
