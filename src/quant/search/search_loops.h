// SPDX-License-Identifier: MIT
//
// The inner loops of the scale search, for registers of 128 bits (baseline: every machine), 256
// (x86-64 AVX2) and 512 (AVX-512F and AVX-512BW). All give the same bits.
//
// Code sums (quant/search/batched_scale_search.h) try fields of four blocks at once in 16-bit
// integers:
//
//   code = clamp(((weight * inverse >> 16) + offset) >> shift, 0, top)
//
// Integers may be summed in any order, so the sums do not depend on the width of registers.
//
// Field trials (quant/search/block_search.h) try sixteen pairs of scale and min of one block in
// f32. Codebook trials (quant/search/codebook_search.h) try sixteen scales of one sub-block. Each
// trial has a lane of its own, whose sums are f32 operations in the order of columns, none of them
// fused, so they do not depend on the width of registers either.

#ifndef QSF_QUANT_SEARCH_SEARCH_LOOPS_H_
#define QSF_QUANT_SEARCH_SEARCH_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/block_format.h"

namespace qsf {

inline constexpr std::size_t kBlocksPerBatch = 4;

// A line has two columns of each block: two of block 0, two of block 1, ...
inline constexpr std::size_t kLineColumns = 2;
inline constexpr std::size_t kLineSize = kBlocksPerBatch * kLineColumns;

// Lines are summed four at a time.
inline constexpr std::size_t kLinesAtOnce = 4;

struct IntBlocks {
  std::size_t n_lines;  // a multiple of kLinesAtOnce
  // Line by line; 0 for padding columns.
  alignas(64) std::int16_t weights[kBlocksPerBatch * kMaxBlock];
  alignas(64) std::int16_t costs[kBlocksPerBatch * kMaxBlock];   // >= 0; see CodeSums
  alignas(64) std::int16_t costed[kBlocksPerBatch * kMaxBlock];  // cost * weight, in any unit
};

// How codes follow from weights, per block.
struct IntTrial {
  alignas(16) std::int32_t inverse[kBlocksPerBatch];  // in [-32767, 32767]
  alignas(16) std::int32_t offset[kBlocksPerBatch];   // in [-16383, 16383]
};

struct IntGrid {
  std::int32_t top;    // at most 63
  std::int32_t shift;  // at most 15
};

// Sums over the columns of each block, each below 2^31 in magnitude.
struct CodeSums {
  alignas(16) std::int32_t code[kBlocksPerBatch];         // cost * code
  alignas(16) std::int32_t code_code[kBlocksPerBatch];    // cost * code^2
  alignas(16) std::int32_t weight_code[kBlocksPerBatch];  // costed * code
};

// Shapes    trials, sums [n_trials]
using SumCodesFn = void (*)(const IntBlocks& blocks, IntGrid grid, const IntTrial* trials,
                            std::size_t n_trials, CodeSums* sums) noexcept;

struct CodeSumsMethod {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  SumCodesFn run;
};

// Returns every method in this binary and their number, the fastest first; the last one runs
// everywhere.
const CodeSumsMethod* code_sums_methods(std::size_t& n_methods) noexcept;

// Returns the fastest method of this CPU. Threads  any
SumCodesFn best_code_sums() noexcept;

void sum_codes_baseline(const IntBlocks& blocks, IntGrid grid, const IntTrial* trials,
                        std::size_t n_trials, CodeSums* sums) noexcept;
void sum_codes_avx2(const IntBlocks& blocks, IntGrid grid, const IntTrial* trials,
                    std::size_t n_trials, CodeSums* sums) noexcept;
void sum_codes_avx512(const IntBlocks& blocks, IntGrid grid, const IntTrial* trials,
                      std::size_t n_trials, CodeSums* sums) noexcept;

inline constexpr std::size_t kFieldTrials = 16;

// A block and the cost of errors in each column.
struct CostedColumns {
  const float* weights;
  const float* costs;
  std::size_t n;
};

// Sums over the columns, weighted with the costs. `r` is the residual w - (scale * code + min).
struct FieldTrials {
  alignas(64) float scale[kFieldTrials];      // given
  alignas(64) float min[kFieldTrials];        // given
  alignas(64) float error[kFieldTrials];      // r^2
  alignas(64) float r[kFieldTrials];          // r
  alignas(64) float r_code[kFieldTrials];     // r * code
  alignas(64) float code[kFieldTrials];       // code
  alignas(64) float code_code[kFieldTrials];  // code^2
};

// Chooses for every weight the code in [0, top] nearest to (weight - min) / scale (0 if the scale
// is 0), and sums; of the first n_trials trials at least.
// Requires  0 < n_trials <= kFieldTrials; all fields are set
using RunFieldTrialsFn = void (*)(const CostedColumns& block, float top, std::size_t n_trials,
                                  FieldTrials& trials) noexcept;

struct FieldTrialsMethod {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  RunFieldTrialsFn run;
};

// Returns every method in this binary, the fastest first; the last one runs everywhere.
std::span<const FieldTrialsMethod> field_trials_methods() noexcept;

// Returns the fastest method of this CPU. Threads  any
RunFieldTrialsFn best_field_trials() noexcept;

void run_field_trials_baseline(const CostedColumns& block, float top, std::size_t n_trials,
                               FieldTrials& trials) noexcept;
void run_field_trials_avx2(const CostedColumns& block, float top, std::size_t n_trials,
                           FieldTrials& trials) noexcept;
void run_field_trials_avx512(const CostedColumns& block, float top, std::size_t n_trials,
                             FieldTrials& trials) noexcept;

inline constexpr std::uint32_t kMaxCodebookBlock = 32;  // columns of a sub-block
inline constexpr std::size_t kCodebookTrials = 16;

// The levels of a type as constants of the loop.
struct TrialLevels {
  explicit TrialLevels(std::span<const std::int8_t> levels) noexcept;

  std::size_t n;  // 4, 8 or 16
  alignas(64) float level[16] = {};
  alignas(64) float middle[16] = {};  // [j]: between levels j - 1 and j
  alignas(64) float step[16] = {};    // level j less level j - 1
};

// A sub-block and the cost of errors in each column.
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

// Chooses for every weight the level nearest to weight / scale (the lower one of a tie, the first
// level if the scale is 0), and sums.
using RunCodebookTrialsFn = void (*)(const CodebookSubBlock& block, const TrialLevels& levels,
                                     CodebookTrials& trials) noexcept;

struct CodebookTrialsMethod {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  RunCodebookTrialsFn run;
};

// Returns every method in this binary, the fastest first; the last one runs everywhere.
std::span<const CodebookTrialsMethod> codebook_trials_methods() noexcept;

// Returns the fastest method of this CPU. Threads  any
RunCodebookTrialsFn best_codebook_trials() noexcept;

void run_codebook_trials_baseline(const CodebookSubBlock& block, const TrialLevels& levels,
                                  CodebookTrials& trials) noexcept;
void run_codebook_trials_avx2(const CodebookSubBlock& block, const TrialLevels& levels,
                              CodebookTrials& trials) noexcept;
void run_codebook_trials_avx512(const CodebookSubBlock& block, const TrialLevels& levels,
                                CodebookTrials& trials) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_SEARCH_LOOPS_H_
