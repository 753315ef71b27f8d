// SPDX-License-Identifier: MIT
//
// How an encoder chooses scales, mins and codes. No reader depends on it.

#ifndef QSF_QUANT_QUANT_OPTIONS_H_
#define QSF_QUANT_QUANT_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace qsf {

enum class Rounding : std::uint8_t {
  kNearest,  // fields by a rule: those that reach every weight of a block in types with a min,
             // where none is then off by more than half a step; the mean magnitude in ternary
             // types; in 2bit-sym, which has no such rule, as kSearch without importance
  kSearch,   // fields and codes searched for the smallest weighted sum of squared errors
};

struct QuantOptions {
  Rounding rounding = Rounding::kSearch;
  // What a squared error costs in each column, typically the mean square of what the column is
  // multiplied with. Empty: nothing is known. Of kSearch alone.
  // Shapes    [n_cols] of the row
  // Requires  every one is finite and >= 0
  std::span<const float> importance = {};
};

inline constexpr QuantOptions kNearestRounding = {.rounding = Rounding::kNearest};

// The options of columns [first, first + n) of a row.
constexpr QuantOptions options_of_columns(const QuantOptions& row, std::size_t first,
                                          std::size_t n) noexcept {
  if (row.importance.empty()) return row;
  return {row.rounding, row.importance.subspan(first, n)};
}

// The columns of block `k` of a row or a part of one; the last block may have fewer than `block`.
constexpr std::span<const float> weights_of_block(std::span<const float> weights, std::size_t block,
                                                  std::size_t k) noexcept {
  const std::size_t rest = weights.size() - k * block;
  return weights.subspan(k * block, rest < block ? rest : block);
}

}  // namespace qsf

#endif  // QSF_QUANT_QUANT_OPTIONS_H_
