// SPDX-License-Identifier: MIT
//
// Search for the largest logit, scalar tier: the maximum first, then its first place.

#include "kernels/sample/sample.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {

std::uint32_t argmax_scalar(const float* x, std::uint32_t n_values) noexcept {
  const float max = max_value_scalar(x, n_values);
  for (std::uint32_t i = 0; i < n_values; ++i) {
    if (x[i] == max) return i;
  }
  return 0;
}

}  // namespace qsf::kernels
