// SPDX-License-Identifier: MIT
//
// Searches over logits and weights, written once for every tier. Sums run in sixteen double lanes.

#ifndef QSF_KERNELS_SAMPLE_SAMPLE_LANES_H_
#define QSF_KERNELS_SAMPLE_SAMPLE_LANES_H_

#include "kernels/math/math_vectors.h"
#include "kernels/reductions.h"
#include "kernels/sample/sample.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::sample {

constexpr std::uint32_t kSearchBlock = 512;  // values looked through again where one may be

static std::uint32_t block_length(std::uint32_t first, std::uint32_t n_values,
                                  std::uint32_t block) noexcept {
  return n_values - first < block ? n_values - first : block;
}

// Finds the first block that holds the maximum, then the place in it.
static std::uint32_t argmax(const float* x, std::uint32_t n_values) noexcept {
  float best = kNegativeInfinity;
  std::uint32_t best_block = 0;
  bool found = false;
  for (std::uint32_t i = 0; i < n_values; i += kSearchBlock) {
    const float max = max_of_array(x + i, block_length(i, n_values, kSearchBlock));
    if (max > best) {
      best = max;
      best_block = i;
      found = true;
    }
  }
  const std::uint32_t end =
      found ? best_block + block_length(best_block, n_values, kSearchBlock) : n_values;
  for (std::uint32_t i = best_block; i < end; ++i) {
    if (x[i] == best) return i;
  }
  return 0;
}

static void block_maxima(const float* x, std::uint32_t n_values, std::uint32_t block,
                         float* maxima) noexcept {
  for (std::uint32_t i = 0; i < n_values; i += block) {
    *maxima++ = max_of_array(x + i, block_length(i, n_values, block));
  }
}

static std::uint32_t list_at_least(const float* x, std::uint32_t n_values, float bound,
                                   std::uint32_t first_id, std::uint32_t* ids) noexcept {
  const F32<k16> bounds = splat<k16>(bound);
  std::uint32_t n_listed = 0;
  std::uint32_t i = 0;
  for (; i + 16 <= n_values; i += 16) {
    std::uint32_t bits = mask_bits(is_at_least(load<F32<k16>>(x + i), bounds));
    for (; bits != 0; bits &= bits - 1) {
      ids[n_listed++] = first_id + i + static_cast<std::uint32_t>(__builtin_ctz(bits));
    }
  }
  for (; i < n_values; ++i) {
    ids[n_listed] = first_id + i;
    n_listed += x[i] >= bound ? 1 : 0;
  }
  return n_listed;
}

static double exp_weights(float* x, std::uint32_t n_values, float best, float factor) noexcept {
  const F32<k16> nothing = splat<k16>(kNegativeInfinity);
  const F32<k16> bests = splat<k16>(best);
  const F32<k16> factors = splat<k16>(factor);
  const auto weigh = [&](F32<k16> values)
                         QSF_INLINE { return exp((max_of(values, nothing) - bests) * factors); };
  Sums sums;
  std::uint32_t i = 0;
  for (; i + 16 <= n_values; i += 16) {
    const F32<k16> weights = weigh(load<F32<k16>>(x + i));
    store(x + i, weights);
    sums.add(weights);
  }
  if (i < n_values) {
    const std::uint32_t rest = n_values - i;
    const F32<k16> weights = weigh(load_part<k16>(x + i, rest));
    store_part(x + i, weights, rest);
    sums.add(select(first_lanes<k16>(rest), weights, splat<k16>(0.0F)));
  }
  return sums.total();
}

static WeightSum sum_at_least(const float* x, std::uint32_t n_values, float bound) noexcept {
  const F32<k16> bounds = splat<k16>(bound);
  const F32<k16> zero = splat<k16>(0.0F);
  WeightSum result{.sum = 0.0, .n_values = 0};
  Sums sums;
  const auto take = [&](F32<k16> values, std::uint32_t valid) QSF_INLINE {
    const Mask<k16> mask = is_at_least(values, bounds);
    sums.add(select(mask, values, zero));
    result.n_values += static_cast<std::uint32_t>(__builtin_popcount(mask_bits(mask) & valid));
  };
  std::uint32_t i = 0;
  for (; i + 16 <= n_values; i += 16) take(load<F32<k16>>(x + i), 0xFFFFU);
  if (i < n_values) {
    const std::uint32_t rest = n_values - i;
    take(load_part<k16>(x + i, rest), (1U << rest) - 1U);
  }
  result.sum = sums.total();
  return result;
}

// Blocks are passed over by their sums; where the target falls, weights are added one by one.
static std::uint32_t pick(const float* weights, std::uint32_t n_values, double target) noexcept {
  double passed = 0.0;
  for (std::uint32_t i = 0; i < n_values; i += kSearchBlock) {
    const std::uint32_t n_block = block_length(i, n_values, kSearchBlock);
    const double after = passed + sum_at_least(weights + i, n_block, 0.0F).sum;
    if (target < after) {
      for (std::uint32_t k = i; k < i + n_block; ++k) {
        passed += static_cast<double>(weights[k]);
        if (target < passed) return k;
      }
    }
    passed = after;
  }
  for (std::uint32_t i = n_values; i-- > 0;) {
    if (weights[i] > 0.0F) return i;
  }
  return 0;
}

static constexpr SampleKernels kSampleKernels = {.name = "sample_" QSF_TIER_NAME,
                                                 .isa = kTier,
                                                 .exactness = Exactness::kBitExact,
                                                 .argmax = argmax,
                                                 .block_maxima = block_maxima,
                                                 .list_at_least = list_at_least,
                                                 .exp_weights = exp_weights,
                                                 .sum_at_least = sum_at_least,
                                                 .pick = pick};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::sample

#endif  // QSF_KERNELS_SAMPLE_SAMPLE_LANES_H_
