// SPDX-License-Identifier: MIT
//
// The table of rotation kernels.

#include "kernels/rope/rope.h"

#include "kernels/tiers.h"

namespace qsf::kernels {

extern const RopeKernels QSF_TIERS_OF(kRope);

std::span<const RopeKernels> rope_kernels() noexcept {
  static const RopeKernels table[] = {QSF_TIERS_OF(kRope)};
  return table;
}

}  // namespace qsf::kernels
