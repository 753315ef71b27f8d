// SPDX-License-Identifier: MIT
//
// Searches over logits: the best one, the k best ones; and over weights, which are probabilities
// not yet divided by their sum.
//
// Nothing here sorts a vocabulary. The k best are found by a bound that at least k values reach;
// the most likely ones that hold a share of all weight by the bound above which that share lies.

#ifndef QSF_KERNELS_SAMPLE_SAMPLE_H_
#define QSF_KERNELS_SAMPLE_SAMPLE_H_

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

// Logits arrive in blocks: a caller keeps (value, id) of the best so far and compares with > only,
// so that ties go to the lowest id.
//
// Weights are >= 0; sums of them run in double over sixteen lanes in a fixed order.
struct WeightSum {
  double sum;
  std::uint32_t n_values;
};

struct SampleKernels {
  const char* name;  // "sample_scalar"
  Isa isa;
  Exactness exactness;

  // Returns the index of the largest value: ties go to the lowest index, NaN never wins. Returns 0
  // when there is nothing but NaN. Requires  n_values > 0.
  std::uint32_t (*argmax)(const float* x, std::uint32_t n_values) noexcept;

  // Writes the largest value of each `block` values, the last of fewer; NaN is ignored, and -inf
  // stands for nothing else. Shapes  maxima [ceil(n_values / block)]. Requires  block > 0
  void (*block_maxima)(const float* x, std::uint32_t n_values, std::uint32_t block,
                       float* maxima) noexcept;

  // Lists first_id + i for every x[i] >= bound, ascending, and returns how many; NaN never is.
  // Shapes  ids [n_values]: places behind those listed may be written
  std::uint32_t (*list_at_least)(const float* x, std::uint32_t n_values, float bound,
                                 std::uint32_t first_id, std::uint32_t* ids) noexcept;

  // x = exp((x - best) * factor), and returns the sum; -inf and NaN become 0.
  // Requires  best is finite and no x is larger; factor is above 0
  double (*exp_weights)(float* x, std::uint32_t n_values, float best, float factor) noexcept;

  // Returns sum and number of the values >= bound.
  WeightSum (*sum_at_least)(const float* x, std::uint32_t n_values, float bound) noexcept;

  // Returns the first place where the weights up to and with it exceed the target: with a target
  // uniform in [0, sum) a draw by weight. Past the sum: the last weight above 0, or 0 without one.
  std::uint32_t (*pick)(const float* weights, std::uint32_t n_values, double target) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const SampleKernels> sample_kernels() noexcept;

// Moves the k best of n_values (value, id) pairs to the front, best first, and returns how many:
// min(k, pairs that are no NaN). Better is the larger value, then the lower id. The rest keeps
// every pair, in no particular order. n log k at most; no allocation. Threads  any
std::uint32_t top_k_select(float* values, std::uint32_t* ids, std::uint32_t n_values,
                           std::uint32_t k) noexcept;

// Lists ids of x, ascending, that are sure to hold the k best of top_k_select (where values are
// equal, more than those), and returns how many; NaN and -inf are not listed. A handful more than k
// where n_values is far above k, all others where it is not.
// Shapes    ids [n_values]. Threads  any
std::uint32_t list_top_k_candidates(const SampleKernels& kernels, const float* x,
                                    std::uint32_t n_values, std::uint32_t k,
                                    std::uint32_t* ids) noexcept;

// Returns the largest bounds between which the weights lie that complete the share `wanted` of all
// weight: what is >= above sums to less than wanted, what is >= at_least to wanted or more (or is
// everything above 0). Few weights lie between the two unless many are equal.
struct WeightBounds {
  float at_least;
  float above;
};
WeightBounds find_weight_bounds(const SampleKernels& kernels, const float* weights,
                                std::uint32_t n_values, double wanted) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_SAMPLE_SAMPLE_H_
