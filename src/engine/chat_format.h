// SPDX-License-Identifier: MIT
//
// ChatFormat: how one model writes a conversation, as text and as tokens.
//
// What the template writes is trusted and may hold control tokens; what a message says is not, and
// never becomes one, whatever it spells. Everything that depends on the template alone is found out
// once, by rendering small conversations: how an assistant's message ends, and whether there is a
// place for a system message.

#ifndef QSF_ENGINE_CHAT_FORMAT_H_
#define QSF_ENGINE_CHAT_FORMAT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"
#include "format/model_spec.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// A conversation as the template writes it. Trust is kept byte for byte, so that two texts can be
// compared whatever pieces they came in.
struct ChatText {
  std::string text;
  std::string trust;  // [text.size()]; 1: from the template, 0: from a message

  void append(std::string_view more, bool trusted);
};

// Returns how many leading bytes two texts share. Trust counts as well, except that of blanks,
// which belong to no control token: whether a template or a message wrote them is all the same.
std::size_t shared_bytes(const ChatText& a, const ChatText& b) noexcept;

// What a user said and what the model answered; the newest turn has no answer yet.
struct ChatTurn {
  std::string user;
  std::string answer;
};

class ChatFormat {
 public:
  // Takes the template of that name or source, or the model's own when it is empty; a model without
  // one gets "plain". `now_seconds`, since the epoch, is the date for templates that ask for it.
  // Requires  the tokenizer outlives the format
  // Fails     kInvalidArgument for an unknown name; as ChatTemplate::parse and render do
  static Result<ChatFormat> create(const ModelSpec& spec, const Tokenizer& tokenizer,
                                   std::string_view name_or_source, std::int64_t now_seconds);

  // "model", "custom" or the name of a builtin template.
  std::string_view name() const noexcept { return name_; }
  // The date that the template may ask for.
  std::int64_t now_seconds() const noexcept { return now_seconds_; }
  void set_now_seconds(std::int64_t now_seconds) noexcept { now_seconds_ = now_seconds; }
  // True when the template has no place for a system message: it then opens the first user message.
  bool merges_system() const noexcept { return merges_system_; }
  // What ends an answer beside the model's own tokens: how the template closes it. A template
  // without a control token there gives a text instead.
  std::span<const TokenId> end_tokens() const noexcept { return end_tokens_; }
  std::span<const std::string> end_texts() const noexcept { return end_texts_; }

  // Writes the conversation up to where the answer to the last turn begins.
  // Requires  turns is not empty
  Result<ChatText> render(std::string_view system, std::span<const ChatTurn> turns) const;
  // Writes messages as they come.
  Result<ChatText> render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

  // Appends the tokens of text[from..]. From the beginning a beginning-of-text token comes first
  // when the model wants one, once, whether the template writes it or not.
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
