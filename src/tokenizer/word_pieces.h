// SPDX-License-Identifier: MIT
//
// WordPiece: takes from the front of a word the longest token again and again.
//
// Tokens that continue a word are stored with ## in front. A word of which a part has no token, or
// of more than 100 characters, is one unknown token.
//
// Based on: Wu et al., "Google's neural machine translation system", 2016; Devlin et al., "BERT",
// 2018.

#ifndef QSF_TOKENIZER_WORD_PIECES_H_
#define QSF_TOKENIZER_WORD_PIECES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_section.h"
#include "tokenizer/vocab_index.h"

namespace qsf {

inline constexpr std::string_view kContinuation = "##";
inline constexpr std::size_t kMaxWordCharacters = 100;

class WordPieces {
 public:
  WordPieces() = default;
  WordPieces(const SectionView& section, const VocabIndex& index)
      : section_(section), index_(index) {}

  // Encodes one word and appends its tokens; `buffer` is overwritten.
  // Threads  any, each with its own buffer
  void encode(std::string_view word, std::string& buffer, std::vector<TokenId>& out) const;

 private:
  SectionView section_;
  VocabIndex index_;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_WORD_PIECES_H_
