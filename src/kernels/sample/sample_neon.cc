// SPDX-License-Identifier: MIT
//
// Searches over logits and weights, NEON tier.

#define QSF_TIER_NEON
#include "kernels/sample/sample_lanes.h"

namespace qsf::kernels {

extern const SampleKernels kSampleNeon;
const SampleKernels kSampleNeon = tier_neon::kSampleKernels;

}  // namespace qsf::kernels
