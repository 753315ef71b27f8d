// SPDX-License-Identifier: MIT
//
// The table of conversion kernels.

#include "kernels/convert/convert.h"

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const ConvertKernels QSF_TIERS_OF(kConvert);

std::span<const ConvertKernels> convert_kernels() noexcept {
  static const ConvertKernels table[] = {QSF_TIERS_OF(kConvert)};
  return table;
}

}  // namespace qsf::kernels
