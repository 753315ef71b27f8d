// SPDX-License-Identifier: MIT
//
// Searches over logits and weights, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/sample/sample_lanes.h"

namespace qsf::kernels {

extern const SampleKernels kSampleAvx512;
const SampleKernels kSampleAvx512 = tier_avx512::kSampleKernels;

}  // namespace qsf::kernels
