// SPDX-License-Identifier: MIT
//
// Searches over logits: the best one, the k best ones.

#ifndef QSF_KERNELS_SAMPLE_SAMPLE_H_
#define QSF_KERNELS_SAMPLE_SAMPLE_H_

#include <cstdint>
#include <span>

#include "kernels/isa.h"

namespace qsf::kernels {

// Logits arrive in blocks: a caller keeps (value, id) of the best so far and compares with > only,
// so that ties go to the lowest id.
struct SampleKernels {
  const char* name;  // "sample_scalar"
  Isa isa;
  Exactness exactness;

  // Returns the index of the largest value: ties go to the lowest index, NaN never wins. Returns 0
  // when there is nothing but NaN. Requires  n_values > 0.
  std::uint32_t (*argmax)(const float* x, std::uint32_t n_values) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const SampleKernels> sample_kernels() noexcept;

// Moves the k best of n_values (value, id) pairs to the front, best first, and returns how many:
// min(k, pairs that are no NaN). Better is the larger value, then the lower id. The rest keeps
// every pair, in no particular order. n log k at most; no allocation. Threads  any
std::uint32_t top_k_select(float* values, std::uint32_t* ids, std::uint32_t n_values,
                           std::uint32_t k) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_SAMPLE_SAMPLE_H_
