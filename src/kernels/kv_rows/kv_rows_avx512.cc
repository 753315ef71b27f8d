// SPDX-License-Identifier: MIT
//
// Quantised keys and values, AVX-512 tier.

#define QSF_TIER_AVX512
#include "kernels/kv_rows/kv_rows_lanes.h"

namespace qsf::kernels {

extern const KvRowKernels kKvRowAvx512;
const KvRowKernels kKvRowAvx512 = tier_avx512::kKvRowKernels;

}  // namespace qsf::kernels
