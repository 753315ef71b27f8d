// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/code_sums.h"

namespace qsf {
namespace {

__m256i load(const std::int16_t* from) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

// A number of each block, once for every column of two lines.
__m256i spread(const std::int32_t* values) noexcept {
  const __m256i v =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(values)));
  return _mm256_blend_epi16(v, _mm256_slli_epi32(v, 16), 0xAA);
}

void store(__m256i sum, std::int32_t* to) noexcept {
  _mm_store_si128(reinterpret_cast<__m128i*>(to),
                  _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
}

}  // namespace

void sum_codes_avx2(const WholeBlocks& blocks, WholeGrid grid, const WholeTrial* trials,
                    std::size_t n_trials, CodeSums* sums) noexcept {
  const __m256i top = _mm256_set1_epi16(static_cast<short>(grid.top));
  const __m128i shift = _mm_cvtsi32_si128(grid.shift);
  for (std::size_t i = 0; i < n_trials; ++i) {
    const __m256i inverse = spread(trials[i].inverse);
    const __m256i offset = spread(trials[i].offset);
    __m256i code = _mm256_setzero_si256();
    __m256i code_code = code;
    __m256i weight_code = code;
    for (std::size_t at = 0; at < blocks.n_lines * kLineSize; at += 2 * kLineSize) {
      const __m256i steps =
          _mm256_add_epi16(_mm256_mulhi_epi16(load(blocks.weights + at), inverse), offset);
      const __m256i codes = _mm256_max_epi16(_mm256_min_epi16(_mm256_sra_epi16(steps, shift), top),
                                             _mm256_setzero_si256());
      const __m256i costs = load(blocks.costs + at);
      code = _mm256_add_epi32(code, _mm256_madd_epi16(costs, codes));
      code_code =
          _mm256_add_epi32(code_code, _mm256_madd_epi16(costs, _mm256_mullo_epi16(codes, codes)));
      weight_code =
          _mm256_add_epi32(weight_code, _mm256_madd_epi16(load(blocks.costed + at), codes));
    }
    store(code, sums[i].code);
    store(code_code, sums[i].code_code);
    store(weight_code, sums[i].weight_code);
  }
}

}  // namespace qsf
