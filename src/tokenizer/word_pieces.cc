// SPDX-License-Identifier: MIT

#include "tokenizer/word_pieces.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace qsf {

void WordPieces::encode(std::string_view word, std::string& buffer,
                        std::vector<TokenId>& out) const {
  std::size_t n_characters = 0;
  for (std::size_t at = 0; at < word.size() && n_characters <= kMaxWordCharacters; ++n_characters) {
    at += decode_utf8(word, at).n_bytes;
  }
  const std::size_t before = out.size();
  const std::size_t longest = section_.longest_token_bytes();
  std::size_t begin = 0;
  bool known = n_characters <= kMaxWordCharacters;
  while (known && begin < word.size()) {
    const std::string_view prefix = begin == 0 ? std::string_view() : kContinuation;
    std::size_t end = begin + std::min(word.size() - begin, longest);
    TokenId id = kNoToken;
    for (; end > begin; --end) {
      if (end < word.size() && is_utf8_continuation(word[end])) continue;
      buffer.assign(prefix).append(word.substr(begin, end - begin));
      id = index_.find_token(buffer);
      if (id != kNoToken) break;
    }
    known = id != kNoToken;
    out.push_back(id);
    begin = end;
  }
  if (known) return;
  out.resize(before);
  out.push_back(section_.unk());
}

}  // namespace qsf
