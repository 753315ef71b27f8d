// SPDX-License-Identifier: MIT
//
// Adapters of low rank: what rows of a pass add to their products.
//
// The rows of one pass may have different adapters. Each row is multiplied on its own, in f32, so
// that its bits are those that it has alone.

#include <algorithm>

#include "base/check.h"
#include "ops/cpu_backend.h"

namespace qsf {
namespace {

std::size_t value_bytes(const LowRankPair& pair) noexcept {
  return pair.halves ? sizeof(F16) : sizeof(float);
}

}  // namespace

void CpuBackend::multiply_low_rank(Buffer in, std::uint32_t n_rows, std::uint32_t n_cols,
                                   const AdapterProducts& adapters) {
  const Observation observed(*this, OperatorKind::kAdapters, in, adapters.products, {});
  OperatorTimes& times = profile_[OperatorKind::kAdapters];
  const OperatorTimer timer(times);
  const Matrix& x = matrix(in);
  const Matrix& products = matrix(adapters.products);
  QSF_DCHECK(n_rows <= products.n_rows && n_cols <= x.n_cols);
  QSF_DCHECK(adapters.n_matrices * adapters.max_rank <= products.n_cols);
  std::uint64_t n_values = 0;
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    const std::uint32_t adapter = adapted_row(adapters, row).adapter;
    for (std::uint32_t i = 0; adapter != 0 && i < adapters.n_matrices; ++i) {
      n_values += std::uint64_t{adapters.pair(adapter, i).rank} * n_cols;
    }
  }
  times.operations += 2 * n_values;
  // Rows of A are shared out, because a generated row alone has few products.
  constexpr std::uint32_t kChunk = 4;
  const std::size_t n_chunks = (adapters.max_rank + kChunk - 1) / kChunk;
  const auto multiply = [&](std::size_t at) {
    const auto first = static_cast<std::uint32_t>(at % n_chunks) * kChunk;
    const auto row = static_cast<std::uint32_t>(at / n_chunks / adapters.n_matrices);
    const auto i = static_cast<std::uint32_t>(at / n_chunks % adapters.n_matrices);
    const Row& of_pass = adapted_row(adapters, row);
    if (of_pass.adapter == 0) return;
    const LowRankPair& pair = adapters.pair(of_pass.adapter, i);
    if (pair.a == nullptr || first >= pair.rank) return;
    kernels_.low_rank.down({.a = {.data = pair.a + std::size_t{first} * n_cols * value_bytes(pair),
                                  .halves = pair.halves},
                            .x = x.row(row),
                            .y = products.row(row) + std::size_t{i} * adapters.max_rank + first,
                            .scale = pair.scale * of_pass.adapter_scale,
                            .rank = std::min(kChunk, pair.rank - first),
                            .n_cols = n_cols});
  };
  constexpr std::uint64_t kValuesWorthAFork = 1U << 14;
  const std::size_t n_parts = n_rows * adapters.n_matrices * n_chunks;
  if (n_values < kValuesWorthAFork) {
    for (std::size_t at = 0; at < n_parts; ++at) multiply(at);
    return;
  }
  pool_.parallel_for(n_parts, n_rows == 1 ? 1 : n_chunks,
                     [&](std::size_t begin, std::size_t end, unsigned) {
                       for (std::size_t at = begin; at < end; ++at) multiply(at);
                     });
}

// piece += B (scale * A x), for the rows of B that the piece has
void CpuBackend::add_adapter(const AdapterProducts& adapters, std::uint32_t matrix_number,
                             std::uint32_t row, const WorkItem& item, float* piece) {
  const std::uint32_t adapter = adapted_row(adapters, row).adapter;
  if (adapter == 0) return;
  const LowRankPair& pair = adapters.pair(adapter, matrix_number);
  if (pair.b == nullptr) return;
  kernels_.low_rank.add_up(
      {.b = {.data = pair.b + std::size_t{item.first_row} * pair.rank * value_bytes(pair),
             .halves = pair.halves},
       .x = matrix(adapters.products).row(row) + std::size_t{matrix_number} * adapters.max_rank,
       .y = piece,
       .rank = pair.rank,
       .n_rows = item.n_rows});
}

}  // namespace qsf
