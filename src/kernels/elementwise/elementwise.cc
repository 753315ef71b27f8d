// SPDX-License-Identifier: MIT
//
// The table of element-by-element kernels.

#include "kernels/elementwise/elementwise.h"

#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr ElementwiseKernels kKernels[] = {
    {.name = "elementwise_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBitExact,
     .add = add_scalar,
     .add_in_place = add_in_place_scalar,
     .mul = mul_scalar,
     .scale = scale_scalar,
     .copy = copy_scalar},
};

}  // namespace

std::span<const ElementwiseKernels> elementwise_kernels() noexcept {
  return kKernels;
}

}  // namespace qsf::kernels
