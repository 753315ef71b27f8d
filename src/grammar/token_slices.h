// SPDX-License-Identifier: MIT
//
// Slices: the sets of characters whose tokens are known beforehand.
//
// Where a grammar cannot tell the characters of a slice apart, as in the text of a string, every
// token of such characters may follow, as many characters as the grammar still takes, and only the
// other tokens are looked at.

#ifndef QSF_GRAMMAR_TOKEN_SLICES_H_
#define QSF_GRAMMAR_TOKEN_SLICES_H_

#include <array>
#include <bitset>
#include <cstdint>

#include "grammar/char_set.h"

namespace qsf {

inline constexpr std::size_t kTokenSlices = 5;
// Characters of a token that are counted.
inline constexpr std::uint32_t kMaxSliceChars = 16;

struct TokenSlice {
  bool has_ascii(std::uint8_t byte) const noexcept { return byte < 0x80 && ascii[byte]; }
  std::bitset<0x80> ascii;
  bool high;  // it has all of high_chars() too
};

// The larger ones first.
const std::array<TokenSlice, kTokenSlices>& token_slices();
// All characters outside ASCII but spaces and ends of lines, which patterns tell from the others.
const CharSet& high_chars();
inline constexpr std::array<std::uint8_t, 2> kSomeHighChar = {0xC3, 0xA9};

}  // namespace qsf

#endif  // QSF_GRAMMAR_TOKEN_SLICES_H_
