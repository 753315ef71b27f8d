// SPDX-License-Identifier: MIT
//
// Maximum, softmax and log-sum-exp, NEON tier.

#define QSF_TIER_NEON
#include "kernels/softmax/softmax_lanes.h"

namespace qsf::kernels {

extern const SoftmaxKernels kSoftmaxNeon;
const SoftmaxKernels kSoftmaxNeon = tier_neon::kSoftmaxKernels;

}  // namespace qsf::kernels
