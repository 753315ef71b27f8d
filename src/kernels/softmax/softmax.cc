// SPDX-License-Identifier: MIT
//
// The table of softmax kernels, and what of log-sum-exp needs no tier.

#include "kernels/softmax/softmax.h"

#include "kernels/math/math.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr SoftmaxKernels kKernels[] = {
    {.name = "softmax_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBounded,
     .max_value = max_value_scalar,
     .softmax_in_place = softmax_in_place_scalar,
     .softmax_temperature = softmax_temperature_scalar,
     .log_sum_exp_add = log_sum_exp_add_scalar},
};

}  // namespace

std::span<const SoftmaxKernels> softmax_kernels() noexcept {
  return kKernels;
}

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
