// SPDX-License-Identifier: MIT
//
// RMS norm and layer norm, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/norm/norm_lanes.h"

namespace qsf::kernels {

extern const NormKernels kNormAvx2;
const NormKernels kNormAvx2 = tier_avx2::kNormKernels;

}  // namespace qsf::kernels
