// SPDX-License-Identifier: MIT

#include "grammar/token_slices.h"

#include <initializer_list>
#include <utility>

namespace qsf {

namespace {

TokenSlice slice_of(std::initializer_list<std::pair<char, char>> ranges, bool high) {
  TokenSlice slice = {{}, high};
  for (const auto& [first, last] : ranges) {
    for (int c = first; c <= last; ++c) slice.ascii.set(static_cast<std::size_t>(c));
  }
  return slice;
}

}  // namespace

const std::array<TokenSlice, kTokenSlices>& token_slices() {
  static const std::array<TokenSlice, kTokenSlices> slices = {
      // The inside of a JSON string, escapes aside.
      slice_of({{' ', '!'}, {'#', '['}, {']', '\x7F'}}, true),
      slice_of({{' ', ' '}, {'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, true),
      slice_of({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, true),
      slice_of({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, false),
      slice_of({{'a', 'z'}}, false),
  };
  return slices;
}

const CharSet& high_chars() {
  static const CharSet set = CharSet({{0x80, kLastCodePoint}})
                                 .without(CharSet({{0x85, 0x85},
                                                   {0xA0, 0xA0},
                                                   {0x1680, 0x1680},
                                                   {0x2000, 0x200A},
                                                   {0x2028, 0x2029},
                                                   {0x202F, 0x202F},
                                                   {0x205F, 0x205F},
                                                   {0x3000, 0x3000},
                                                   {0xFEFF, 0xFEFF}}));
  return set;
}

}  // namespace qsf
