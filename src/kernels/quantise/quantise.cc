// SPDX-License-Identifier: MIT
//
// The table of kernels that quantise activations.

#include "kernels/quantise/quantise.h"

#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr QuantiseKernels kKernels[] = {
    {.name = "quantise_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBitExact,
     .to_int8 = to_int8_scalar},
};

}  // namespace

std::span<const QuantiseKernels> quantise_kernels() noexcept {
  return kKernels;
}

}  // namespace qsf::kernels
