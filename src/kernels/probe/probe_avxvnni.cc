// SPDX-License-Identifier: MIT
//
// Probe for AVX-VNNI: four products of bytes and their sum in one instruction of 256 bits.

#include "kernels/dot_bytes_avxvnni.h"
#include "kernels/probe/probe_loops.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {

std::uint64_t probe_i8_avxvnni(std::uint32_t n_rounds) noexcept {
  auto a = _mm256_set1_epi8(1);
  const auto b = a;
  const std::uint64_t total = run_chains<std::uint32_t>(
      n_rounds, _mm256_setzero_si256(), [&](auto sum) __attribute__((always_inline)) {
        QSF_OPAQUE(a);
        return dot_bytes(sum, a, b);
      });
  return total & 0xFFFFU;
}

}  // namespace qsf::kernels
