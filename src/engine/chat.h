// SPDX-License-Identifier: MIT
//
// Chat: a conversation with a model. It holds the messages, formats them with the model's template,
// and computes of each turn only the tokens that the session does not hold yet.
//
// Messages are UTF-8; other bytes become U+FFFD. Control tokens in messages are never parsed
// (engine/chat_format.h). The system message is always the first. The other messages come in turns
// of two; whole turns are dropped, oldest first, when the context has no room for them.

#ifndef QSF_ENGINE_CHAT_H_
#define QSF_ENGINE_CHAT_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/chat_format.h"
#include "engine/chat_transcript.h"
#include "engine/engine.h"

namespace qsf {

// GenerateOptions::max_tokens for an answer limited by the context alone.
inline constexpr std::uint32_t kWholeAnswer = std::numeric_limits<std::uint32_t>::max();

struct ChatOptions {
  std::string_view system;         // empty: none
  std::string_view chat_template;  // as ChatFormat::create takes it
  std::int64_t now_seconds = 0;    // the date for templates, fixed for the whole chat
};

struct ChatResult {
  GenerateResult generated;            // its prompt_tokens are the rows computed for this turn
  std::uint32_t reused_tokens = 0;     // rows of earlier turns, not computed again
  std::uint32_t dropped_messages = 0;  // dropped before this turn to make room
};

class Chat {
 public:
  // Begins a conversation, in a session of its own.
  // Requires  the engine outlives the chat
  // Fails     kUnsupported for a model without a tokenizer; kOutOfBudget for no more sessions; as
  //           ChatFormat::create
  static Result<std::unique_ptr<Chat>> create(Engine& engine, const ChatOptions& options);

  // Sends `text` and generates the answer. Both become messages, also when the answer was cancelled
  // or filled the context. options.echo_prompt is ignored.
  //
  // When the conversation leaves less room than the answer may need (max_tokens, at most a quarter
  // of the context), the oldest turns are dropped until it takes half of the context. So a drop
  // computes at most half a context again and makes room for at least a quarter: a chat computes at
  // most two old rows for each new one, however long it is.
  //
  // Guarantees  The chat is as before the call on failure, and when it was cancelled before the
  //             first token of the answer (kCancelled with no generated tokens).
  // Fails       kOutOfBudget when the message is longer than the context; kInvalidArgument for
  //             options out of range; as the template does
  Result<ChatResult> send(std::string_view text, const GenerateOptions& options);

  // Writes the conversation with its session to a file (docs/session-files.md), whole or not at
  // all. Fails  kInvalidArgument before the first answer; as Session::save
  Status save(const std::string& path);
  // Reads such a file into a chat without turns. The file's system message and date replace those
  // of the chat. The next turn reuses the rows of the file as far as the template still writes the
  // same text.
  // Guarantees  on failure the chat is unchanged
  // Fails       kInvalidArgument when there are turns; as Session::load
  Status load(const std::string& path);

  // Drops all messages but the system message.
  void clear() noexcept;
  // Replaces the system message; empty: none. The conversation goes on.
  void set_system(std::string_view text);

  const ChatFormat& format() const noexcept { return format_; }
  const Session& session() const noexcept { return *session_; }
  std::uint32_t max_context() const noexcept { return engine_.max_context(); }
  std::size_t n_messages() const noexcept;
  // Requires  index < n_messages(). Valid until the chat changes.
  ChatMessage message(std::size_t index) const noexcept;

 private:
  Chat(Engine& engine, ChatFormat format, std::unique_ptr<Session> session);
  // The prompt of a turn, and how many of the oldest turns it leaves out.
  struct Fitted {
    ChatTranscript::Prompt prompt;
    std::size_t n_dropped = 0;
  };
  Result<Fitted> fit(std::uint32_t n_reserved) const;
  Result<ChatTranscript::Prompt> prompt_without(std::size_t n_dropped) const;
  Result<ChatResult> answer(const GenerateOptions& options);

  Engine& engine_;
  ChatFormat format_;
  std::unique_ptr<Session> session_;
  ChatTranscript transcript_;
  std::string system_;
  std::vector<ChatTurn> turns_;
};

// Formats `messages` with the template of that name or source (empty: the model's own). The text
// mixes template and messages: encoded with parse_special, a message can inject control tokens.
Result<std::string> apply_chat_template(const Engine& engine, const ChatOptions& options,
                                        std::span<const ChatMessage> messages,
                                        bool add_generation_prompt);

}  // namespace qsf

#endif  // QSF_ENGINE_CHAT_H_
