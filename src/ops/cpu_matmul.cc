// SPDX-License-Identifier: MIT
//
// Products of rows and weight tiles: the work is cut into bands of 16-row groups of the weights, so
// that the column dimension is never split and each output is computed by one worker in one order.

#include <algorithm>

#include "base/check.h"
#include "ops/cpu_backend.h"
#include "platform/clock.h"

namespace qsf {
namespace {

constexpr std::uint32_t kBandsPerWorker = 8;  // enough to even out a worker that is held up

std::uint32_t n_groups(const MatmulTile& tile) {
  return static_cast<std::uint32_t>(ceil_div(tile.n_rows, kRowGroup));
}

}  // namespace

void CpuBackend::matmul(const MatmulArgs& args) {
  const std::uint64_t start = monotonic_ns();
  std::size_t total_groups = 0;
  for (const MatmulTile& tile : args.tiles) total_groups += n_groups(tile);
  const std::size_t grain = std::max<std::size_t>(
      1, total_groups / (static_cast<std::size_t>(pool_.n_threads()) * kBandsPerWorker));
  pool_.parallel_for(total_groups, grain, [&](std::size_t begin, std::size_t end, unsigned) {
    std::size_t before = 0;  // groups of the tiles already passed
    for (const MatmulTile& tile : args.tiles) {
      const std::size_t groups = n_groups(tile);
      const std::size_t first = std::max(begin, before) - before;
      const std::size_t last = std::min(end, before + groups);
      if (last > before && first < last - before) {
        multiply_band(args, tile, static_cast<std::uint32_t>(first),
                      static_cast<std::uint32_t>(last - before));
      }
      before += groups;
      if (before >= end) break;
    }
  });
  times_.matmul_ns += monotonic_ns() - start;
}

// Multiplies groups [first_group, last_group) of one tile with every row, run by run.
void CpuBackend::multiply_band(const MatmulArgs& args, const MatmulTile& tile,
                               std::uint32_t first_group, std::uint32_t last_group) {
  const std::uint32_t n_band_rows =
      std::min(last_group * kRowGroup, tile.n_rows) - first_group * kRowGroup;
  if (args.row_list.empty()) {
    if (args.rows.n_prompt > 0) {
      multiply_run(args, tile, first_group, n_band_rows, 0, args.rows.n_prompt);
    }
    if (args.rows.n_rows > args.rows.n_prompt) {
      multiply_run(args, tile, first_group, n_band_rows, args.rows.n_prompt, args.rows.n_rows);
    }
    return;
  }
  for (std::size_t i = 0; i < args.row_list.size();) {
    const std::uint32_t first_row = args.row_list[i];
    const bool prompt = first_row < args.rows.n_prompt;
    const std::uint32_t stop = prompt ? args.rows.n_prompt : args.rows.n_rows;
    std::size_t j = i + 1;
    while (j < args.row_list.size() && args.row_list[j] == args.row_list[j - 1] + 1 &&
           args.row_list[j] < stop) {
      ++j;
    }
    multiply_run(args, tile, first_group, n_band_rows, first_row, args.row_list[j - 1] + 1);
    i = j;
  }
}

// Rows [first_row, last_row).
void CpuBackend::multiply_run(const MatmulArgs& args, const MatmulTile& tile,
                              std::uint32_t first_group, std::uint32_t n_band_rows,
                              std::uint32_t first_row, std::uint32_t last_row) {
  const MatmulTarget& target = args.targets[tile.target];
  const Matrix& in = matrix(args.in);
  const Matrix& out = matrix(target.out);
  const std::uint32_t weight_row = tile.first_row + first_group * kRowGroup;
  const std::uint32_t column = weight_row - target.first_weight_row;
  QSF_DCHECK(weight_row >= target.first_weight_row && column + n_band_rows <= out.n_cols);
  QSF_DCHECK(last_row <= in.n_rows && last_row <= out.n_rows && tile.n_cols <= in.n_cols);
  const std::byte* weights = tile.bytes + first_group * tile.group_bytes;
  kernels_.matmul(tile.format, kernels::Input::kF32)
      .run({.weights = weights,
            .group_bytes = tile.group_bytes,
            .x = reinterpret_cast<const std::byte*>(in.row(first_row)),
            .x_stride = in.stride * sizeof(float),
            .y = out.row(first_row) + column,
            .y_stride = out.stride,
            .n_x = last_row - first_row,
            .n_rows = n_band_rows,
            .n_cols = tile.n_cols});
  for (std::uint32_t row = first_row; row < last_row; ++row) {
    float* y = out.row(row) + column;
    if (args.hook.run != nullptr) {
      args.hook.run(args.hook.user, tile.target, row, weight_row, {y, n_band_rows});
    }
    if (!target.bias.empty()) {
      kernels_.elementwise.add(y, target.bias.data() + weight_row, y, n_band_rows);
    }
  }
}

}  // namespace qsf
