// SPDX-License-Identifier: MIT
//
// StreamDecoder: turns a stream of tokens into text that is valid UTF-8 after every token.
//
// A token may end in the middle of a character. The first bytes of a character are held back until
// the rest arrives. Invalid bytes are replaced by U+FFFD, one for each maximal beginning of a
// sequence (The Unicode Standard, section 3.9), and so are bytes held back at the end. Valid text
// passes unchanged, wherever tokens divide it.

#ifndef QSF_TOKENIZER_STREAM_DECODER_H_
#define QSF_TOKENIZER_STREAM_DECODER_H_

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace qsf {

class StreamDecoder {
 public:
  // Keeps a pointer to `tokenizer`, which must outlive it.
  StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options);

  // Takes the next token and returns the text that is ready, valid until the next call; often
  // empty in the middle of a character.
  // Guarantees  no heap allocation (the buffers were sized for the longest token)
  std::string_view push(TokenId id);

  // Ends the stream: returns U+FFFD for an unfinished character, otherwise nothing. The decoder can
  // then continue, as in the middle of a text.
  std::string_view finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool strip_space_;     // the next text token is the first
  std::string pending_;  // the beginning of a character, then the new token's bytes
  std::string ready_;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_STREAM_DECODER_H_
