// SPDX-License-Identifier: MIT
//
// Probe for NEON with products of matrices: four sums of eight products of bytes in one
// instruction.

#include <arm_neon.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_neoni8mm(std::uint32_t n_rounds) noexcept {
  auto a = vdupq_n_s8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::int32_t>(
      n_rounds, vdupq_n_s32(0), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return vmmlaq_s32(sum, a, b);
      });
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
