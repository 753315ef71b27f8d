// SPDX-License-Identifier: MIT
//
// ChatTranscript: the tokens of a conversation's text, so that the next turn can continue from
// them; and ChatRecord, the conversation in a session file (docs/format-session.md).
//
// The tokens of an answer are the generated ones, which may differ from the encoding of its text.
// They are kept as long as the template writes the same text up to the end of that answer. Where
// the template rewrites its history, everything before the rewritten answer is kept.

#ifndef QSF_ENGINE_CHAT_TRANSCRIPT_H_
#define QSF_ENGINE_CHAT_TRANSCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/chat_format.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class ChatTranscript {
 public:
  // A text up to where an answer begins, and its tokens.
  struct Prompt {
    ChatText text;
    std::vector<TokenId> tokens;
    std::size_t n_marks = 0;  // of the transcript that still hold
  };

  // Returns the tokens of `text`: those of the transcript up to its last mark that `text` shares,
  // newly encoded ones from there. Changes nothing.
  Result<Prompt> continue_with(ChatText text, const ChatFormat& format) const;

  // Takes up a prompt and the answer to it. With `whole` the tokens stand for the answer's text and
  // nothing else; otherwise, as before a stop text, the next turn encodes the answer anew.
  // Requires  prompt came from continue_with and nothing was recorded since
  void record(Prompt prompt, std::string_view answer, std::span<const TokenId> answer_tokens,
              bool whole);

  void clear() noexcept;

  // The bytes of a transcript in a file.
  void write(ByteWriter& to) const;
  // Fails  kCorrupt for marks beyond text or tokens, or tokens of n_vocab and above
  static Result<ChatTranscript> read(ByteReader& from, std::uint32_t n_vocab);

 private:
  // A place where text and tokens are both cut: the beginning or the end of an answer.
  struct Mark {
    std::size_t n_bytes;
    std::size_t n_tokens;
  };

  ChatText text_;
  std::vector<TokenId> tokens_;
  std::vector<Mark> marks_;
};

struct ChatRecord {
  std::int64_t now_seconds = 0;  // the date for templates
  std::string system;
  std::vector<ChatTurn> turns;
  ChatTranscript transcript;
};

std::vector<std::byte> encode_chat(const ChatRecord& record);

// Requires  nothing of the bytes
// Fails     kCorrupt for anything but a record: text that is not UTF-8, tokens of n_vocab and
// above,
//           marks beyond the text
Result<ChatRecord> decode_chat(ByteSpan bytes, std::uint32_t n_vocab);

}  // namespace qsf

#endif  // QSF_ENGINE_CHAT_TRANSCRIPT_H_
