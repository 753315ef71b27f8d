// SPDX-License-Identifier: MIT
//
// Conversions of arrays, NEON tier.

#define QSF_TIER_NEON
#include "kernels/convert/convert_lanes.h"

namespace qsf::kernels {

extern const ConvertKernels kConvertNeon;
const ConvertKernels kConvertNeon = tier_neon::kConvertKernels;

}  // namespace qsf::kernels
