// SPDX-License-Identifier: MIT

#include "quant/search/codebook_trials.h"

#include <algorithm>

#include "quant/vector_isa.h"

namespace qsf {
namespace {

typedef float Quad __attribute__((vector_size(16)));
typedef std::int32_t IntQuad __attribute__((vector_size(16)));

constexpr CodebookTrialsMethod kMethods[] = {
#if defined(__x86_64__)
    {.name = "avx512", .is_available = has_avx512, .run = run_codebook_trials_avx512},
    {.name = "avx2", .is_available = has_avx2, .run = run_codebook_trials_avx2},
#endif
    {.name = "baseline", .is_available = has_any, .run = run_codebook_trials_baseline},
};

// Of a known number of levels: in registers of 128 bits a loop over them takes half as long again.
template <std::size_t kLevels>
void run(const CodebookSubBlock& block, const TrialLevels& levels,
         CodebookTrials& trials) noexcept {
  for (std::size_t first = 0; first < kCodebookTrials; first += 4) {
    Quad scale, inverse;
    for (std::size_t lane = 0; lane < 4; ++lane) {
      scale[lane] = trials.scale[first + lane];
      inverse[lane] = scale[lane] != 0.0F ? 1.0F / scale[lane] : 0.0F;
    }
    Quad error = {}, w_level = {}, level_level = {};
    for (std::size_t i = 0; i < block.n; ++i) {
      const Quad weight = Quad{} + block.weights[i];
      const Quad cost = Quad{} + block.costs[i];
      const Quad at = weight * inverse;
      Quad level = Quad{} + levels.level[0];
      for (std::size_t j = 1; j < kLevels; ++j) {
        const IntQuad above = at > Quad{} + levels.middle[j];
        const Quad step = Quad{} + levels.step[j];
        level += reinterpret_cast<Quad>(above & reinterpret_cast<IntQuad>(step));
      }
      const Quad r = weight - scale * level;
      const Quad costed_level = cost * level;
      error += cost * r * r;
      w_level += costed_level * weight;
      level_level += costed_level * level;
    }
    for (std::size_t lane = 0; lane < 4; ++lane) {
      trials.error[first + lane] = error[lane];
      trials.w_level[first + lane] = w_level[lane];
      trials.level_level[first + lane] = level_level[lane];
    }
  }
}

}  // namespace

TrialLevels::TrialLevels(std::span<const std::int8_t> levels) noexcept : n(levels.size()) {
  for (std::size_t j = 0; j < n; ++j) level[j] = static_cast<float>(levels[j]);
  for (std::size_t j = 1; j < n; ++j) {
    middle[j] = 0.5F * static_cast<float>(levels[j - 1] + levels[j]);
    step[j] = static_cast<float>(levels[j] - levels[j - 1]);
  }
}

std::span<const CodebookTrialsMethod> codebook_trials_methods() noexcept {
  return kMethods;
}

RunCodebookTrialsFn best_codebook_trials() noexcept {
  static const RunCodebookTrialsFn best =
      std::ranges::find_if(kMethods, [](const auto& method) { return method.is_available(); })->run;
  return best;
}

void run_codebook_trials_baseline(const CodebookSubBlock& block, const TrialLevels& levels,
                                  CodebookTrials& trials) noexcept {
  switch (levels.n) {
    case 4: return run<4>(block, levels, trials);
    case 8: return run<8>(block, levels, trials);
    default: return run<16>(block, levels, trials);
  }
}

}  // namespace qsf
