// SPDX-License-Identifier: MIT
//
// What trials of fields lead to, for four blocks side by side in whole numbers of 16 bits: the
// inner loop of the search for scales (quant/search/batched_scale_search.h).
//
//   code = clamp(((weight * inverse >> 16) + offset) >> shift, 0, top)
//
// Whole numbers may be summed in any order: every machine finds the same sums, however wide its
// registers are.

#ifndef QSF_QUANT_SEARCH_CODE_SUMS_H_
#define QSF_QUANT_SEARCH_CODE_SUMS_H_

#include <cstddef>
#include <cstdint>

#include "quant/types.h"

namespace qsf {

inline constexpr std::size_t kBlocksPerBatch = 4;

// Columns come in lines of two for each block: two of block 0, two of block 1, ...
inline constexpr std::size_t kLineColumns = 2;
inline constexpr std::size_t kLineSize = kBlocksPerBatch * kLineColumns;

// Lines are summed four at a time.
inline constexpr std::size_t kLinesAtOnce = 4;

struct WholeBlocks {
  std::size_t n_lines;  // a multiple of kLinesAtOnce
  // Line by line; 0 where there is no column.
  alignas(64) std::int16_t weights[kBlocksPerBatch * kMaxBlock];
  alignas(64) std::int16_t costs[kBlocksPerBatch * kMaxBlock];   // >= 0; see CodeSums
  alignas(64) std::int16_t costed[kBlocksPerBatch * kMaxBlock];  // cost * weight, in any unit
};

// How codes follow from weights, block by block.
struct WholeTrial {
  alignas(16) std::int32_t inverse[kBlocksPerBatch];  // in [-32767, 32767]
  alignas(16) std::int32_t offset[kBlocksPerBatch];   // in [-16383, 16383]
};

struct WholeGrid {
  std::int32_t top;    // at most 63
  std::int32_t shift;  // at most 15
};

// Sums over the columns of each block, which have to be below 2^31 in magnitude.
struct CodeSums {
  alignas(16) std::int32_t code[kBlocksPerBatch];         // cost * code
  alignas(16) std::int32_t code_code[kBlocksPerBatch];    // cost * code^2
  alignas(16) std::int32_t weight_code[kBlocksPerBatch];  // costed * code
};

// Shapes    trials, sums [n_trials]
using SumCodesFn = void (*)(const WholeBlocks& blocks, WholeGrid grid, const WholeTrial* trials,
                            std::size_t n_trials, CodeSums* sums) noexcept;

struct CodeSumsMethod {
  const char* name;
  bool (*is_available)() noexcept;  // on this CPU
  SumCodesFn run;
};

// Every method in this binary and their number, the fastest first; the last one runs everywhere.
const CodeSumsMethod* code_sums_methods(std::size_t& n_methods) noexcept;

// Returns the fastest one of this CPU. Threads  any
SumCodesFn best_code_sums() noexcept;

// Registers of 128 bits, which every machine has; of 256 (x86-64 AVX2) and of 512 (AVX-512BW).
void sum_codes_baseline(const WholeBlocks& blocks, WholeGrid grid, const WholeTrial* trials,
                        std::size_t n_trials, CodeSums* sums) noexcept;
void sum_codes_avx2(const WholeBlocks& blocks, WholeGrid grid, const WholeTrial* trials,
                    std::size_t n_trials, CodeSums* sums) noexcept;
void sum_codes_avx512(const WholeBlocks& blocks, WholeGrid grid, const WholeTrial* trials,
                      std::size_t n_trials, CodeSums* sums) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_CODE_SUMS_H_
