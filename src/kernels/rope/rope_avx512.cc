// SPDX-License-Identifier: MIT
//
// Rotary position embedding, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/rope/rope_lanes.h"

namespace qsf::kernels {

extern const RopeKernels kRopeAvx512;
const RopeKernels kRopeAvx512 = tier_avx512::kRopeKernels;

}  // namespace qsf::kernels
