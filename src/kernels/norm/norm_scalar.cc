// SPDX-License-Identifier: MIT
//
// RMS norm and layer norm, scalar tier.

#include "kernels/norm/norm_lanes.h"

namespace qsf::kernels {

extern const NormKernels kNormScalar;
const NormKernels kNormScalar = tier_scalar::kNormKernels;

}  // namespace qsf::kernels
