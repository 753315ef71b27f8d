// SPDX-License-Identifier: MIT
//
// Probe for AVX-512 with VNNI: four products of bytes and their sum in one instruction.

#include <immintrin.h>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_avx512vnni(std::uint32_t n_rounds) noexcept {
  __m512i sums[12];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(1);
  const __m512i b = _mm512_set1_epi8(1);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    asm volatile("" : "+v"(a));
#pragma GCC unroll 12
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  __m512i all = sums[0];
  for (int i = 1; i < 12; ++i) all = _mm512_add_epi32(all, sums[i]);
  alignas(64) std::uint32_t lanes[16];
  _mm512_store_si512(lanes, all);
  std::uint64_t total = 0;
  for (const std::uint32_t lane : lanes) total += lane;
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
