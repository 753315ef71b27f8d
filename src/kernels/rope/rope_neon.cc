// SPDX-License-Identifier: MIT
//
// Rotary position embedding, NEON tier.

#define QSF_TIER_NEON
#include "kernels/rope/rope_lanes.h"

namespace qsf::kernels {

extern const RopeKernels kRopeNeon;
const RopeKernels kRopeNeon = tier_neon::kRopeKernels;

}  // namespace qsf::kernels
