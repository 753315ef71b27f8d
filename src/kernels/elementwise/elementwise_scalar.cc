// SPDX-License-Identifier: MIT
//
// Element-by-element arithmetic, scalar tier: loops that any compiler vectorises.

#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {

void add_scalar(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept {
  for (std::uint32_t i = 0; i < n_values; ++i) out[i] = a[i] + b[i];
}
void add_in_place_scalar(float* x, const float* b, std::uint32_t n_values) noexcept {
  for (std::uint32_t i = 0; i < n_values; ++i) x[i] += b[i];
}
void mul_scalar(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept {
  for (std::uint32_t i = 0; i < n_values; ++i) out[i] = a[i] * b[i];
}
void scale_scalar(float* x, float factor, std::uint32_t n_values) noexcept {
  for (std::uint32_t i = 0; i < n_values; ++i) x[i] *= factor;
}
void copy_scalar(const float* from, float* to, std::uint32_t n_values) noexcept {
  if (n_values > 0) std::memmove(to, from, std::size_t{n_values} * sizeof(float));
}

}  // namespace qsf::kernels
