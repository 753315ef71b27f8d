// SPDX-License-Identifier: MIT

#include "grammar/token_slices.h"

#include <array>

namespace qsf {

std::span<const CharSet> token_slices() {
  static const std::array<CharSet, 1> slices = {
      // The inside of a JSON string, escapes aside.
      CharSet::all().without(CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})),
  };
  return slices;
}

}  // namespace qsf
