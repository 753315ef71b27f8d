// SPDX-License-Identifier: MIT
//
// Maximum, softmax and log-sum-exp, scalar tier.

#include "kernels/math/math_lanes.h"
#include "kernels/softmax/softmax.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

constexpr float kNegativeInfinity = -__builtin_inff();

// What is subtracted before exp: the maximum, or 0 where there is none (-inf minus -inf is NaN).
float base_of(float max) noexcept {
  return max == kNegativeInfinity ? 0.0F : max;
}

// Four running sums in double.
struct Sums {
  double lanes[4] = {0.0, 0.0, 0.0, 0.0};

  void add(f32x4 x, std::uint32_t n_values) noexcept {
    for (std::uint32_t i = 0; i < n_values; ++i) lanes[i] += static_cast<double>(x[i]);
  }
  double total() const noexcept { return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]); }
};

// Writes exp((x - base) * factor) to out, when out is not null, and returns the sum.
double exponentiate(const float* x, std::uint32_t n_values, float base, float factor,
                    float* out) noexcept {
  Sums sums;
  std::uint32_t i = 0;
  for (; i + 4 <= n_values; i += 4) {
    const f32x4 e = exp((load<f32x4>(x + i) - base) * factor);
    if (out != nullptr) store(out + i, e);
    sums.add(e, 4);
  }
  if (i < n_values) {
    const std::uint32_t rest = n_values - i;
    const f32x4 e = exp((load_part(x + i, rest) - base) * factor);
    if (out != nullptr) store_part(out + i, e, rest);
    sums.add(e, rest);
  }
  return sums.total();
}

void softmax(float* x, std::uint32_t n_values, float factor) noexcept {
  const float base = base_of(max_value_scalar(x, n_values));
  const double sum = exponentiate(x, n_values, base, factor, x);
  if (sum == 0.0) return;  // nothing but -inf: zeros
  const auto inverse = static_cast<float>(1.0 / sum);
  for (std::uint32_t i = 0; i < n_values; ++i) x[i] *= inverse;
}

}  // namespace

float max_value_scalar(const float* x, std::uint32_t n_values) noexcept {
  f32x4 best = splat(kNegativeInfinity);
  std::uint32_t i = 0;
  for (; i + 4 <= n_values; i += 4) {
    const f32x4 value = load<f32x4>(x + i);
    best = select(value > best, value, best);
  }
  float max = kNegativeInfinity;
  for (unsigned lane = 0; lane < 4; ++lane) max = best[lane] > max ? best[lane] : max;
  for (; i < n_values; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

void softmax_in_place_scalar(float* x, std::uint32_t n_values) noexcept {
  softmax(x, n_values, 1.0F);
}

void softmax_temperature_scalar(float* x, std::uint32_t n_values, float temperature) noexcept {
  softmax(x, n_values, 1.0F / temperature);
}

void log_sum_exp_add_scalar(LogSumExpState* state, const float* x,
                            std::uint32_t n_values) noexcept {
  const float block_max = max_value_scalar(x, n_values);
  const float max = block_max > state->max ? block_max : state->max;
  const float base = base_of(max);
  const f32x4 correction = exp(splat(state->max - base));
  const double sum = exponentiate(x, n_values, base, 1.0F, nullptr);
  state->sum = state->sum * static_cast<double>(correction[0]) + sum;
  state->max = max;
}

}  // namespace qsf::kernels
