// SPDX-License-Identifier: MIT
//
// Rows of a matrix of ours inside a stored matrix that adapters of other formats were made for: a
// part of a fused projection, or rows in the order of RoPE on neighbours. A pair for the stored
// matrix becomes one for each of ours: A is the same, B's rows are chosen and ordered.

#ifndef QSF_IMPORT_ADAPTER_ROWS_H_
#define QSF_IMPORT_ADAPTER_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/model_spec.h"
#include "import/delta_rows.h"
#include "import/latent_rows.h"
#include "import/rope_pairs.h"

namespace qsf {

// Row i of ours is stored at first + i / run * step + i % run, or in another order.
struct OutputRows {
  enum class Order : std::uint8_t { kRuns, kPairedRope, kLatentQuery, kLatentRow, kKeyGroups };

  std::uint64_t n_stored = 0;  // rows of the stored matrix
  std::uint64_t first = 0;
  std::uint64_t run = 0;  // at least 1
  std::uint64_t step = 0;
  Order order = Order::kRuns;
};

// All rows of a matrix, in its order.
constexpr OutputRows plain_rows(std::uint64_t n_rows) noexcept {
  return {.n_stored = n_rows, .run = n_rows};
}

// Neighbouring rows of a larger matrix.
constexpr OutputRows part_of_rows(std::uint64_t first, std::uint64_t n_rows,
                                  std::uint64_t n_stored) noexcept {
  return {.n_stored = n_stored, .first = first, .run = n_rows};
}

constexpr OutputRows rows_in_runs(const RowRuns& runs) noexcept {
  return {.n_stored = runs.n_stored, .first = runs.first, .run = runs.run, .step = runs.step};
}

// Returns where row `row` of ours is stored.
inline std::uint64_t stored_output(const ModelSpec& spec, const OutputRows& rows,
                                   std::uint64_t row) noexcept {
  switch (rows.order) {
    case OutputRows::Order::kPairedRope:
      return rows.first + stored_rope_row(row, spec.head_dim, spec.rope_dims());
    case OutputRows::Order::kLatentQuery:
      return stored_latent_query_row(row, spec.latent_key_dim, spec.rope.dims);
    case OutputRows::Order::kLatentRow:
      return stored_latent_row(row, spec.latent_dim, spec.rope.dims);
    case OutputRows::Order::kKeyGroups: return input_row_by_group(spec, row);
    case OutputRows::Order::kRuns: break;
  }
  return rows.first + row / rows.run * rows.step + row % rows.run;
}

// Takes our rows of B out of the stored ones.
// Shapes    stored [n_stored, rank], out [n_rows, rank]
// Requires  every row of ours is stored
inline void take_outputs(const ModelSpec& spec, const OutputRows& rows, std::uint32_t rank,
                         std::span<const float> stored, std::span<float> out) noexcept {
  for (std::size_t row = 0; row * rank < out.size(); ++row) {
    const std::uint64_t from = stored_output(spec, rows, row) * rank;
    for (std::uint32_t i = 0; i < rank; ++i) out[row * rank + i] = stored[from + i];
  }
}

}  // namespace qsf

#endif  // QSF_IMPORT_ADAPTER_ROWS_H_
