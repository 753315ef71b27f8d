// SPDX-License-Identifier: MIT
//
// RMS norm and layer norm, scalar tier. Sums run in four double lanes, added pairwise at the end.

#include "kernels/norm/norm.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

// Sums (x - offset)^kPower in double.
template <int kPower>
double sum_powers(const float* x, std::uint32_t n_values, double offset) noexcept {
  double lanes[4] = {0.0, 0.0, 0.0, 0.0};
  const std::uint32_t n_even = n_values & ~3U;
  for (std::uint32_t i = 0; i < n_even; i += 4) {
    for (std::uint32_t lane = 0; lane < 4; ++lane) {
      const double d = static_cast<double>(x[i + lane]) - offset;
      lanes[lane] += kPower == 2 ? d * d : d;
    }
  }
  for (std::uint32_t i = n_even; i < n_values; ++i) {
    const double d = static_cast<double>(x[i]) - offset;
    lanes[i - n_even] += kPower == 2 ? d * d : d;
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

}  // namespace

void rms_norm_scalar(const float* x, const float* gain, float* y, std::uint32_t n_values,
                     float eps) noexcept {
  const double mean_square = sum_powers<2>(x, n_values, 0.0) / n_values;
  const auto factor =
      static_cast<float>(1.0 / __builtin_sqrt(mean_square + static_cast<double>(eps)));
  if (gain == nullptr) {
    for (std::uint32_t i = 0; i < n_values; ++i) y[i] = x[i] * factor;
  } else {
    for (std::uint32_t i = 0; i < n_values; ++i) y[i] = x[i] * factor * gain[i];
  }
}

void layer_norm_scalar(const float* x, const float* gain, const float* bias, float* y,
                       std::uint32_t n_values, float eps) noexcept {
  const double mean = sum_powers<1>(x, n_values, 0.0) / n_values;
  const double variance = sum_powers<2>(x, n_values, mean) / n_values;
  const double factor = 1.0 / __builtin_sqrt(variance + static_cast<double>(eps));
  // The difference is taken in double: a large mean would eat the digits of small deviations.
  for (std::uint32_t i = 0; i < n_values; ++i) {
    const auto unit = static_cast<float>((static_cast<double>(x[i]) - mean) * factor);
    const float scaled = gain == nullptr ? unit : unit * gain[i];
    y[i] = bias == nullptr ? scaled : scaled + bias[i];
  }
}

}  // namespace qsf::kernels
