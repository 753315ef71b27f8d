// SPDX-License-Identifier: MIT
//
// The table of kernels for quantised keys and values.

#include "kernels/kv_rows/kv_rows.h"

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const KvRowKernels QSF_TIERS_OF(kKvRow);

std::span<const KvRowKernels> kv_row_kernels() noexcept {
  static const KvRowKernels table[] = {QSF_TIERS_OF(kKvRow)};
  return table;
}

}  // namespace qsf::kernels
