// SPDX-License-Identifier: MIT
//
// Activation functions, scalar tier.

#include "kernels/activation/activation_lanes.h"

namespace qsf::kernels {

extern const ActivationKernels kActivationScalar;
const ActivationKernels kActivationScalar = tier_scalar::kActivationKernels;

}  // namespace qsf::kernels
