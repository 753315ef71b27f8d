// SPDX-License-Identifier: MIT
//
// What the values of GGUF's "tokenizer.ggml.pre" mean: a list of splits, applied one after another,
// and two rules that go with the name.

#ifndef QSF_IMPORT_GGUF_GGUF_PRETOKENIZERS_H_
#define QSF_IMPORT_GGUF_GGUF_PRETOKENIZERS_H_

#include <span>
#include <string_view>

namespace qsf {

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

#endif  // QSF_IMPORT_GGUF_GGUF_PRETOKENIZERS_H_
