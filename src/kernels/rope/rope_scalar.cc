// SPDX-License-Identifier: MIT
//
// Rotary position embedding, scalar tier.

#include "kernels/rope/rope_lanes.h"

namespace qsf::kernels {

extern const RopeKernels kRopeScalar;
const RopeKernels kRopeScalar = tier_scalar::kRopeKernels;

}  // namespace qsf::kernels
