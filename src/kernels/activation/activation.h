// SPDX-License-Identifier: MIT
//
// Activation functions over arrays, and their products with the gate of a gated feed-forward.
//
// exp, tanh and erf are ours (kernels/math), so results do not depend on the C library. A GELU by
// look-up and interpolation is left out on purpose: two gathers cost more than the polynomial. On a
// Zen 4, 2,048 values in L1, values per ns with a table of 4,096 entries over [-8, 8], whose error
// is 4e-3, and as it is here, within a few ulp: scalar 0.36 and 0.44, AVX2 0.72 and 0.92, AVX-512
// 0.85 and 1.75.

#ifndef QSF_KERNELS_ACTIVATION_ACTIVATION_H_
#define QSF_KERNELS_ACTIVATION_ACTIVATION_H_

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace qsf::kernels {

// Common to all: arrays are [n_values] f32, no alignment is assumed, NaN gives NaN. The two-operand
// forms allow out to be gate or up itself; other overlap is not allowed. An element's result
// depends on that element alone, not on its place in the array.
struct ActivationKernels {
  const char* name;  // "activation_scalar"
  Isa isa;
  Exactness exactness;

  void (*relu)(float* x, std::uint32_t n_values) noexcept;          // max(x, 0)
  void (*relu_squared)(float* x, std::uint32_t n_values) noexcept;  // max(x, 0)^2
  void (*silu)(float* x, std::uint32_t n_values) noexcept;          // x / (1 + exp(-x))
  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): "gelu_new", GPT-2
  void (*gelu_tanh)(float* x, std::uint32_t n_values) noexcept;
  // 0.5 x (1 + erf(x / sqrt(2))): "gelu"
  void (*gelu_erf)(float* x, std::uint32_t n_values) noexcept;
  // cap tanh(x / cap), of scores or logits. Requires  cap > 0
  void (*soft_cap)(float* x, float cap, std::uint32_t n_values) noexcept;

  // out = silu(gate) * up
  void (*silu_mul)(const float* gate, const float* up, float* out, std::uint32_t n_values) noexcept;
  // out = up / (1 + exp(-gate))
  void (*sigmoid_mul)(const float* gate, const float* up, float* out,
                      std::uint32_t n_values) noexcept;
  // out = max(gate, 0)^2 * up
  void (*relu_squared_mul)(const float* gate, const float* up, float* out,
                           std::uint32_t n_values) noexcept;
  // out = (u + 1) * g / (1 + exp(-1.702 g)) with g = min(gate, 7) and u = up within -7 and 7
  void (*swish_clamped_mul)(const float* gate, const float* up, float* out,
                            std::uint32_t n_values) noexcept;
  // out = gelu_tanh(gate) * up
  void (*gelu_tanh_mul)(const float* gate, const float* up, float* out,
                        std::uint32_t n_values) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const ActivationKernels> activation_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ACTIVATION_ACTIVATION_H_
