// SPDX-License-Identifier: MIT
//
// Rows of queries and keys for RoPE. The engine rotates halves: element i of a head with element
// i + dims / 2. Some files are made for rotating neighbours: element 2i with element 2i + 1. Scores
// are the same when the rotating rows of every head are reordered, evens before odds.

#ifndef QSF_IMPORT_ROPE_PAIRS_H_
#define QSF_IMPORT_ROPE_PAIRS_H_

#include <cstdint>

namespace qsf {

// Returns where row `row` of the engine's order is stored in a file of neighbours; rows behind the
// first `dims` of a head do not rotate and stay.
// Requires  dims is even and at most head_dim
constexpr std::uint64_t stored_rope_row(std::uint64_t row, std::uint32_t head_dim,
                                        std::uint32_t dims) noexcept {
  const std::uint64_t in_head = row % head_dim;
  if (in_head >= dims) return row;
  const std::uint64_t half = dims / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

}  // namespace qsf

#endif  // QSF_IMPORT_ROPE_PAIRS_H_
