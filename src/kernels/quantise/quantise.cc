// SPDX-License-Identifier: MIT
//
// The table of kernels that quantise activations.

#include "kernels/quantise/quantise.h"

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const QuantiseKernels QSF_TIERS_OF(kQuantise);

std::span<const QuantiseKernels> quantise_kernels() noexcept {
  static const QuantiseKernels table[] = {QSF_TIERS_OF(kQuantise)};
  return table;
}

}  // namespace qsf::kernels
