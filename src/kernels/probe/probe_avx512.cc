// SPDX-License-Identifier: MIT
//
// Probes for AVX-512: products of bytes are added up in pairs, and pairs in 16 bits.

#include <immintrin.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_avx512(std::uint32_t n_rounds) noexcept {
  auto a = _mm512_set1_epi8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::uint16_t>(
      n_rounds, _mm512_setzero_si512(), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b));
      });
  return total & 0xFFFFU;
}

std::uint64_t probe_f32_avx512(std::uint32_t n_rounds) noexcept {
  auto a = _mm512_set1_ps(1.0F);
  const auto b = a;
  return run_chains<float>(
      n_rounds, _mm512_setzero_ps(), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return _mm512_fmadd_ps(a, b, sum);
      });
}

std::uint64_t probe_read_avx512(const ReadProbeArgs& args) noexcept {
  return read_memory<64>(args);
}

}  // namespace qsf::kernels
