// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/field_trials.h"
#include "quant/search/search_loops.h"

namespace qsf {
namespace {

constexpr std::size_t kLanes = 8;  // f32 of a register

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

void sum_codes_avx2(const IntBlocks& blocks, IntGrid grid, const IntTrial* trials,
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

void run_codebook_trials_avx2(const CodebookSubBlock& block, const TrialLevels& levels,
                              CodebookTrials& trials) noexcept {
  const __m256 zero = _mm256_setzero_ps();
  for (std::size_t first = 0; first < kCodebookTrials; first += kLanes) {
    const __m256 scale = _mm256_load_ps(trials.scale + first);
    const __m256 inverse = _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(1.0F), scale),
                                         _mm256_cmp_ps(scale, zero, _CMP_NEQ_UQ));
    __m256 error = zero;
    __m256 w_level = zero;
    __m256 level_level = zero;
    for (std::size_t i = 0; i < block.n; ++i) {
      const __m256 weight = _mm256_set1_ps(block.weights[i]);
      const __m256 cost = _mm256_set1_ps(block.costs[i]);
      const __m256 at = _mm256_mul_ps(weight, inverse);
      __m256 level = _mm256_set1_ps(levels.level[0]);
      for (std::size_t j = 1; j < levels.n; ++j) {
        const __m256 above = _mm256_cmp_ps(at, _mm256_set1_ps(levels.middle[j]), _CMP_GT_OQ);
        level = _mm256_add_ps(level, _mm256_and_ps(above, _mm256_set1_ps(levels.step[j])));
      }
      const __m256 r = _mm256_sub_ps(weight, _mm256_mul_ps(scale, level));
      const __m256 costed_level = _mm256_mul_ps(cost, level);
      error = _mm256_add_ps(error, _mm256_mul_ps(_mm256_mul_ps(cost, r), r));
      w_level = _mm256_add_ps(w_level, _mm256_mul_ps(costed_level, weight));
      level_level = _mm256_add_ps(level_level, _mm256_mul_ps(costed_level, level));
    }
    _mm256_store_ps(trials.error + first, error);
    _mm256_store_ps(trials.w_level + first, w_level);
    _mm256_store_ps(trials.level_level + first, level_level);
  }
}

// Few trials take few lanes.
void run_field_trials_avx2(const CostedColumns& block, float top, std::size_t n_trials,
                           FieldTrials& trials) noexcept {
  typedef float Floats __attribute__((vector_size(32)));
  typedef std::int32_t Ints __attribute__((vector_size(32)));
  typedef float Quad __attribute__((vector_size(16)));
  typedef std::int32_t IntQuad __attribute__((vector_size(16)));
  if (n_trials <= 4) {
    try_fields<Quad, IntQuad>(block, top, n_trials, trials);
  } else {
    try_fields<Floats, Ints>(block, top, n_trials, trials);
  }
}

}  // namespace qsf
