// SPDX-License-Identifier: MIT
//
// Conversions of arrays, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/convert/convert_lanes.h"

namespace qsf::kernels {

extern const ConvertKernels kConvertAvx2;
const ConvertKernels kConvertAvx2 = tier_avx2::kConvertKernels;

}  // namespace qsf::kernels
