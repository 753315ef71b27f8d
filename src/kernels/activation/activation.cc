// SPDX-License-Identifier: MIT
//
// The table of activation kernels.

#include "kernels/activation/activation.h"

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const ActivationKernels QSF_TIERS_OF(kActivation);

std::span<const ActivationKernels> activation_kernels() noexcept {
  static const ActivationKernels table[] = {QSF_TIERS_OF(kActivation)};
  return table;
}

}  // namespace qsf::kernels
