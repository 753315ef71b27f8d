// SPDX-License-Identifier: MIT
//
// The bounds and the comparator.

#include "kernels/testing/error_bound.h"

#include <cmath>
#include <limits>

namespace qsf::kernels::testing_support {

double gamma_of(double n_roundings) noexcept {
  return n_roundings * kUnitRoundoff / (1.0 - n_roundings * kUnitRoundoff);
}

double product_bound(BlockFormat format, ActivationType input, std::uint64_t n_cols,
                     double magnitude) noexcept {
  // Kernels cut the sums of float types every 64 columns.
  const std::uint32_t block = is_float_type(format.type) ? 64 : format.block;
  const double n_blocks = static_cast<double>(n_cols / block + 1);
  const double underflow = 4.0 * static_cast<double>(n_cols) * 0x1p-149 * 65504.0;
  if (input == ActivationType::kBf16) {
    const double flushed = 2.0 * static_cast<double>(n_cols) * kSmallestNormal;
    return (0x1p-8 + 1.01 * gamma_of(static_cast<double>(n_cols) + 4.0)) * magnitude + underflow +
           flushed;
  }
  return gamma_of(block + n_blocks + 4.0) * magnitude + underflow;
}

bool is_within(float got, double want, double bound) noexcept {
  if (std::isnan(bound)) return false;
  if (std::isnan(want)) return std::isnan(got);
  if (std::isnan(got)) return false;
  if (std::isinf(got)) {
    const bool past_range = std::fabs(want) + bound > std::numeric_limits<float>::max();
    return past_range && std::signbit(got) == std::signbit(want);
  }
  if (std::isinf(want)) return false;
  return std::fabs(static_cast<double>(got) - want) <= bound;
}

::testing::AssertionResult all_within(const float* got, const std::vector<double>& want,
                                      const std::vector<double>& bounds) {
  if (want.size() != bounds.size()) return ::testing::AssertionFailure() << "sizes differ";
  std::size_t n_out = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (is_within(got[i], want[i], bounds[i])) continue;
    if (n_out++ == 0) first = i;
  }
  if (n_out == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << n_out << " of " << want.size() << " out of bound; first [" << first << "]: got "
         << got[first] << ", expected " << want[first] << " +- " << bounds[first];
}

}  // namespace qsf::kernels::testing_support
