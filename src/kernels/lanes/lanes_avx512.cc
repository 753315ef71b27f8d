// SPDX-License-Identifier: MIT
//
// The kernels written over vectors.h, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/lanes/lanes_of_tier.h"

namespace qsf::kernels {

const LaneKernels kLanesAvx512 = tier_avx512::kLaneKernels;

}  // namespace qsf::kernels
