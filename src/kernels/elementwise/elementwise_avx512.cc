// SPDX-License-Identifier: MIT
//
// Element-by-element arithmetic, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/elementwise/elementwise_lanes.h"

namespace qsf::kernels {

extern const ElementwiseKernels kElementwiseAvx512;
const ElementwiseKernels kElementwiseAvx512 = tier_avx512::kElementwiseKernels;

}  // namespace qsf::kernels
