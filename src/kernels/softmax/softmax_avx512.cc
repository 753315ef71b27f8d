// SPDX-License-Identifier: MIT
//
// Maximum, softmax and log-sum-exp, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/softmax/softmax_lanes.h"

namespace qsf::kernels {

extern const SoftmaxKernels kSoftmaxAvx512;
const SoftmaxKernels kSoftmaxAvx512 = tier_avx512::kSoftmaxKernels;

}  // namespace qsf::kernels
