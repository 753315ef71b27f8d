// SPDX-License-Identifier: MIT
//
// Probes for AVX2 with FMA: products of bytes are added up in pairs, and pairs in 16 bits.

#include <immintrin.h>

#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_avx2(std::uint32_t n_rounds) noexcept {
  auto a = _mm256_set1_epi8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::uint16_t>(
      n_rounds, _mm256_setzero_si256(), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
      });
  return total & 0xFFFFU;
}

std::uint64_t probe_f32_avx2(std::uint32_t n_rounds) noexcept {
  auto a = _mm256_set1_ps(1.0F);
  const auto b = a;
  return run_chains<float>(
      n_rounds, _mm256_setzero_ps(), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return _mm256_fmadd_ps(a, b, sum);
      });
}

std::uint64_t probe_read_avx2(const ReadProbeArgs& args) noexcept {
  return read_memory<32>(args);
}

}  // namespace qsf::kernels
