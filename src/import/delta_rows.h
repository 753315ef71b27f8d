// SPDX-License-Identifier: MIT
//
// The rows of the matrices that a delta rule and a gated attention read, as files store them.
//
// Qwen3-Next stores for each group of heads the rows of its query, its key, the values and the
// gates of its heads, and for each group the rates and the time steps of its heads. Queries of
// attention lie beside their gates, head by head.

#ifndef QSF_IMPORT_DELTA_ROWS_H_
#define QSF_IMPORT_DELTA_ROWS_H_

#include <cstdint>

#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {

// Row i of ours is row first + i / run * step + i % run of `n_stored`.
struct RowRuns {
  std::uint64_t n_stored = 0;
  std::uint64_t first = 0;
  std::uint64_t run = 0;
  std::uint64_t step = 0;
};

// Of queries of attention or of their gates.
inline RowRuns gated_query_rows(const ModelSpec& spec, TensorKind kind) noexcept {
  const std::uint64_t width = spec.head_dim;
  return {.n_stored = std::uint64_t{2} * spec.q_dim(),
          .first = kind == TensorKind::kAttnGate ? width : 0,
          .run = width,
          .step = 2 * width};
}

// Of rates or time steps that are stored by group.
inline RowRuns rate_rows_by_group(const ModelSpec& spec, TensorKind kind) noexcept {
  const std::uint64_t n_heads = spec.mixer_heads / spec.mixer_groups;
  return {.n_stored = std::uint64_t{2} * spec.mixer_heads,
          .first = kind == TensorKind::kDeltaStep ? n_heads : 0,
          .run = n_heads,
          .step = 2 * n_heads};
}

// Of gates, in a matrix of all inputs by group.
inline RowRuns gate_rows_by_group(const ModelSpec& spec) noexcept {
  const std::uint64_t keys = std::uint64_t{2} * spec.mixer_state;
  const std::uint64_t values = spec.mixer_out() / spec.mixer_groups;
  return {.n_stored = spec.conv_channels() + std::uint64_t{spec.mixer_out()},
          .first = keys + values,
          .run = values,
          .step = keys + 2 * values};
}

// Returns where row `row` of all queries, all keys, all values lies in the same matrix.
inline std::uint64_t input_row_by_group(const ModelSpec& spec, std::uint64_t row) noexcept {
  const std::uint64_t width = spec.mixer_state;
  const std::uint64_t all_keys = width * spec.mixer_groups;
  const std::uint64_t values = spec.mixer_out() / spec.mixer_groups;
  const std::uint64_t step = 2 * (width + values);
  if (row < 2 * all_keys) {
    const std::uint64_t in_part = row % all_keys;
    return in_part / width * step + row / all_keys * width + in_part % width;
  }
  const std::uint64_t value = row - 2 * all_keys;
  return value / values * step + 2 * width + value % values;
}

}  // namespace qsf

#endif  // QSF_IMPORT_DELTA_ROWS_H_
