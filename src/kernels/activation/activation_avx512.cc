// SPDX-License-Identifier: MIT
//
// Activation functions, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/activation/activation_lanes.h"

namespace qsf::kernels {

extern const ActivationKernels kActivationAvx512;
const ActivationKernels kActivationAvx512 = tier_avx512::kActivationKernels;

}  // namespace qsf::kernels
