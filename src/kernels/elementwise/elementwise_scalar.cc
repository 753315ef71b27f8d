// SPDX-License-Identifier: MIT
//
// Element-by-element arithmetic, scalar tier.

#include "kernels/elementwise/elementwise_lanes.h"

namespace qsf::kernels {

extern const ElementwiseKernels kElementwiseScalar;
const ElementwiseKernels kElementwiseScalar = tier_scalar::kElementwiseKernels;

}  // namespace qsf::kernels
