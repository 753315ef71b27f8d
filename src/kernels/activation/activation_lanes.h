// SPDX-License-Identifier: MIT
//
// Activation functions, written once for every tier.

#ifndef QSF_KERNELS_ACTIVATION_ACTIVATION_LANES_H_
#define QSF_KERNELS_ACTIVATION_ACTIVATION_LANES_H_

#include "kernels/activation/activation.h"
#include "kernels/math/math_vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::activation {

struct Relu {
  template <unsigned N>
  [[gnu::always_inline]] inline F32<N> operator()(F32<N> x) const noexcept {
    return max_of(splat<N>(0.0F), x);  // NaN is not below 0 and stays
  }
};
struct ReluSquared {
  template <unsigned N>
  [[gnu::always_inline]] inline F32<N> operator()(F32<N> x) const noexcept {
    const F32<N> positive = max_of(splat<N>(0.0F), x);
    return positive * positive;
  }
};
struct Silu {
  template <unsigned N>
  [[gnu::always_inline]] inline F32<N> operator()(F32<N> x) const noexcept {
    return x / (splat<N>(1.0F) + exp(-x));
  }
};
struct Sigmoid {
  template <unsigned N>
  [[gnu::always_inline]] inline F32<N> operator()(F32<N> x) const noexcept {
    return splat<N>(1.0F) / (splat<N>(1.0F) + exp(-x));
  }
};
// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)): one exponential, and small results keep their digits.
struct GeluTanh {
  template <unsigned N>
  [[gnu::always_inline]] inline F32<N> operator()(F32<N> x) const noexcept {
    const F32<N> cubic = x + x * x * x * splat<N>(0.044715F);
    return x / (splat<N>(1.0F) + exp(cubic * splat<N>(-1.5957691216F)));  // 2 sqrt(2 / pi)
  }
};
struct GeluErf {
  template <unsigned N>
  [[gnu::always_inline]] inline F32<N> operator()(F32<N> x) const noexcept {
    return x * splat<N>(0.5F) * (splat<N>(1.0F) + erf(x * splat<N>(0.70710678119F)));
  }
};

template <typename Function>
static void apply(float* x, std::uint32_t n_values) noexcept {
  for_blocks<1>(n_values, [&](auto get, auto put) QSF_INLINE { put(x, Function{}(get(x))); });
}

template <typename Function>
static void apply_mul(const float* gate, const float* up, float* out,
                      std::uint32_t n_values) noexcept {
  for_blocks<1>(n_values,
                [&](auto get, auto put) QSF_INLINE { put(out, Function{}(get(gate)) * get(up)); });
}

// Comparisons with NaN are false, so that it stays.
static void swish_clamped_mul(const float* gate, const float* up, float* out,
                              std::uint32_t n_values) noexcept {
  for_blocks<1>(n_values, [&](auto get, auto put) QSF_INLINE {
    const auto most = splat<1>(7.0F);
    const auto one = splat<1>(1.0F);
    const auto g = min_of(most, get(gate));
    const auto u = max_of(splat<1>(-7.0F), min_of(most, get(up)));
    put(out, (u + one) * (g / (one + exp(g * splat<1>(-1.702F)))));
  });
}

static void soft_cap(float* x, float cap, std::uint32_t n_values) noexcept {
  const F32<1> caps = splat<1>(cap);
  for_blocks<1>(n_values,
                [&](auto get, auto put) QSF_INLINE { put(x, tanh(get(x) / caps) * caps); });
}

static constexpr ActivationKernels kActivationKernels = {.name = "activation_" QSF_TIER_NAME,
                                                         .isa = kTier,
                                                         .exactness = Exactness::kBitExact,
                                                         .relu = apply<Relu>,
                                                         .relu_squared = apply<ReluSquared>,
                                                         .silu = apply<Silu>,
                                                         .gelu_tanh = apply<GeluTanh>,
                                                         .gelu_erf = apply<GeluErf>,
                                                         .soft_cap = soft_cap,
                                                         .silu_mul = apply_mul<Silu>,
                                                         .sigmoid_mul = apply_mul<Sigmoid>,
                                                         .relu_squared_mul = apply_mul<ReluSquared>,
                                                         .swish_clamped_mul = swish_clamped_mul,
                                                         .gelu_tanh_mul = apply_mul<GeluTanh>};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::activation

#endif  // QSF_KERNELS_ACTIVATION_ACTIVATION_LANES_H_
