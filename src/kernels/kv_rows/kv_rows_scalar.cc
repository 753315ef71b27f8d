// SPDX-License-Identifier: MIT
//
// Quantised keys and values, scalar tier.

#include "kernels/kv_rows/kv_rows_lanes.h"

namespace qsf::kernels {

extern const KvRowKernels kKvRowScalar;
const KvRowKernels kKvRowScalar = tier_scalar::kKvRowKernels;

}  // namespace qsf::kernels
