// SPDX-License-Identifier: MIT
//
// A step of a selective scan or of a gated delta rule: what a head's columns remember, and what
// they give for one row.

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

//   h[n][p] = decay before[n][p]
//   after[n][p] = h[n][p] + rate (value[p] - sum of h[n][p] key[n] over n) key[n]
//   y[p] = sum of after[n][p] query[n] over n
//
// Sums begin with the smallest n. Shapes and overlap are those of a ScanStep.
struct DeltaStep {
  const float* value;
  const float* key;
  const float* query;
  const float* before;
  float* after;
  float* y;
  float decay;
  float rate;
  std::uint32_t n_cols;
  std::uint32_t n_state;
};

// Columns are lanes, so nothing is added across them and every tier gives the same bits.
struct ScanKernels {
  const char* name;  // "scan_scalar"
  Isa isa;
  Exactness exactness;

  void (*take_step)(const ScanStep& step) noexcept;
  void (*take_delta_step)(const DeltaStep& step) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const ScanKernels> scan_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_SCAN_SCAN_H_
