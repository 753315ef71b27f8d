// SPDX-License-Identifier: MIT
//
// All trials at once; the level is looked for by halving, with the middles in one register.

#include <immintrin.h>

#include "quant/search/codebook_trials.h"

namespace qsf {

static_assert(kCodebookTrials == 16);

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

}  // namespace qsf
