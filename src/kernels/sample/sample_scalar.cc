// SPDX-License-Identifier: MIT
//
// Searches over logits and weights, scalar tier.

#include "kernels/sample/sample_lanes.h"

namespace qsf::kernels {

extern const SampleKernels kSampleScalar;
const SampleKernels kSampleScalar = tier_scalar::kSampleKernels;

}  // namespace qsf::kernels
