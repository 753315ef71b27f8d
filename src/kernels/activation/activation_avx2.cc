// SPDX-License-Identifier: MIT
//
// Activation functions, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/activation/activation_lanes.h"

namespace qsf::kernels {

extern const ActivationKernels kActivationAvx2;
const ActivationKernels kActivationAvx2 = tier_avx2::kActivationKernels;

}  // namespace qsf::kernels
