// SPDX-License-Identifier: MIT
//
// Probe for SSE4.2: products of bytes are added up in pairs, and pairs in 16 bits.

#include <immintrin.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_sse42(std::uint32_t n_rounds) noexcept {
  auto a = _mm_set1_epi8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::uint16_t>(
      n_rounds, _mm_setzero_si128(), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return _mm_add_epi16(sum, _mm_maddubs_epi16(a, b));
      });
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
