// SPDX-License-Identifier: MIT
//
// Arrays between f32 and the half-width storage types.

#ifndef QSF_KERNELS_CONVERT_CONVERT_H_
#define QSF_KERNELS_CONVERT_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/f16.h"
#include "kernels/tier.h"

namespace qsf::kernels {

// Common to all: no alignment beyond the element's; from and to do not overlap. Widening is exact
// and narrowing rounds to nearest even, so every tier gives the same bits (a NaN's payload aside).
struct ConvertKernels {
  const char* name;  // "convert_scalar"
  Isa isa;
  Exactness exactness;

  void (*f16_to_f32)(const F16* from, float* to, std::size_t n_values) noexcept;
  void (*bf16_to_f32)(const BF16* from, float* to, std::size_t n_values) noexcept;
  void (*f32_to_f16)(const float* from, F16* to, std::size_t n_values) noexcept;
  void (*f32_to_bf16)(const float* from, BF16* to, std::size_t n_values) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const ConvertKernels> convert_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_CONVERT_CONVERT_H_
