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
  kNearest,  // fields that reach every weight of a block, and the nearest codes: fast, and no
             // weight of the types with a min is off by more than half a step
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

}  // namespace qsf

#endif  // QSF_QUANT_QUANT_OPTIONS_H_
