// SPDX-License-Identifier: MIT
//
// Chat: a conversation with a model. It holds the messages, has the model's template write them,
// and computes of each turn only what the session does not hold already.
//
// Messages are UTF-8; bytes that are none become U+FFFD. No message can speak with control tokens
// (engine/chat_format.h). The system message is always the first; the other messages come in turns
// of two, and whole turns leave, oldest first, when the context has no room for them.

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

// GenerateOptions::max_tokens for an answer that only the context bounds.
inline constexpr std::uint32_t kWholeAnswer = std::numeric_limits<std::uint32_t>::max();

struct ChatOptions {
  std::string_view system;         // empty: none
  std::string_view chat_template;  // as ChatFormat::create takes it
  std::int64_t now_seconds = 0;    // the date that templates may ask for, the whole chat long
};

struct ChatResult {
  GenerateResult generated;            // its prompt_tokens are the rows computed for this turn
  std::uint32_t reused_tokens = 0;     // rows of earlier turns that it went on from
  std::uint32_t dropped_messages = 0;  // forgotten before this turn to make room
};

class Chat {
 public:
  // Begins a conversation, in a session of its own.
  // Requires  the engine outlives the chat
  // Fails     kUnsupported for a model without a tokenizer; kOutOfBudget for no more sessions; as
  //           ChatFormat::create
  static Result<std::unique_ptr<Chat>> create(Engine& engine, const ChatOptions& options);

  // Says `text` and generates the answer; both are messages then, also when the answer was
  // cancelled or filled the context. Of `options` echo_prompt is not used.
  //
  // When the conversation leaves less room than an answer may want (max_tokens, at most a quarter
  // of the context), the oldest turns are dropped until it takes up half of the context. So a drop
  // computes at most half a context anew and makes room for a quarter at least: however long a
  // chat goes on, it computes at most two old rows for each new one.
  //
  // Guarantees  The chat is as before the call on failure, and when it was cancelled before the
  //             first token of the answer (kCancelled with no generated tokens).
  // Fails       kOutOfBudget when the message is longer than the context; kInvalidArgument for
  //             options out of range; as the template does
  Result<ChatResult> send(std::string_view text, const GenerateOptions& options);

  // Writes the conversation with its session to a file (docs/session-files.md), whole or not at
  // all. Fails  kInvalidArgument before the first answer; as Session::save
  Status save(const std::string& path);
  // Reads such a file into a chat without turns; its system message becomes the file's, and so does
  // the date that templates may ask for. The next turn goes on from the rows of the file as far as
  // the template writes the conversation as it was.
  // Guarantees  on failure the chat is as before
  // Fails       kInvalidArgument when there are turns; as Session::load
  Status load(const std::string& path);

  // Forgets everything but the system message.
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

// Returns `messages` as the template of that name or source (empty: the model's own) writes them.
// The text no longer tells what came from a message: encoding it with parse_special lets messages
// speak as the system.
Result<std::string> apply_chat_template(const Engine& engine, const ChatOptions& options,
                                        std::span<const ChatMessage> messages,
                                        bool add_generation_prompt);

}  // namespace qsf

#endif  // QSF_ENGINE_CHAT_H_
