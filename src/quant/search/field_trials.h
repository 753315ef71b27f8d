// SPDX-License-Identifier: MIT
//
// The loop of field trials (search_loops.h) for registers of any width.

#ifndef QSF_QUANT_SEARCH_FIELD_TRIALS_H_
#define QSF_QUANT_SEARCH_FIELD_TRIALS_H_

#include <cstddef>
#include <cstdint>

#include "quant/search/search_loops.h"

namespace qsf {
namespace {

// Floats and Ints: vectors of as many lanes.
template <typename Floats, typename Ints>
[[gnu::always_inline]] inline void try_fields(const CostedColumns& block, float top_code,
                                              std::size_t n_trials, FieldTrials& trials) noexcept {
  constexpr std::size_t kTrialLanes = sizeof(Floats) / sizeof(float);
  static_assert(kFieldTrials % kTrialLanes == 0);
  const Floats top = Floats{} + top_code;
  for (std::size_t first = 0; first < n_trials; first += kTrialLanes) {
    Floats scale, min;
    __builtin_memcpy(&scale, trials.scale + first, sizeof(scale));
    __builtin_memcpy(&min, trials.min + first, sizeof(min));
    const Floats one = Floats{} + 1.0F;
    const Floats inverse = scale != 0.0F ? one / scale : Floats{};
    Floats error = {}, r_sum = {}, r_code = {}, code_sum = {}, code_code = {};
    for (std::size_t i = 0; i < block.n; ++i) {
      const Floats weight = Floats{} + block.weights[i];
      const Floats cost = Floats{} + block.costs[i];
      Floats steps = (weight - min) * inverse + 0.5F;
      steps = steps > 0.0F ? steps : Floats{};
      steps = steps < top ? steps : top;
      const Floats code = __builtin_convertvector(__builtin_convertvector(steps, Ints), Floats);
      const Floats r = weight - (scale * code + min);
      const Floats costed_r = cost * r;
      const Floats costed_code = cost * code;
      error += costed_r * r;
      r_sum += costed_r;
      r_code += costed_r * code;
      code_sum += costed_code;
      code_code += costed_code * code;
    }
    __builtin_memcpy(trials.error + first, &error, sizeof(error));
    __builtin_memcpy(trials.r + first, &r_sum, sizeof(r_sum));
    __builtin_memcpy(trials.r_code + first, &r_code, sizeof(r_code));
    __builtin_memcpy(trials.code + first, &code_sum, sizeof(code_sum));
    __builtin_memcpy(trials.code_code + first, &code_code, sizeof(code_code));
  }
}

}  // namespace
}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_FIELD_TRIALS_H_
