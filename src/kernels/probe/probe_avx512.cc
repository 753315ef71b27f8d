// SPDX-License-Identifier: MIT
//
// Probes for AVX-512: products of bytes are added up in pairs, and pairs in 16 bits.

#include <immintrin.h>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {
namespace {

// Reads kStreams parts side by side, a line of each in turn.
template <std::uint32_t kStreams>
[[gnu::always_inline]] inline std::uint64_t read_streams(const ReadProbeArgs& args) noexcept {
  const std::size_t n_stream_bytes = args.n_bytes / kStreams;
  __m512i sums[4];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (std::size_t at = 0; at < n_stream_bytes; at += 64) {
#pragma GCC unroll 8
    for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* const line = args.memory + stream * n_stream_bytes + at;
      if (args.prefetch_bytes != 0) {
        _mm_prefetch(reinterpret_cast<const char*>(line + args.prefetch_bytes), _MM_HINT_T0);
      }
      sums[stream % 4] = _mm512_add_epi64(
          sums[stream % 4], _mm512_load_si512(reinterpret_cast<const __m512i*>(line)));
    }
  }
  const __m512i all =
      _mm512_add_epi64(_mm512_add_epi64(sums[0], sums[1]), _mm512_add_epi64(sums[2], sums[3]));
  alignas(64) std::uint64_t lanes[8];
  _mm512_store_si512(reinterpret_cast<__m512i*>(lanes), all);
  std::uint64_t total = 0;
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

}  // namespace

std::uint64_t probe_i8_avx512(std::uint32_t n_rounds) noexcept {
  __m512i sums[12];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(1);
  const __m512i b = _mm512_set1_epi8(1);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) {
      // Opaque to the compiler, which would multiply once.
      asm volatile("" : "+v"(a));
      sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b));
    }
  }
  __m512i all = sums[0];
  for (int i = 1; i < 12; ++i) all = _mm512_add_epi16(all, sums[i]);
  alignas(64) std::uint16_t lanes[32];
  _mm512_store_si512(reinterpret_cast<__m512i*>(lanes), all);
  std::uint64_t total = 0;
  for (const std::uint16_t lane : lanes) total += lane;
  return total & 0xFFFFU;
}

std::uint64_t probe_f32_avx512(std::uint32_t n_rounds) noexcept {
  __m512 sums[12];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(1.0F);
  __m512 b = a;
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
  }
  std::uint64_t total = 0;
  for (const __m512& sum : sums) {
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, sum);
    for (const float lane : lanes) total += static_cast<std::uint64_t>(lane);
  }
  return total;
}

std::uint64_t probe_read_avx512(const ReadProbeArgs& args) noexcept {
  switch (args.n_streams) {
    case 4: return read_streams<4>(args);
    case 8: return read_streams<8>(args);
    default: return read_streams<1>(args);
  }
}

}  // namespace qsf::kernels
