// SPDX-License-Identifier: MIT
//
// RMS norm and layer norm, NEON tier.

#define QSF_TIER_NEON
#include "kernels/norm/norm_lanes.h"

namespace qsf::kernels {

extern const NormKernels kNormNeon;
const NormKernels kNormNeon = tier_neon::kNormKernels;

}  // namespace qsf::kernels
