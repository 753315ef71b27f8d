// SPDX-License-Identifier: MIT
//
// The kernels written over vectors.h, NEON tier.

#define QSF_TIER_NEON
#include "kernels/lanes/lanes_of_tier.h"

namespace qsf::kernels {

const LaneKernels kLanesNeon = tier_neon::kLaneKernels;

}  // namespace qsf::kernels
