// SPDX-License-Identifier: MIT
//
// What sixteen scales of one sub-block of a table type lead to, each in a lane of its own: the
// inner loop of their search (quant/search/codebook_search.h).
//
// A lane's numbers are those of f32 operations in the order of columns, none of them fused: every
// machine finds the same, however wide its registers are.

#ifndef QSF_QUANT_SEARCH_CODEBOOK_TRIALS_H_
#define QSF_QUANT_SEARCH_CODEBOOK_TRIALS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/search/codebook_search.h"

namespace qsf {

inline constexpr std::size_t kCodebookTrials = 16;

// The levels of a type as constants of the loop.
struct TrialLevels {
  explicit TrialLevels(std::span<const std::int8_t> levels) noexcept;

  std::size_t n;  // 4, 8 or 16
  alignas(64) float level[16] = {};
  alignas(64) float middle[16] = {};  // [j]: between levels j - 1 and j
  alignas(64) float step[16] = {};    // level j less level j - 1
};

// A sub-block and what errors in it cost.
struct CodebookSubBlock {
  std::size_t n = 0;
  float weights[kMaxCodebookBlock];
  float costs[kMaxCodebookBlock];
};

// Sums over the columns, weighted with the costs.
struct CodebookTrials {
  alignas(64) float scale[kCodebookTrials];        // given
  alignas(64) float error[kCodebookTrials];        // (w - scale * level)^2
  alignas(64) float w_level[kCodebookTrials];      // w * level
  alignas(64) float level_level[kCodebookTrials];  // level^2
};

// Takes for every weight the level that is next to weight / scale (the first where the scale is 0),
// the lower of two, and sums.
using RunCodebookTrialsFn = void (*)(const CodebookSubBlock& block, const TrialLevels& levels,
                                     CodebookTrials& trials) noexcept;

struct CodebookTrialsMethod {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  RunCodebookTrialsFn run;
};

// Every method in this binary, the fastest first; the last one runs everywhere.
std::span<const CodebookTrialsMethod> codebook_trials_methods() noexcept;

// Returns the fastest one of this CPU. Threads  any
RunCodebookTrialsFn best_codebook_trials() noexcept;

// Registers of 128 bits, which every machine has; of 256 (x86-64 AVX2) and of 512 (AVX-512F).
void run_codebook_trials_baseline(const CodebookSubBlock& block, const TrialLevels& levels,
                                  CodebookTrials& trials) noexcept;
void run_codebook_trials_avx2(const CodebookSubBlock& block, const TrialLevels& levels,
                              CodebookTrials& trials) noexcept;
void run_codebook_trials_avx512(const CodebookSubBlock& block, const TrialLevels& levels,
                                CodebookTrials& trials) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_CODEBOOK_TRIALS_H_
