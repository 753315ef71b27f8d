// SPDX-License-Identifier: MIT
//
// Activation functions, scalar tier.

#include "kernels/activation/activation.h"
#include "kernels/math/math_lanes.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

[[gnu::always_inline]] inline f32x4 relu(f32x4 x) noexcept {
  return select(x < splat(0.0F), splat(0.0F), x);  // NaN compares false and stays
}

[[gnu::always_inline]] inline f32x4 silu(f32x4 x) noexcept {
  return x / (1.0F + exp(-x));
}

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)): one exponential, and small results keep their digits.
[[gnu::always_inline]] inline f32x4 gelu_tanh(f32x4 x) noexcept {
  const f32x4 cubic = x + x * x * x * 0.044715F;
  return x / (1.0F + exp(cubic * -1.5957691216F));  // 2 sqrt(2 / pi)
}

[[gnu::always_inline]] inline f32x4 gelu_erf(f32x4 x) noexcept {
  return x * 0.5F * (1.0F + erf(x * 0.70710678119F));
}

// Applies `function` to every element; the tail runs through the same four lanes.
template <typename Function>
[[gnu::always_inline]] inline void apply(float* x, std::uint32_t n_values,
                                         Function function) noexcept {
  std::uint32_t i = 0;
  for (; i + 4 <= n_values; i += 4) store(x + i, function(load<f32x4>(x + i)));
  if (i < n_values) {
    store_part(x + i, function(load_part(x + i, n_values - i)), n_values - i);
  }
}

template <typename Function>
[[gnu::always_inline]] inline void apply_mul(const float* gate, const float* up, float* out,
                                             std::uint32_t n_values, Function function) noexcept {
  std::uint32_t i = 0;
  for (; i + 4 <= n_values; i += 4) {
    store(out + i, function(load<f32x4>(gate + i)) * load<f32x4>(up + i));
  }
  if (i < n_values) {
    const std::uint32_t rest = n_values - i;
    store_part(out + i, function(load_part(gate + i, rest)) * load_part(up + i, rest), rest);
  }
}

}  // namespace

void relu_scalar(float* x, std::uint32_t n_values) noexcept {
  apply(x, n_values, [](f32x4 v) noexcept { return relu(v); });
}
void relu_squared_scalar(float* x, std::uint32_t n_values) noexcept {
  apply(x, n_values, [](f32x4 v) noexcept { return relu(v) * relu(v); });
}
void silu_scalar(float* x, std::uint32_t n_values) noexcept {
  apply(x, n_values, [](f32x4 v) noexcept { return silu(v); });
}
void gelu_tanh_scalar(float* x, std::uint32_t n_values) noexcept {
  apply(x, n_values, [](f32x4 v) noexcept { return gelu_tanh(v); });
}
void gelu_erf_scalar(float* x, std::uint32_t n_values) noexcept {
  apply(x, n_values, [](f32x4 v) noexcept { return gelu_erf(v); });
}
void soft_cap_scalar(float* x, float cap, std::uint32_t n_values) noexcept {
  apply(x, n_values, [cap](f32x4 v) noexcept { return tanh(v / splat(cap)) * splat(cap); });
}
void silu_mul_scalar(const float* gate, const float* up, float* out,
                     std::uint32_t n_values) noexcept {
  apply_mul(gate, up, out, n_values, [](f32x4 v) noexcept { return silu(v); });
}
void gelu_tanh_mul_scalar(const float* gate, const float* up, float* out,
                          std::uint32_t n_values) noexcept {
  apply_mul(gate, up, out, n_values, [](f32x4 v) noexcept { return gelu_tanh(v); });
}

}  // namespace qsf::kernels
