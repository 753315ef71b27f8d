// SPDX-License-Identifier: MIT
//
// Products of a row with the two matrices of a low-rank adapter.
//
// Based on: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.

#ifndef QSF_KERNELS_LOW_RANK_LOW_RANK_H_
#define QSF_KERNELS_LOW_RANK_LOW_RANK_H_

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

// Values of a matrix: f32, or f16 with `halves`. No alignment is assumed.
struct LowRankValues {
  const void* data;
  bool halves;
};

//   y[r] = scale * sum of a[r][i] x[i] over i
// Shapes  a [rank, n_cols], row-major; x [n_cols], y [rank], f32
struct LowRankDown {
  LowRankValues a;
  const float* x;
  float* y;
  float scale;
  std::uint32_t rank;
  std::uint32_t n_cols;
};

//   y[j] += sum of b[j][r] x[r] over r
// Shapes  b in groups of 16 rows, [n_rows / 16, rounded up][rank][16]; x [rank], y [n_rows], f32
struct LowRankUp {
  LowRankValues b;
  const float* x;
  float* y;
  std::uint32_t rank;
  std::uint32_t n_rows;
};

// Sums are in f32: over i in sixteen lanes, which are then added in one order, and over r from the
// smallest on. Every tier gives the same bits. x and y do not overlap.
struct LowRankKernels {
  const char* name;  // "low_rank_scalar"
  Isa isa;
  Exactness exactness;

  void (*down)(const LowRankDown& product) noexcept;
  void (*add_up)(const LowRankUp& product) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const LowRankKernels> low_rank_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_LOW_RANK_LOW_RANK_H_
