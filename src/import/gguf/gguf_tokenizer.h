// SPDX-License-Identifier: MIT
//
// The tokenizer of a GGUF file, from its "tokenizer.ggml." keys.
//
// Three models are supported: "gpt2" (byte-level BPE, with the pre-tokeniser of its "pre" key),
// "llama" (SentencePiece BPE) and "bert" (WordPiece, of text in lowercase unless a key says
// otherwise). Others are rejected by name, and so is an unknown "pre": a wrong pre-tokeniser would
// silently change the tokens.

#ifndef QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_
#define QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_

#include <span>
#include <string_view>

#include "base/result.h"
#include "import/gguf/gguf_reader.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Fails    kNotFound when the file has no tokenizer; kUnsupported on another model or
//          pre-tokeniser; kCorrupt on tokens, scores, types or merges that disagree
// Threads  any
Result<TokenizerData> tokenizer_from_gguf(const GgufReader& gguf);

// A pre-tokeniser that "tokenizer.ggml.pre" names: splits, applied in order, and two rules.
struct GgufPretokenizer {
  std::string_view name;
  const char* expressions[6];  // in order; null after the last
  bool ignore_merges;          // a piece in the vocabulary becomes that token without merges
  bool add_bos;                // unless the file says otherwise
};

// Returns the entry of that name, or null. Threads: any.
const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name) noexcept;
std::span<const GgufPretokenizer> gguf_pretokenizers() noexcept;

// Returns GPT-2's expression, the default of byte-level pre-tokenisers.
const char* gpt2_expression() noexcept;

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_
