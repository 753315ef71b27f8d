// SPDX-License-Identifier: MIT

#include <immintrin.h>

#include "quant/search/codebook_trials.h"

namespace qsf {
namespace {

constexpr std::size_t kLanes = 8;

}  // namespace

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

}  // namespace qsf
