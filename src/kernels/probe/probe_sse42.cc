// SPDX-License-Identifier: MIT
//
// Probes for SSE4.2: products of bytes added up in pairs, and pairs in 16 bits.

#include <immintrin.h>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_sse42(std::uint32_t n_rounds) noexcept {
  __m128i sums[12];
  for (__m128i& sum : sums) sum = _mm_setzero_si128();
  __m128i a = _mm_set1_epi8(1);
  const __m128i b = _mm_set1_epi8(1);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
#pragma GCC unroll 12
    for (__m128i& sum : sums) {
      // Opaque to the compiler, which would multiply once.
      asm volatile("" : "+x"(a));
      sum = _mm_add_epi16(sum, _mm_maddubs_epi16(a, b));
    }
  }
  __m128i all = sums[0];
  for (int i = 1; i < 12; ++i) all = _mm_add_epi16(all, sums[i]);
  alignas(16) std::uint16_t lanes[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), all);
  std::uint64_t total = 0;
  for (const std::uint16_t lane : lanes) total += lane;
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
