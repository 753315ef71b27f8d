// SPDX-License-Identifier: MIT
//
// Reductions of arrays that several kernels need, over the lanes of vectors.h.

#ifndef QSF_KERNELS_REDUCTIONS_H_
#define QSF_KERNELS_REDUCTIONS_H_

#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE {

constexpr float kNegativeInfinity = -__builtin_inff();

// Returns the largest value, -inf for none; NaN is ignored.
[[gnu::always_inline]] static inline float max_of_array(const float* x,
                                                        std::uint32_t n_values) noexcept {
  F32<2 * k16> best = splat<2 * k16>(kNegativeInfinity);
  std::uint32_t i = 0;
  for (; i + 32 <= n_values; i += 32) best = max_of(load<F32<2 * k16>>(x + i), best);
  if (i < n_values) {
    const std::uint32_t rest = n_values - i;
    best = max_of(select(first_lanes<2 * k16>(rest), load_part<2 * k16>(x + i, rest), best), best);
  }
  float lanes[32];
  store(lanes, best);
  for (unsigned apart = 16; apart > 0; apart /= 2) {
    for (unsigned lane = 0; lane < apart; ++lane) {
      lanes[lane] = lanes[lane + apart] > lanes[lane] ? lanes[lane + apart] : lanes[lane];
    }
  }
  return lanes[0];
}

// Sixteen running sums in double.
struct Sums {
  F64<2 * k16> lanes = {};

  [[gnu::always_inline]] inline void add(F32<k16> x) noexcept { lanes = lanes + widen(x); }
  [[gnu::always_inline]] inline double total() const noexcept { return sum_lanes(lanes); }
};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE

#endif  // QSF_KERNELS_REDUCTIONS_H_
