// SPDX-License-Identifier: MIT
//
// Activation functions over arrays, and their products with the gate of a gated feed-forward.
//
// exp, tanh and erf are ours (kernels/math), so results do not depend on the C library. A table
// look-up GELU is left out on purpose: the polynomial one vectorises and costs less than the loads.

#ifndef QSF_KERNELS_ACTIVATION_ACTIVATION_H_
#define QSF_KERNELS_ACTIVATION_ACTIVATION_H_

#include <cstdint>
#include <span>

#include "kernels/isa.h"

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
  // out = gelu_tanh(gate) * up
  void (*gelu_tanh_mul)(const float* gate, const float* up, float* out,
                        std::uint32_t n_values) noexcept;
};

// Every implementation, best instruction set first, scalar last. Threads  any
std::span<const ActivationKernels> activation_kernels() noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ACTIVATION_ACTIVATION_H_
