// SPDX-License-Identifier: MIT
//
// A step of a selective scan: what a head's columns remember, and what they give for one row.

#ifndef QSF_KERNELS_SCAN_SCAN_H_
#define QSF_KERNELS_SCAN_SCAN_H_

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

//   after[n][p] = decay before[n][p] + (step x[p]) b[n]
//   y[p] = skip x[p] + sum of after[n][p] c[n] over n, the smallest n first
//
// Shapes  x, y [n_cols], b, c [n_state], before, after [n_state, n_cols], all f32. No alignment is
// assumed; after may be before, other overlap is not allowed.
struct ScanStep {
  const float* x;
  const float* b;
  const float* c;
  const float* before;
  float* after;
  float* y;
  float decay;
  float step;
  float skip;
  std::uint32_t n_cols;
  std::uint32_t n_state;
};

// Columns are lanes, so nothing is added across them and every tier gives the same bits.
struct ScanKernels {
  const char* name;  // "scan_scalar"
  Isa isa;
  Exactness exactness;

  void (*take_step)(const ScanStep& step) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const ScanKernels> scan_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_SCAN_SCAN_H_
