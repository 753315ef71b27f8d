// SPDX-License-Identifier: MIT
//
// Finds added tokens in a text: leftmost first, the longest where several begin.
//
// The section stores them sorted, so the candidates at a position narrow to a range that binary
// search shrinks byte by byte; no trie and no memory of its own but one bit per first byte.
//
// Based on: the behaviour of Hugging Face tokenizers' added vocabulary (lstrip, rstrip,
// single_word).

#ifndef QSF_TOKENIZER_ADDED_MATCHER_H_
#define QSF_TOKENIZER_ADDED_MATCHER_H_

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {

// A stretch of text: one token where `id` says so, text yet to be encoded where it is kNoToken.
struct Segment {
  Piece piece;
  TokenId id;
};

class AddedMatcher {
 public:
  AddedMatcher() = default;
  // Takes the entries of one stage. `section` must be fully checked.
  AddedMatcher(const SectionView& section, bool normalized);

  bool empty() const noexcept { return first_ == last_; }

  // Cuts `text` and appends its segments in order, none empty. Special entries count only with
  // `parse_special`.
  // Threads  any
  void split(std::string_view text, bool parse_special, std::vector<Segment>& out) const;

 private:
  // Returns the entry of the longest match at `position`, or last_.
  std::uint32_t longest_at(std::string_view text, std::size_t position) const noexcept;

  SectionView section_;
  std::uint32_t first_ = 0;  // entries [first_, last_) of the section
  std::uint32_t last_ = 0;
  std::bitset<256> first_bytes_;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_ADDED_MATCHER_H_
