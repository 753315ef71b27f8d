// SPDX-License-Identifier: MIT
//
// The parts of log-sum-exp that need no tier.

#include "kernels/softmax/softmax.h"

#include "kernels/math/math.h"

namespace qsf::kernels {

double log_sum_exp_value(const LogSumExpState& state) noexcept {
  if (state.sum == 0.0) return -std::numeric_limits<double>::infinity();
  return static_cast<double>(state.max) + log_f64(state.sum);
}

void log_sum_exp_merge(LogSumExpState* into, const LogSumExpState& from) noexcept {
  if (from.sum == 0.0) return;
  if (into->sum == 0.0) {
    *into = from;
    return;
  }
  if (from.max > into->max) {
    into->sum = into->sum * static_cast<double>(exp_f32(into->max - from.max)) + from.sum;
    into->max = from.max;
  } else {
    into->sum += from.sum * static_cast<double>(exp_f32(from.max - into->max));
  }
}

}  // namespace qsf::kernels
