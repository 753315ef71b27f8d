// SPDX-License-Identifier: MIT
//
// Searches over logits and weights, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/sample/sample_lanes.h"

namespace qsf::kernels {

extern const SampleKernels kSampleAvx2;
const SampleKernels kSampleAvx2 = tier_avx2::kSampleKernels;

}  // namespace qsf::kernels
