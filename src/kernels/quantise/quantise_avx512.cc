// SPDX-License-Identifier: MIT
//
// Quantisation of activations, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/quantise/quantise_lanes.h"

namespace qsf::kernels {

extern const QuantiseKernels kQuantiseAvx512;
const QuantiseKernels kQuantiseAvx512 = tier_avx512::kQuantiseKernels;

}  // namespace qsf::kernels
