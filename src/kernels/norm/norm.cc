// SPDX-License-Identifier: MIT
//
// The table of normalisation kernels.

#include "kernels/norm/norm.h"

#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

constexpr NormKernels kKernels[] = {
    {.name = "norm_scalar",
     .isa = Isa::kScalar,
     .exactness = Exactness::kBounded,
     .rms_norm = rms_norm_scalar,
     .layer_norm = layer_norm_scalar},
};

}  // namespace

std::span<const NormKernels> norm_kernels() noexcept {
  return kKernels;
}

}  // namespace qsf::kernels
