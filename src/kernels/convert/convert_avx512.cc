// SPDX-License-Identifier: MIT
//
// Conversions of arrays, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/convert/convert_lanes.h"

namespace qsf::kernels {

extern const ConvertKernels kConvertAvx512;
const ConvertKernels kConvertAvx512 = tier_avx512::kConvertKernels;

}  // namespace qsf::kernels
