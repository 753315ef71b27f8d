// SPDX-License-Identifier: MIT
//
// The tokenizer of a GGUF file, from its "tokenizer.ggml." keys.
//
// Two models are known: "gpt2" (byte-level BPE, with the splits its "pre" key names) and "llama"
// (SentencePiece BPE). Others are refused by name, and so is a "pre" that is not in the table: a
// wrong split would silently change what the model reads.

#ifndef QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_
#define QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_

#include <span>
#include <string_view>

#include "base/result.h"
#include "import/gguf/gguf_reader.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Fails    kNotFound when the file has no tokenizer; kUnsupported on another model or
// pre-tokeniser;
//          kCorrupt on tokens, scores, types or merges that do not fit together
// Threads  any
Result<TokenizerData> tokenizer_from_gguf(const GgufReader& gguf);

// What the values of GGUF's "tokenizer.ggml.pre" mean: a list of splits, applied one after another,
// and two rules that go with the name.

struct GgufPretokenizer {
  std::string_view name;
  const char* expressions[6];  // in order; null after the last
  bool ignore_merges;          // a piece that is a token is that token
  bool add_bos;                // unless the file says otherwise
};

// Returns the entry of that name, or null. Threads: any.
const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name) noexcept;
std::span<const GgufPretokenizer> gguf_pretokenizers() noexcept;

// Returns GPT-2's expression, which byte-level pre-tokenisers use unless told otherwise.
const char* gpt2_expression() noexcept;

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_
