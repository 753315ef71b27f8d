// SPDX-License-Identifier: MIT
//
// Slices: the sets of characters whose tokens are known beforehand.
//
// Where a grammar repeats a class that has all characters of a slice, every token of such
// characters may follow, as many as the repetition still takes, and only the other tokens are
// looked at.

#ifndef QSF_GRAMMAR_TOKEN_SLICES_H_
#define QSF_GRAMMAR_TOKEN_SLICES_H_

#include <cstdint>
#include <span>

#include "grammar/char_set.h"

namespace qsf {

inline constexpr std::uint8_t kNoSlice = 0xFF;
// Tokens of more characters belong to no slice.
inline constexpr std::uint32_t kMaxSliceChars = 16;

// The larger ones first.
std::span<const CharSet> token_slices();

}  // namespace qsf

#endif  // QSF_GRAMMAR_TOKEN_SLICES_H_
