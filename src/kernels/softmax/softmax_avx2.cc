// SPDX-License-Identifier: MIT
//
// Maximum, softmax and log-sum-exp, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/softmax/softmax_lanes.h"

namespace qsf::kernels {

extern const SoftmaxKernels kSoftmaxAvx2;
const SoftmaxKernels kSoftmaxAvx2 = tier_avx2::kSoftmaxKernels;

}  // namespace qsf::kernels
