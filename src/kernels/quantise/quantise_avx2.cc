// SPDX-License-Identifier: MIT
//
// Quantisation of activations, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/quantise/quantise_lanes.h"

namespace qsf::kernels {

extern const QuantiseKernels kQuantiseAvx2;
const QuantiseKernels kQuantiseAvx2 = tier_avx2::kQuantiseKernels;

}  // namespace qsf::kernels
