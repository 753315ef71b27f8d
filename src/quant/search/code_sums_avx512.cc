// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/code_sums.h"

namespace qsf {
namespace {

// A number of each block, once for every column of four lines.
__m512i spread(const std::int32_t* values) noexcept {
  const __m512i v =
      _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(values)));
  return _mm512_mask_blend_epi16(0xAAAAAAAAU, v, _mm512_slli_epi32(v, 16));
}

void store(__m512i sum, std::int32_t* to) noexcept {
  const __m256i half =
      _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
  _mm_store_si128(reinterpret_cast<__m128i*>(to),
                  _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

}  // namespace

void sum_codes_avx512(const WholeBlocks& blocks, WholeGrid grid, const WholeTrial* trials,
                      std::size_t n_trials, CodeSums* sums) noexcept {
  const __m512i top = _mm512_set1_epi16(static_cast<short>(grid.top));
  const __m128i shift = _mm_cvtsi32_si128(grid.shift);
  for (std::size_t i = 0; i < n_trials; ++i) {
    const __m512i inverse = spread(trials[i].inverse);
    const __m512i offset = spread(trials[i].offset);
    __m512i code = _mm512_setzero_si512();
    __m512i code_code = code;
    __m512i weight_code = code;
    for (std::size_t at = 0; at < blocks.n_lines * kLineSize; at += 4 * kLineSize) {
      const __m512i steps = _mm512_add_epi16(
          _mm512_mulhi_epi16(_mm512_load_si512(blocks.weights + at), inverse), offset);
      const __m512i codes = _mm512_max_epi16(_mm512_min_epi16(_mm512_sra_epi16(steps, shift), top),
                                             _mm512_setzero_si512());
      const __m512i costs = _mm512_load_si512(blocks.costs + at);
      code = _mm512_add_epi32(code, _mm512_madd_epi16(costs, codes));
      code_code =
          _mm512_add_epi32(code_code, _mm512_madd_epi16(costs, _mm512_mullo_epi16(codes, codes)));
      weight_code = _mm512_add_epi32(
          weight_code, _mm512_madd_epi16(_mm512_load_si512(blocks.costed + at), codes));
    }
    store(code, sums[i].code);
    store(code_code, sums[i].code_code);
    store(weight_code, sums[i].weight_code);
  }
}

}  // namespace qsf
