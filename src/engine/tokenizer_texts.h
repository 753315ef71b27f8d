// SPDX-License-Identifier: MIT
//
// TokenizerTexts: the tokens of a model as grammars see them.

#ifndef QSF_ENGINE_TOKENIZER_TEXTS_H_
#define QSF_ENGINE_TOKENIZER_TEXTS_H_

#include <algorithm>
#include <string>

#include "format/model_spec.h"
#include "grammar/token_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class TokenizerTexts final : public TokenTexts {
 public:
  // Requires  both outlive this
  TokenizerTexts(const Tokenizer& tokenizer, const ModelSpec& spec) noexcept
      : tokenizer_(tokenizer), spec_(spec) {}

  std::uint32_t n_tokens() const override { return spec_.n_vocab; }
  Kind kind(std::uint32_t token) const override {
    const auto& ends = spec_.eos_ids;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) return Kind::kEnd;
    if (token >= tokenizer_.n_tokens()) return Kind::kControl;
    if (tokenizer_.is_stop(token)) return Kind::kEnd;
    return tokenizer_.is_special(token) ? Kind::kControl : Kind::kText;
  }
  void append(std::uint32_t token, bool controls, std::string& out) const override {
    if (token < tokenizer_.n_tokens()) tokenizer_.append_bytes(token, !controls, out);
  }

 private:
  const Tokenizer& tokenizer_;
  const ModelSpec& spec_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_TOKENIZER_TEXTS_H_
