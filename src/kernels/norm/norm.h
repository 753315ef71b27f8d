// SPDX-License-Identifier: MIT
//
// Normalisation of one row of hidden values.
//
// Sums are taken in double in a fixed order of lanes, so a row of any length loses nothing that f32
// results could show, and the result never depends on what else is computed. Every tier gives the
// same bits.

#ifndef QSF_KERNELS_NORM_NORM_H_
#define QSF_KERNELS_NORM_NORM_H_

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

// Common to all: x, gain, bias and y are [n_values]; y may be x itself, other overlap is not
// allowed; no alignment is assumed; gain and bias may be null and then count as 1 and 0.
struct NormKernels {
  const char* name;  // "norm_scalar"
  Isa isa;
  Exactness exactness;

  // y = x / sqrt(mean(x^2) + eps) * gain
  void (*rms_norm)(const float* x, const float* gain, float* y, std::uint32_t n_values,
                   float eps) noexcept;

  // y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * gain + bias
  void (*layer_norm)(const float* x, const float* gain, const float* bias, float* y,
                     std::uint32_t n_values, float eps) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const NormKernels> norm_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_NORM_NORM_H_
