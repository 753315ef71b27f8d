// SPDX-License-Identifier: MIT
//
// Maximum, softmax and log-sum-exp over a row of logits or scores.
//
// Logits arrive in blocks and are never stored whole, so log-sum-exp has an online form: a state
// that takes one block after the other.

#ifndef QSF_KERNELS_SOFTMAX_SOFTMAX_H_
#define QSF_KERNELS_SOFTMAX_SOFTMAX_H_

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

// log(sum of exp(x)) == max + log(sum), over all x seen so far; nothing seen: -inf.
struct LogSumExpState {
  float max = -std::numeric_limits<float>::infinity();
  double sum = 0.0;
};

// Returns max + log(sum), or -inf when nothing but -inf was seen. Threads  any
double log_sum_exp_value(const LogSumExpState& state) noexcept;

// Joins two states. The result depends on which is `into`, so callers merge in a fixed order.
void log_sum_exp_merge(LogSumExpState* into, const LogSumExpState& from) noexcept;

// Common to all: x is [n_values] f32, no alignment is assumed. Sums run in double over lanes in a
// fixed order, so every tier gives the same bits.
struct SoftmaxKernels {
  const char* name;  // "softmax_scalar"
  Isa isa;
  Exactness exactness;

  // Returns the largest value, -inf for none; NaN is ignored.
  float (*max_value)(const float* x, std::uint32_t n_values) noexcept;

  // x = exp(x - max) / sum, in place. -inf gives 0; nothing but -inf gives zeros, not NaN.
  void (*softmax_in_place)(float* x, std::uint32_t n_values) noexcept;

  // x = softmax(x / temperature). Requires  temperature > 0 and finite.
  void (*softmax_temperature)(float* x, std::uint32_t n_values, float temperature) noexcept;

  // Takes n_values more into the state.
  void (*log_sum_exp_add)(LogSumExpState* state, const float* x, std::uint32_t n_values) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const SoftmaxKernels> softmax_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_SOFTMAX_SOFTMAX_H_
