// SPDX-License-Identifier: MIT
//
// RMS norm and layer norm, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/norm/norm_lanes.h"

namespace qsf::kernels {

extern const NormKernels kNormAvx512;
const NormKernels kNormAvx512 = tier_avx512::kNormKernels;

}  // namespace qsf::kernels
