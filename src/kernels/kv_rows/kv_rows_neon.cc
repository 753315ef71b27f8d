// SPDX-License-Identifier: MIT
//
// Quantised keys and values, NEON tier.

#define QSF_TIER_NEON
#include "kernels/kv_rows/kv_rows_lanes.h"

namespace qsf::kernels {

extern const KvRowKernels kKvRowNeon;
const KvRowKernels kKvRowNeon = tier_neon::kKvRowKernels;

}  // namespace qsf::kernels
