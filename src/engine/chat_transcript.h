// SPDX-License-Identifier: MIT
//
// ChatTranscript: what a conversation's text became as tokens, so that the next turn's text can go
// on from there.
//
// The tokens of an answer are those that the model generated, which need not be those that encoding
// its text would give. They are kept as long as the template writes the same text before and up to
// the end of that answer; where it rewrites its history, everything before the rewritten answer is
// still kept.

#ifndef QSF_ENGINE_CHAT_TRANSCRIPT_H_
#define QSF_ENGINE_CHAT_TRANSCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <span>
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

  // What a file keeps of it (chat_file.h).
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

}  // namespace qsf

#endif  // QSF_ENGINE_CHAT_TRANSCRIPT_H_
