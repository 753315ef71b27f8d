// SPDX-License-Identifier: MIT
//
// Element-by-element arithmetic, NEON tier.

#define QSF_TIER_NEON
#include "kernels/elementwise/elementwise_lanes.h"

namespace qsf::kernels {

extern const ElementwiseKernels kElementwiseNeon;
const ElementwiseKernels kElementwiseNeon = tier_neon::kElementwiseKernels;

}  // namespace qsf::kernels
