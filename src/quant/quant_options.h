// SPDX-License-Identifier: MIT
//
// How an encoder chooses scales, mins and codes. Readers do not depend on it.

#ifndef QSF_QUANT_QUANT_OPTIONS_H_
#define QSF_QUANT_QUANT_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace qsf {

enum class Rounding : std::uint8_t {
  kNearest,  // fields by rule: types with a min cover every weight of a block, within half a step;
             // ternary types use the mean magnitude; 2bit-sym has no such rule and is searched
             // without importance
  kSearch,   // scale search: fields and codes with the smallest weighted sum of squared errors
};

struct QuantOptions {
  Rounding rounding = Rounding::kSearch;
  // Column importance: the cost of a squared error in each column, typically the mean square
  // E[x^2] of the activation that the column is multiplied with. Empty: unknown, all columns cost
  // the same. Only kSearch uses it.
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

// The columns of block `k` of a row or of a part of one; the last block may be shorter.
constexpr std::span<const float> weights_of_block(std::span<const float> weights, std::size_t block,
                                                  std::size_t k) noexcept {
  const std::size_t rest = weights.size() - k * block;
  return weights.subspan(k * block, rest < block ? rest : block);
}

}  // namespace qsf

#endif  // QSF_QUANT_QUANT_OPTIONS_H_
