// SPDX-License-Identifier: MIT
//
// Conversions of arrays, scalar tier.

#include "kernels/convert/convert_lanes.h"

namespace qsf::kernels {

extern const ConvertKernels kConvertScalar;
const ConvertKernels kConvertScalar = tier_scalar::kConvertKernels;

}  // namespace qsf::kernels
