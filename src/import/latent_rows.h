// SPDX-License-Identifier: MIT
//
// Rows of latent attention (model/decoder_latent.cc). Files rotate neighbouring columns, the last
// of each query and of the shared row; the engine rotates halves (rope_pairs.h), and the first
// columns of the shared row.

#ifndef QSF_IMPORT_LATENT_ROWS_H_
#define QSF_IMPORT_LATENT_ROWS_H_

#include <cstdint>

#include "import/rope_pairs.h"

namespace qsf {

// Returns where a row of the queries is stored: heads of n_key rows, then n_rope that rotate.
constexpr std::uint64_t stored_latent_query_row(std::uint64_t row, std::uint32_t n_key,
                                                std::uint32_t n_rope) noexcept {
  const std::uint64_t in_head = row % (n_key + n_rope);
  if (in_head < n_key) return row;
  return row - in_head + n_key + stored_rope_row(in_head - n_key, n_rope, n_rope);
}

// Returns where a row of the product that gives the shared row is stored.
constexpr std::uint64_t stored_latent_row(std::uint64_t row, std::uint32_t n_latent,
                                          std::uint32_t n_rope) noexcept {
  if (row >= n_rope) return row - n_rope;
  return n_latent + stored_rope_row(row, n_rope, n_rope);
}

}  // namespace qsf

#endif  // QSF_IMPORT_LATENT_ROWS_H_
