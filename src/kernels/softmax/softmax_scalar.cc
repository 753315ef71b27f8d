// SPDX-License-Identifier: MIT
//
// Maximum, softmax and log-sum-exp, scalar tier.

#include "kernels/softmax/softmax_lanes.h"

namespace qsf::kernels {

extern const SoftmaxKernels kSoftmaxScalar;
const SoftmaxKernels kSoftmaxScalar = tier_scalar::kSoftmaxKernels;

}  // namespace qsf::kernels
