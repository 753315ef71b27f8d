// SPDX-License-Identifier: MIT
//
// ChatFormat: the text and the tokens of a conversation in one model's chat template.
//
// Text of the template is trusted and may hold control tokens. Text of messages is not trusted, and
// control tokens in it are never parsed. Two properties of a template are determined once, by
// rendering small conversations: how an assistant's message ends, and whether there is a place for
// a system message.

#ifndef QSF_ENGINE_CHAT_FORMAT_H_
#define QSF_ENGINE_CHAT_FORMAT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/chat_template_traits.h"
#include "format/model_spec.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// A formatted conversation. Trust is stored per byte, so that two texts can be compared however
// they were cut into pieces.
struct ChatText {
  std::string text;
  std::string trust;  // [text.size()]; 1: from the template, 0: from a message

  void append(std::string_view more, bool trusted);
};

// Returns how many leading bytes two texts share. Trust counts as well, except that of blanks,
// which belong to no control token.
std::size_t shared_bytes(const ChatText& a, const ChatText& b) noexcept;

// What a user said and what the model answered; the newest turn has no answer yet.
struct ChatTurn {
  std::string user;
  std::string answer;
};

class ChatFormat {
 public:
  // Takes the template of that name or source; empty: the model's own, or "plain" without one.
  // `now_seconds`, since 1970, is the date for templates that write one.
  // Requires  the tokenizer outlives the format
  // Fails     kInvalidArgument for an unknown name; as ChatTemplate::parse and render do
  static Result<ChatFormat> create(const ModelSpec& spec, const Tokenizer& tokenizer,
                                   std::string_view name_or_source, std::int64_t now_seconds);

  // "model", "custom" or the name of a builtin template.
  std::string_view name() const noexcept { return name_; }
  // The date for the template.
  std::int64_t now_seconds() const noexcept { return now_seconds_; }
  void set_now_seconds(std::int64_t now_seconds) noexcept { now_seconds_ = now_seconds; }
  // True when the template has no place for a system message: it then opens the first user message.
  bool merges_system() const noexcept { return merges_system_; }
  // Tokens with which the template closes an answer; they end it beside the model's end-of-text
  // tokens. A template that closes it with ordinary text has a stop text instead.
  std::span<const TokenId> end_tokens() const noexcept { return end_tokens_; }
  std::span<const std::string> end_texts() const noexcept { return end_texts_; }

  // Formats the conversation up to the start of the last turn's answer.
  // Requires  turns is not empty
  Result<ChatText> render(std::string_view system, std::span<const ChatTurn> turns) const;
  // Formats messages in their order.
  Result<ChatText> render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
  // Formats a request. The tokens of the text's beginning and end are the model's.
  Result<ChatText> render(ChatTemplateInput input) const;

  // Finds out what the template does with requests; some ten renderings.
  ChatTemplateTraits find_traits() const;

  // Appends the tokens of text[from..]. With from = 0 one beginning-of-text token comes first when
  // the model uses it, whether the template writes it or not.
  Status encode(const ChatText& text, std::size_t from, std::vector<TokenId>& out) const;

 private:
  ChatFormat(const ModelSpec& spec, const Tokenizer& tokenizer, ChatTemplate chat_template,
             std::string_view name, std::int64_t now_seconds);
  Status find_system_place();
  Status find_end();

  const Tokenizer* tokenizer_;
  ChatTemplate template_;
  std::string name_;
  std::int64_t now_seconds_;
  TokenId bos_;
  std::string bos_text_;
  std::string eos_text_;
  bool merges_system_ = false;
  std::vector<TokenId> end_tokens_;
  std::vector<std::string> end_texts_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_CHAT_FORMAT_H_
