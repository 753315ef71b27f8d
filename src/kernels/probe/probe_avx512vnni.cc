// SPDX-License-Identifier: MIT
//
// Probe for AVX-512 with VNNI: four products of bytes and their sum in one instruction.

#include <immintrin.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_avx512vnni(std::uint32_t n_rounds) noexcept {
  auto a = _mm512_set1_epi8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::uint32_t>(
      n_rounds, _mm512_setzero_si512(), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return _mm512_dpbusd_epi32(sum, a, b);
      });
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
