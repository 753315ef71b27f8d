// SPDX-License-Identifier: MIT
//
// The kernels written over vectors.h, scalar tier.

#include "kernels/lanes/lanes_of_tier.h"

namespace qsf::kernels {

const LaneKernels kLanesScalar = tier_scalar::kLaneKernels;

}  // namespace qsf::kernels
