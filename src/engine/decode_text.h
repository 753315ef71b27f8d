// SPDX-License-Identifier: MIT
//
// Whole texts out of tokens, for callers above the engine that want a string and not a stream.

#ifndef QSF_ENGINE_DECODE_TEXT_H_
#define QSF_ENGINE_DECODE_TEXT_H_

#include <span>
#include <string>

#include "tokenizer/tokenizer.h"

namespace qsf {

// Returns the text of `tokens` as one that begins a document: valid UTF-8, U+FFFD for bytes that
// are none, nothing for special tokens. Threads  any
std::string decode_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens);

}  // namespace qsf

#endif  // QSF_ENGINE_DECODE_TEXT_H_
