// SPDX-License-Identifier: MIT
//
// Quantised keys and values, AVX2 tier.

#define QSF_TIER_AVX2
#include "kernels/kv_rows/kv_rows_lanes.h"

namespace qsf::kernels {

extern const KvRowKernels kKvRowAvx2;
const KvRowKernels kKvRowAvx2 = tier_avx2::kKvRowKernels;

}  // namespace qsf::kernels
