// SPDX-License-Identifier: MIT
//
// The table of normalisation kernels.

#include "kernels/norm/norm.h"

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const NormKernels QSF_TIERS_OF(kNorm);

std::span<const NormKernels> norm_kernels() noexcept {
  static const NormKernels table[] = {QSF_TIERS_OF(kNorm)};
  return table;
}

}  // namespace qsf::kernels
