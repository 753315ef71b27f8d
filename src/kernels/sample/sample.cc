// SPDX-License-Identifier: MIT
//
// Selections over logits that need no tier: top-k, top-p and the like.

#include "kernels/sample/sample.h"

#include <limits>
#include <utility>

#include "base/bit_cast.h"

namespace qsf::kernels {

namespace {

// (value, id) pairs in two arrays; a heap over the first of them has its worst pair at the root.
struct Pairs {
  float* values;
  std::uint32_t* ids;

  bool is_nan(std::uint32_t i) const noexcept { return values[i] != values[i]; }

  // The larger value is better, then the lower id; a NaN is worse than any value.
  bool better(std::uint32_t a, std::uint32_t b) const noexcept {
    if (is_nan(a) || is_nan(b)) return !is_nan(a);
    return values[a] > values[b] || (values[a] == values[b] && ids[a] < ids[b]);
  }
  void swap(std::uint32_t a, std::uint32_t b) const noexcept {
    std::swap(values[a], values[b]);
    std::swap(ids[a], ids[b]);
  }
  // Moves pair `at` down until no child is worse than it.
  void sink(std::uint32_t at, std::uint32_t n_heap) const noexcept {
    while (2 * at + 1 < n_heap) {
      std::uint32_t child = 2 * at + 1;
      if (child + 1 < n_heap && better(child, child + 1)) ++child;
      if (better(child, at)) return;
      swap(at, child);
      at = child;
    }
  }
};

}  // namespace

std::uint32_t top_k_select(float* values, std::uint32_t* ids, std::uint32_t n_values,
                           std::uint32_t k) noexcept {
  if (k > n_values) k = n_values;
  if (k == 0) return 0;
  const Pairs pairs{values, ids};
  for (std::uint32_t i = k / 2; i-- > 0;) pairs.sink(i, k);
  for (std::uint32_t i = k; i < n_values; ++i) {
    if (pairs.better(i, 0)) {
      pairs.swap(i, 0);
      pairs.sink(0, k);
    }
  }
  // The worst of what is left goes to the end of it, again and again: best first remains.
  for (std::uint32_t n_heap = k; n_heap > 1; --n_heap) {
    pairs.swap(0, n_heap - 1);
    pairs.sink(0, n_heap - 1);
  }
  while (k > 0 && pairs.is_nan(k - 1)) --k;
  return k;
}

// At least k of the maxima of k or more blocks are at least as large as the k-th largest of them,
// so the k best values are, too.
std::uint32_t list_top_k_candidates(const SampleKernels& kernels, const float* x,
                                    std::uint32_t n_values, std::uint32_t k,
                                    std::uint32_t* ids) noexcept {
  constexpr std::uint32_t kMaxBlocks = 1024;
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const std::uint32_t block = (n_values / kMaxBlocks / 32 + 1) * 32;
  const std::uint32_t n_blocks = (n_values + block - 1) / block;
  if (k == 0) return 0;
  if (k > n_blocks / 2) return kernels.list_at_least(x, n_values, kLowest, 0, ids);
  float maxima[kMaxBlocks];
  float ordered[kMaxBlocks];
  std::uint32_t places[kMaxBlocks];
  kernels.block_maxima(x, n_values, block, maxima);
  for (std::uint32_t i = 0; i < n_blocks; ++i) {
    ordered[i] = maxima[i];
    places[i] = i;
  }
  top_k_select(ordered, places, n_blocks, k);
  const float bound = ordered[k - 1] > kLowest ? ordered[k - 1] : kLowest;
  std::uint32_t n_listed = 0;
  for (std::uint32_t i = 0; i < n_blocks; ++i) {
    if (maxima[i] < bound) continue;
    const std::uint32_t first = i * block;
    const std::uint32_t n = n_values - first < block ? n_values - first : block;
    n_listed += kernels.list_at_least(x + first, n, bound, first, ids + n_listed);
  }
  return n_listed;
}

WeightBounds find_weight_bounds(const SampleKernels& kernels, const float* weights,
                                std::uint32_t n_values, double wanted) noexcept {
  constexpr std::uint32_t kFewBetween = 256;
  // Magnitudes order as their bits do. The first steps go down by factors of four, since most
  // weight is near the best one; then the interval is halved.
  std::uint32_t above = bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());
  std::uint32_t at_least = 1;  // the smallest number above 0
  std::uint32_t n_above = 0;
  std::uint32_t n_at_least = n_values;
  const auto sum_at = [&](std::uint32_t bits) {
    return kernels.sum_at_least(weights, n_values, bit_cast<float>(bits));
  };
  for (float bound = 0.25F; bound > 0.0F; bound *= 0.25F) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(bound);
    const WeightSum sum = sum_at(bits);
    if (sum.sum >= wanted) {
      at_least = bits;
      n_at_least = sum.n_values;
      break;
    }
    above = bits;
    n_above = sum.n_values;
  }
  while (above - at_least > 1 && n_at_least - n_above > kFewBetween) {
    const std::uint32_t middle = at_least + (above - at_least) / 2;
    const WeightSum sum = sum_at(middle);
    if (sum.sum >= wanted) {
      at_least = middle;
      n_at_least = sum.n_values;
    } else {
      above = middle;
      n_above = sum.n_values;
    }
  }
  return {.at_least = bit_cast<float>(at_least), .above = bit_cast<float>(above)};
}

}  // namespace qsf::kernels
