// SPDX-License-Identifier: MIT
//
// The table of logit searches, and the selection of the k best.

#include "kernels/sample/sample.h"

#include <utility>

#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr SampleKernels kKernels[] = {
    {.name = "sample_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBitExact,
     .argmax = argmax_scalar},
};

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

std::span<const SampleKernels> sample_kernels() noexcept {
  return kKernels;
}

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

}  // namespace qsf::kernels
