// SPDX-License-Identifier: MIT
//
// Probe for NEON with dot products: four products of bytes and their sum in one instruction.

#include <arm_neon.h>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_neondot(std::uint32_t n_rounds) noexcept {
  int32x4_t sums[12];
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  int8x16_t a = vdupq_n_s8(1);
  const int8x16_t b = vdupq_n_s8(1);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    asm volatile("" : "+w"(a));
#pragma GCC unroll 12
    for (int32x4_t& sum : sums) sum = vdotq_s32(sum, a, b);
  }
  std::uint64_t total = 0;
  for (const int32x4_t& sum : sums) {
    std::int32_t lanes[4];
    vst1q_s32(lanes, sum);
    for (const std::int32_t lane : lanes) total += static_cast<std::uint64_t>(lane);
  }
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
