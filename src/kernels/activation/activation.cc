// SPDX-License-Identifier: MIT
//
// The table of activation kernels.

#include "kernels/activation/activation.h"

#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr ActivationKernels kKernels[] = {
    {.name = "activation_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBounded,
     .relu = relu_scalar,
     .relu_squared = relu_squared_scalar,
     .silu = silu_scalar,
     .gelu_tanh = gelu_tanh_scalar,
     .gelu_erf = gelu_erf_scalar,
     .soft_cap = soft_cap_scalar,
     .silu_mul = silu_mul_scalar,
     .gelu_tanh_mul = gelu_tanh_mul_scalar},
};

}  // namespace

std::span<const ActivationKernels> activation_kernels() noexcept {
  return kKernels;
}

}  // namespace qsf::kernels
