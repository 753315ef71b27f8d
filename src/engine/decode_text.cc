// SPDX-License-Identifier: MIT
//
// Decoding of whole texts through the stream decoder, which guarantees valid UTF-8.

#include "engine/decode_text.h"

#include "tokenizer/stream_decoder.h"

namespace qsf {

std::string decode_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  StreamDecoder decoder(tokenizer, DecodeOptions{});
  std::string text;
  for (const TokenId token : tokens) text += decoder.push(token);
  text += decoder.finish();
  return text;
}

}  // namespace qsf
