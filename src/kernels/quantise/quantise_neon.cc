// SPDX-License-Identifier: MIT
//
// Quantisation of activations, NEON tier.

#define QSF_TIER_NEON
#include "kernels/quantise/quantise_lanes.h"

namespace qsf::kernels {

extern const QuantiseKernels kQuantiseNeon;
const QuantiseKernels kQuantiseNeon = tier_neon::kQuantiseKernels;

}  // namespace qsf::kernels
