// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/field_trials.h"
#include "quant/search/search_loops.h"

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

void sum_codes_avx512(const IntBlocks& blocks, IntGrid grid, const IntTrial* trials,
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

static_assert(kCodebookTrials == 16);

// All trials at once; the level is found by halving, with the middles in one register.
void run_codebook_trials_avx512(const CodebookSubBlock& block, const TrialLevels& levels,
                                CodebookTrials& trials) noexcept {
  const __m512 zero = _mm512_setzero_ps();
  const __m512 all_levels = _mm512_load_ps(levels.level);
  const __m512 middles = _mm512_load_ps(levels.middle);
  const __m512 scale = _mm512_load_ps(trials.scale);
  const __m512 inverse = _mm512_maskz_div_ps(_mm512_cmp_ps_mask(scale, zero, _CMP_NEQ_UQ),
                                             _mm512_set1_ps(1.0F), scale);
  __m512 error = zero;
  __m512 w_level = zero;
  __m512 level_level = zero;
  for (std::size_t i = 0; i < block.n; ++i) {
    const __m512 weight = _mm512_set1_ps(block.weights[i]);
    const __m512 cost = _mm512_set1_ps(block.costs[i]);
    const __m512 at = _mm512_mul_ps(weight, inverse);
    __m512i code = _mm512_setzero_si512();
    for (int half = static_cast<int>(levels.n) / 2; half > 0; half /= 2) {
      const __m512i upper = _mm512_add_epi32(code, _mm512_set1_epi32(half));
      const __m512 middle = _mm512_permutexvar_ps(upper, middles);
      code = _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(at, middle, _CMP_GT_OQ), upper);
    }
    const __m512 level = _mm512_permutexvar_ps(code, all_levels);
    const __m512 r = _mm512_sub_ps(weight, _mm512_mul_ps(scale, level));
    const __m512 costed_level = _mm512_mul_ps(cost, level);
    error = _mm512_add_ps(error, _mm512_mul_ps(_mm512_mul_ps(cost, r), r));
    w_level = _mm512_add_ps(w_level, _mm512_mul_ps(costed_level, weight));
    level_level = _mm512_add_ps(level_level, _mm512_mul_ps(costed_level, level));
  }
  _mm512_store_ps(trials.error, error);
  _mm512_store_ps(trials.w_level, w_level);
  _mm512_store_ps(trials.level_level, level_level);
}

// Few trials take few lanes.
void run_field_trials_avx512(const CostedColumns& block, float top, std::size_t n_trials,
                             FieldTrials& trials) noexcept {
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::int32_t Ints __attribute__((vector_size(64)));
  typedef float Quad __attribute__((vector_size(16)));
  typedef std::int32_t IntQuad __attribute__((vector_size(16)));
  if (n_trials <= 4) {
    try_fields<Quad, IntQuad>(block, top, n_trials, trials);
  } else if (n_trials <= 8) {
    typedef float Half __attribute__((vector_size(32)));
    typedef std::int32_t IntHalf __attribute__((vector_size(32)));
    try_fields<Half, IntHalf>(block, top, n_trials, trials);
  } else {
    try_fields<Floats, Ints>(block, top, n_trials, trials);
  }
}

}  // namespace qsf
