// SPDX-License-Identifier: MIT
//
// Quantisation of activations, scalar tier.

#include "kernels/quantise/quantise_lanes.h"

namespace qsf::kernels {

extern const QuantiseKernels kQuantiseScalar;
const QuantiseKernels kQuantiseScalar = tier_scalar::kQuantiseKernels;

}  // namespace qsf::kernels
