// SPDX-License-Identifier: MIT
//
// Element-by-element arithmetic, written once for every tier.

#ifndef QSF_KERNELS_ELEMENTWISE_ELEMENTWISE_LANES_H_
#define QSF_KERNELS_ELEMENTWISE_ELEMENTWISE_LANES_H_

#include "kernels/elementwise/elementwise.h"
#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::elementwise {

// Vectors a step: enough loads at a time to keep the ports busy.
constexpr unsigned kStep = 2;

static void add(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept {
  for_blocks<kStep>(n_values, [&](auto get, auto put) QSF_INLINE { put(out, get(a) + get(b)); });
}
static void add_in_place(float* x, const float* b, std::uint32_t n_values) noexcept {
  add(x, b, x, n_values);
}
static void mul(const float* a, const float* b, float* out, std::uint32_t n_values) noexcept {
  for_blocks<kStep>(n_values, [&](auto get, auto put) QSF_INLINE { put(out, get(a) * get(b)); });
}
static void scale(float* x, float factor, std::uint32_t n_values) noexcept {
  const F32<kStep> factors = splat<kStep>(factor);
  for_blocks<kStep>(n_values, [&](auto get, auto put) QSF_INLINE { put(x, get(x) * factors); });
}
// The C library's copy is of the machine it runs on, whatever the tier.
static void copy(const float* from, float* to, std::uint32_t n_values) noexcept {
  if (n_values > 0) std::memmove(to, from, std::size_t{n_values} * sizeof(float));
}

static constexpr ElementwiseKernels kElementwiseKernels = {.name = "elementwise_" QSF_TIER_NAME,
                                                           .isa = kTier,
                                                           .exactness = Exactness::kBitExact,
                                                           .add = add,
                                                           .add_in_place = add_in_place,
                                                           .mul = mul,
                                                           .scale = scale,
                                                           .copy = copy};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::elementwise

#endif  // QSF_KERNELS_ELEMENTWISE_ELEMENTWISE_LANES_H_
