// SPDX-License-Identifier: MIT
//
// Maximum, softmax and log-sum-exp, written once for every tier. Sums run in sixteen double lanes.

#ifndef QSF_KERNELS_SOFTMAX_SOFTMAX_LANES_H_
#define QSF_KERNELS_SOFTMAX_SOFTMAX_LANES_H_

#include "kernels/math/math_vectors.h"
#include "kernels/reductions.h"
#include "kernels/softmax/softmax.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::softmax {

// What is subtracted before exp: the maximum, or 0 where there is none (-inf minus -inf is NaN).
static float base_of(float max) noexcept {
  return max == kNegativeInfinity ? 0.0F : max;
}

// Writes exp((x - base) * factor) to out, when out is not null, and returns the sum.
template <bool kStore>
static double exponentiate(const float* x, std::uint32_t n_values, float base, float factor,
                           float* out) noexcept {
  const F32<k16> bases = splat<k16>(base);
  const F32<k16> factors = splat<k16>(factor);
  Sums sums;
  std::uint32_t i = 0;
  for (; i + 16 <= n_values; i += 16) {
    const F32<k16> e = exp((load<F32<k16>>(x + i) - bases) * factors);
    if constexpr (kStore) store(out + i, e);
    sums.add(e);
  }
  if (i < n_values) {
    const std::uint32_t rest = n_values - i;
    const Mask<k16> there = first_lanes<k16>(rest);
    const F32<k16> e = exp((load_part<k16>(x + i, rest) - bases) * factors);
    if constexpr (kStore) store_part(out + i, e, rest);
    sums.add(select(there, e, splat<k16>(0.0F)));
  }
  return sums.total();
}

static float max_value(const float* x, std::uint32_t n_values) noexcept {
  return max_of_array(x, n_values);
}

static void softmax(float* x, std::uint32_t n_values, float factor) noexcept {
  const float base = base_of(max_value(x, n_values));
  const double sum = exponentiate<true>(x, n_values, base, factor, x);
  if (sum == 0.0) return;  // nothing but -inf: zeros
  const F32<k16> inverse = splat<k16>(static_cast<float>(1.0 / sum));
  for_blocks<k16>(n_values, [&](auto get, auto put) QSF_INLINE { put(x, get(x) * inverse); });
}

static void softmax_in_place(float* x, std::uint32_t n_values) noexcept {
  softmax(x, n_values, 1.0F);
}

static void softmax_temperature(float* x, std::uint32_t n_values, float temperature) noexcept {
  softmax(x, n_values, 1.0F / temperature);
}

static void log_sum_exp_add(LogSumExpState* state, const float* x,
                            std::uint32_t n_values) noexcept {
  const float block_max = max_value(x, n_values);
  const float max = block_max > state->max ? block_max : state->max;
  const float base = base_of(max);
  const F32<1> correction = exp(splat<1>(state->max - base));
  const double sum = exponentiate<false>(x, n_values, base, 1.0F, nullptr);
  state->sum = state->sum * static_cast<double>(correction.r[0][0]) + sum;
  state->max = max;
}

static constexpr SoftmaxKernels kSoftmaxKernels = {.name = "softmax_" QSF_TIER_NAME,
                                                   .isa = kTier,
                                                   .exactness = Exactness::kBitExact,
                                                   .max_value = max_value,
                                                   .softmax_in_place = softmax_in_place,
                                                   .softmax_temperature = softmax_temperature,
                                                   .log_sum_exp_add = log_sum_exp_add};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::softmax

#endif  // QSF_KERNELS_SOFTMAX_SOFTMAX_LANES_H_
