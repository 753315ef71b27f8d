// SPDX-License-Identifier: MIT
//
// How far attention in words (attend_words.h) may be from the exact result, beyond what f32 rounds.

#ifndef QSF_KERNELS_TESTING_WORD_BOUNDS_H_
#define QSF_KERNELS_TESTING_WORD_BOUNDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quant/kv_type.h"

namespace qsf::kernels::testing_support {

// A slot that a query sees, and its weight, of 1 for the largest score.
struct SeenSlot {
  std::size_t page;
  std::uint32_t slot;
  double weight;
  double largest_value;  // magnitude of its elements
};

// Bound of a score. Elements of q are rounded to half of 1 / largest_query of its largest one, of k
// in f16 to half of 1 / largest_key; a dozen roundings of f32 come with that.
double word_score_error(const std::vector<double>& q, const std::vector<double>& k, KvType type);

// Bound of an output, times the sum of the weights. Elements of v in f16 are rounded to half of
// 1 / kLargestElement of their slot's largest one, and a weight times that to half of
// 1 / kLargestWeight of the largest such product of its page.
double word_value_error(const std::vector<SeenSlot>& seen, KvType type);

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_WORD_BOUNDS_H_
