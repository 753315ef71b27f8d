// SPDX-License-Identifier: MIT
//
// Probe for NEON with dot products: four products of bytes and their sum in one instruction.

#include <arm_neon.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_neondot(std::uint32_t n_rounds) noexcept {
  auto a = vdupq_n_s8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::int32_t>(
      n_rounds, vdupq_n_s32(0), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return vdotq_s32(sum, a, b);
      });
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
