// SPDX-License-Identifier: MIT
//
// The kernels written over vectors.h, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/lanes/lanes_of_tier.h"

namespace qsf::kernels {

const LaneKernels kLanesAvx2 = tier_avx2::kLaneKernels;

}  // namespace qsf::kernels
