// SPDX-License-Identifier: MIT
//
// The table of element-by-element kernels.

#include "kernels/elementwise/elementwise.h"

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const ElementwiseKernels QSF_TIERS_OF(kElementwise);

std::span<const ElementwiseKernels> elementwise_kernels() noexcept {
  static const ElementwiseKernels table[] = {QSF_TIERS_OF(kElementwise)};
  return table;
}

}  // namespace qsf::kernels
