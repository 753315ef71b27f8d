// SPDX-License-Identifier: MIT
//
// Activation functions, NEON tier.

#define QSF_TIER_NEON
#include "kernels/activation/activation_lanes.h"

namespace qsf::kernels {

extern const ActivationKernels kActivationNeon;
const ActivationKernels kActivationNeon = tier_neon::kActivationKernels;

}  // namespace qsf::kernels
