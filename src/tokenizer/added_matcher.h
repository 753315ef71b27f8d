// SPDX-License-Identifier: MIT
//
// Finds added tokens in a text: the leftmost first, and the longest of those at one position.
//
// The section stores them sorted, so the candidates at a position are a range, which binary search
// narrows byte by byte. This needs no trie and no memory except one bit per first byte.
//
// Based on: the behaviour of Hugging Face tokenizers' added vocabulary (lstrip, rstrip,
// single_word).

#ifndef QSF_TOKENIZER_ADDED_MATCHER_H_
#define QSF_TOKENIZER_ADDED_MATCHER_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {

// A stretch of text: the token `id`, or text to be encoded where `id` is kNoToken.
struct Segment {
  Piece piece;
  TokenId id;
};

// The places in a text where special entries may match: everywhere, nowhere, or only where every
// byte of the match is marked.
class SpecialMask {
 public:
  static constexpr char kMarked = 1;
  static constexpr char kUnmarked = 0;

  explicit SpecialMask(bool everywhere) : everywhere_(everywhere) {}
  // One mark for each byte of the text; they must outlive the mask. Empty for an empty text.
  explicit SpecialMask(std::string_view marks) : marks_(marks) {}

  bool is_mixed() const noexcept { return !marks_.empty(); }
  std::string_view marks() const noexcept { return marks_; }

  // Returns the mask of the stretch [begin, end) of the text.
  SpecialMask part(std::size_t begin, std::size_t end) const noexcept {
    return is_mixed() ? SpecialMask(marks_.substr(begin, end - begin)) : *this;
  }
  // Whether every byte of [begin, end) is marked; whether at least one is.
  bool allows(std::size_t begin, std::size_t end) const noexcept {
    return is_mixed() ? !holds(begin, end, kUnmarked) : everywhere_;
  }
  bool allows_any(std::size_t begin, std::size_t end) const noexcept {
    return is_mixed() ? holds(begin, end, kMarked) : everywhere_;
  }

 private:
  bool holds(std::size_t begin, std::size_t end, char mark) const noexcept {
    return marks_.substr(begin, end - begin).find(mark) != std::string_view::npos;
  }

  std::string_view marks_;
  bool everywhere_ = false;
};

class AddedMatcher {
 public:
  AddedMatcher() = default;
  // Takes the entries of one stage. `section` must be fully checked.
  AddedMatcher(const SectionView& section, bool normalized);

  bool empty() const noexcept { return first_ == last_; }

  // Cuts `text` and appends its segments in order, none empty. Special entries match only where
  // `mask`, the mask of this text, allows it.
  // Threads  any
  void split(std::string_view text, const SpecialMask& mask, std::vector<Segment>& out) const;

 private:
  // Returns the entry of the longest match at `position` that the mask, if any, allows; or last_.
  std::uint32_t longest_at(std::string_view text, std::size_t position,
                           const SpecialMask* mask) const noexcept;
  // Returns the matching entry at `position`; or last_, and then moves `position` to the next
  // candidate.
  std::uint32_t match_at(std::string_view text, const SpecialMask& mask,
                         std::size_t& position) const noexcept;

  SectionView section_;
  std::uint32_t first_ = 0;  // entries [first_, last_) of the section
  std::uint32_t last_ = 0;
  std::bitset<256> first_bytes_;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_ADDED_MATCHER_H_
