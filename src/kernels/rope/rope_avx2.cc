// SPDX-License-Identifier: MIT
//
// Rotary position embedding, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/rope/rope_lanes.h"

namespace qsf::kernels {

extern const RopeKernels kRopeAvx2;
const RopeKernels kRopeAvx2 = tier_avx2::kRopeKernels;

}  // namespace qsf::kernels
