// SPDX-License-Identifier: MIT
//
// Probes for AVX2 with FMA: products of bytes are added up in pairs, and pairs in 16 bits.

#include <immintrin.h>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {
namespace {

// Reads kStreams parts side by side, a line of each in turn.
template <std::uint32_t kStreams>
[[gnu::always_inline]] inline std::uint64_t read_streams(const ReadProbeArgs& args) noexcept {
  const std::size_t n_stream_bytes = args.n_bytes / kStreams;
  __m256i sums[4];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (std::size_t at = 0; at < n_stream_bytes; at += 64) {
#pragma GCC unroll 8
    for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* const line = args.memory + stream * n_stream_bytes + at;
      if (args.prefetch_bytes != 0) {
        _mm_prefetch(reinterpret_cast<const char*>(line + args.prefetch_bytes), _MM_HINT_T0);
      }
      const auto* const halves = reinterpret_cast<const __m256i*>(line);
      sums[stream % 2] = _mm256_add_epi64(sums[stream % 2], _mm256_load_si256(halves));
      sums[2 + stream % 2] = _mm256_add_epi64(sums[2 + stream % 2], _mm256_load_si256(halves + 1));
    }
  }
  const __m256i all =
      _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
  alignas(64) std::uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  std::uint64_t total = 0;
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

}  // namespace

std::uint64_t probe_i8_avx2(std::uint32_t n_rounds) noexcept {
  __m256i sums[12];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(1);
  const __m256i b = _mm256_set1_epi8(1);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      // Opaque to the compiler, which would multiply once.
      asm volatile("" : "+x"(a));
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
    }
  }
  __m256i all = sums[0];
  for (int i = 1; i < 12; ++i) all = _mm256_add_epi16(all, sums[i]);
  alignas(64) std::uint16_t lanes[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  std::uint64_t total = 0;
  for (const std::uint16_t lane : lanes) total += lane;
  return total & 0xFFFFU;
}

std::uint64_t probe_f32_avx2(std::uint32_t n_rounds) noexcept {
  __m256 sums[12];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  __m256 a = _mm256_set1_ps(1.0F);
  __m256 b = a;
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    asm volatile("" : "+x"(a), "+x"(b));
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
  }
  std::uint64_t total = 0;
  for (const __m256& sum : sums) {
    alignas(64) float lanes[8];
    _mm256_store_ps(lanes, sum);
    for (const float lane : lanes) total += static_cast<std::uint64_t>(lane);
  }
  return total;
}

std::uint64_t probe_read_avx2(const ReadProbeArgs& args) noexcept {
  switch (args.n_streams) {
    case 4: return read_streams<4>(args);
    case 8: return read_streams<8>(args);
    default: return read_streams<1>(args);
  }
}

}  // namespace qsf::kernels
