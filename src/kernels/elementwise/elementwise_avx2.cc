// SPDX-License-Identifier: MIT
//
// Element-by-element arithmetic, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/elementwise/elementwise_lanes.h"

namespace qsf::kernels {

extern const ElementwiseKernels kElementwiseAvx2;
const ElementwiseKernels kElementwiseAvx2 = tier_avx2::kElementwiseKernels;

}  // namespace qsf::kernels
