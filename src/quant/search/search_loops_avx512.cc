// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/field_trials.h"
#include "quant/search/search_loops.h"

namespace qsf {
namespace {

// Constants of this file, so that an object of this tier defines no shared symbol.
constexpr auto kCosets = trellis_cosets();
constexpr auto kNewestOfLanes = trellis_newest_of_lanes();

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

void take_trellis_steps_avx512(const float* level_costs, std::size_t n_steps, float* costs,
                               std::uint8_t* from) noexcept {
  alignas(64) float before[kTrellisStates];
  alignas(64) float coset_costs[16][16];  // of the states in lanes, by coset
  const __m512i of_lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m512i newest = _mm512_cvtepu8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(kNewestOfLanes.data())));
  for (std::size_t t = 0; t < n_steps; ++t, level_costs += 16, from += kTrellisStates) {
    const __m512 of_levels = _mm512_loadu_ps(level_costs);
    for (int j = 0; j < 16; ++j) {
      const __m512i levels = _mm512_xor_si512(newest, _mm512_set1_epi32(j));
      _mm512_store_ps(coset_costs[j], _mm512_permutexvar_ps(levels, of_levels));
    }
    for (unsigned i = 0; i < kTrellisStates; i += 16) {
      _mm512_store_ps(before + i, _mm512_loadu_ps(costs + i));
    }
    for (unsigned block = 0; block < kTrellisStates / 16; ++block) {
      const float* const entered = before + (block % 16 << 6U | block / 16 << 2U);
      const auto cost_of = [&](unsigned k) {
        const __m512 four = _mm512_broadcast_f32x4(_mm_load_ps(entered + 16 * k));
        return _mm512_add_ps(_mm512_permutevar_ps(four, of_lanes),
                             _mm512_load_ps(coset_costs[kCosets[4 * block + k]]));
      };
      // In pairs, so that fewer comparisons wait for each other.
      const __m512 cost[4] = {cost_of(0), cost_of(1), cost_of(2), cost_of(3)};
      const __m512 first = _mm512_min_ps(cost[0], cost[1]);
      const __m512 last = _mm512_min_ps(cost[2], cost[3]);
      const __mmask16 is_1 = _mm512_cmp_ps_mask(cost[1], cost[0], _CMP_LT_OQ);
      const __mmask16 is_3 = _mm512_cmp_ps_mask(cost[3], cost[2], _CMP_LT_OQ);
      const __mmask16 is_last = _mm512_cmp_ps_mask(last, first, _CMP_LT_OQ);
      const __m512 least = _mm512_min_ps(first, last);
      const __mmask16 low = static_cast<__mmask16>((is_1 & ~is_last) | (is_3 & is_last));
      const __m128i leaving =
          _mm_or_si128(_mm_maskz_set1_epi8(low, 1), _mm_maskz_set1_epi8(is_last, 2));
      _mm512_storeu_ps(costs + 16 * block, least);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(from + 16 * block), leaving);
    }
  }
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
