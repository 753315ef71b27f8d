// SPDX-License-Identifier: MIT
//
// Sums, products and copies of arrays: residual connections, biases, gates.
//
// There is no kernel that fills memory with a pattern: std::fill does, and becomes the C library's
// memset or a loop of stores, which memory bounds either way.

#ifndef QSF_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define QSF_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

// Common to all: arrays are [n_values] f32, no alignment is assumed; out may be an input itself,
// other overlap is not allowed. One rounding per element, so every tier gives the same bits.
struct ElementwiseKernels {
  const char* name;  // "elementwise_scalar"
  Isa isa;
  Exactness exactness;

  void (*add)(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept;
  void (*add_in_place)(float* x, const float* b, std::uint32_t n_values) noexcept;  // x += b
  void (*mul)(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept;
  void (*scale)(float* x, float factor, std::uint32_t n_values) noexcept;  // x *= factor
  void (*copy)(const float* from, float* to, std::uint32_t n_values) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const ElementwiseKernels> elementwise_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
