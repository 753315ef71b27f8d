// SPDX-License-Identifier: MIT

#include "convert/head/sketch_errors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

constexpr double kAbove = 1.0 + 0x1.0p-30;  // what sums of f64 round, and more
constexpr double kRounded = 0x1.0p-30;      // the same, as a share of the norms of what is summed

// Returns an upper bound of the Frobenius norm of I - Q^T Q.
double defect_above(std::span<const float> basis, std::size_t n_cols) {
  std::vector<double> products(n_cols);
  double squares = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < n_cols; ++i) {
    std::fill(products.begin(), products.end(), 0.0);
    for (std::size_t row = 0; row < n_cols; ++row) {
      const float* const q = &basis[row * n_cols];
      const auto factor = static_cast<double>(q[i]);
      for (std::size_t k = 0; k < n_cols; ++k) products[k] += factor * static_cast<double>(q[k]);
    }
    size += products[i];
    products[i] -= 1.0;
    for (const double product : products) squares += product * product;
  }
  // Each product is rounded by less than 2^-40 |q_i| |q_k|, and |q_i|^2 adds up to `size`.
  return std::sqrt(squares) * kAbove + 0x1.0p-40 * size;
}

bool are_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

void raise(float& largest, double value) {
  largest = std::max(largest, round_up(value));
}

}  // namespace

SketchErrors::SketchErrors(std::vector<float> basis, std::vector<float> shared,
                           std::uint32_t n_rows, std::uint32_t n_cols, float defect)
    : basis_(std::move(basis)), norms_(std::size_t{sketch_blocks(n_cols)} * n_rows) {
  errors_.n_rows = n_rows;
  errors_.n_cols = n_cols;
  errors_.defect = defect;
  errors_.shared = std::move(shared);
  errors_.sketch_norms.assign(sketch_blocks(n_cols), 0.0F);
}

Result<SketchErrors> SketchErrors::create(std::vector<float> basis, std::vector<float> shared,
                                          std::uint32_t n_rows, std::uint32_t n_cols) {
  QSF_CHECK(n_rows > 0 && n_cols > 0 && basis.size() == std::size_t{n_cols} * n_cols);
  QSF_CHECK(shared.empty() || shared.size() == n_cols);
  if (!are_finite(basis) || !are_finite(shared)) {
    return invalid_argument("head sketch: the basis or the mean row is not finite");
  }
  const double defect = defect_above(basis, n_cols);
  if (!(defect < 0.5)) {
    return invalid_argument("head sketch: the basis is not orthonormal: defect %g, expected < 0.5",
                            defect);
  }
  return SketchErrors(std::move(basis), std::move(shared), n_rows, n_cols, round_up(defect));
}

void SketchErrors::turn(std::span<const float> row, std::span<double> turned) const {
  const std::size_t n_cols = errors_.n_cols;
  QSF_CHECK(row.size() == n_cols && turned.size() == n_cols);
  std::vector<double> centred(row.begin(), row.end());
  for (std::size_t k = 0; k < errors_.shared.size(); ++k) {
    centred[k] -= static_cast<double>(errors_.shared[k]);
  }
  constexpr std::size_t kLanes = 8;  // sums that a compiler may compute side by side
  for (std::size_t i = 0; i < n_cols; ++i) {
    const float* const q = &basis_[i * n_cols];
    std::array<double, kLanes> sums{};
    std::size_t k = 0;
    for (; k + kLanes <= n_cols; k += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        sums[lane] += static_cast<double>(q[k + lane]) * centred[k + lane];
      }
    }
    for (; k < n_cols; ++k) sums[0] += static_cast<double>(q[k]) * centred[k];
    turned[i] = std::accumulate(sums.begin(), sums.end(), 0.0);
  }
}

Status SketchErrors::add(std::uint32_t row, std::span<const double> turned,
                         std::span<const float> sketch, double head_magnitude,
                         double sketch_magnitude) {
  const std::size_t n_cols = errors_.n_cols;
  QSF_CHECK(row < errors_.n_rows && turned.size() == n_cols && sketch.size() == n_cols);
  const std::size_t n_blocks = errors_.sketch_norms.size();
  const auto squares = [&](std::size_t block, const auto& value) {
    const std::size_t first = block * kSketchColumns;
    double sum = 0.0;
    for (std::size_t i = first; i < std::min(first + kSketchColumns, n_cols); ++i) {
      sum += value(i) * value(i);
    }
    return sum;
  };
  double sketch_squares = 0.0;
  double turned_squares = 0.0;
  for (std::size_t block = 0; block < n_blocks; ++block) {
    const double of_sketch =
        squares(block, [&](std::size_t i) { return static_cast<double>(sketch[i]); });
    raise(errors_.sketch_norms[block], std::sqrt(of_sketch) * kAbove);
    sketch_squares += of_sketch;
    turned_squares += squares(block, [&](std::size_t i) { return turned[i]; });
  }
  if (!std::isfinite(sketch_squares + turned_squares + head_magnitude + sketch_magnitude)) {
    return invalid_argument("head sketch: row %u is not finite", row);
  }
  // What the basis and sums of turn() may hide. |w - c| < 2 |Q (w - c)|, since the defect < 1 / 2.
  const double hidden = static_cast<double>(errors_.defect) * std::sqrt(sketch_squares) * kAbove +
                        2.0 * kRounded * std::sqrt(turned_squares);
  double error_squares = 0.0;
  for (std::size_t block = 0; block < n_blocks; ++block) {
    const double left_out =
        squares(block, [&](std::size_t i) { return turned[i] - static_cast<double>(sketch[i]); });
    const double norm = std::sqrt(left_out) * kAbove + hidden;
    norms_[block * errors_.n_rows + row] = round_up(norm);
    error_squares += norm * norm;
  }
  const double defect = static_cast<double>(errors_.defect);
  raise(errors_.error_norm, std::sqrt(error_squares / (1.0 - defect)) * kAbove);
  raise(errors_.head_magnitude, head_magnitude);
  raise(errors_.sketch_magnitude, sketch_magnitude);
  return ok_status();
}

HeadErrors SketchErrors::finish() && {
  constexpr double kLargestCode = 255.0;
  const std::size_t n_rows = errors_.n_rows;
  errors_.codes.resize(norms_.size());
  for (std::size_t block = 0; block < errors_.sketch_norms.size(); ++block) {
    const std::span<const float> norms(&norms_[block * n_rows], n_rows);
    const float largest = *std::max_element(norms.begin(), norms.end());
    const float step = round_up(static_cast<double>(largest) / kLargestCode * kAbove);
    errors_.steps.push_back(step);
    for (std::size_t row = 0; row < n_rows && step > 0.0F; ++row) {
      // A quotient of f32 in f64 is rounded; one more step is the safe side.
      const double code =
          std::ceil(static_cast<double>(norms[row]) / static_cast<double>(step) * kAbove);
      errors_.codes[block * n_rows + row] = static_cast<std::uint8_t>(std::min(code, kLargestCode));
    }
  }
  return std::move(errors_);
}

std::vector<std::uint32_t> choose_sketch_bits(std::span<const double> hidden_norms,
                                              std::span<const double> error_norms,
                                              std::span<const std::uint32_t> bits,
                                              std::span<const double> block_bytes,
                                              double largest_row_bytes) {
  const std::size_t n_choices = bits.size();
  QSF_CHECK(n_choices > 0 && bits[0] == 0 && block_bytes.size() == n_choices);
  QSF_CHECK(error_norms.size() == hidden_norms.size() * n_choices);
  std::vector<std::size_t> chosen(hidden_norms.size(), 0);
  double row_bytes = block_bytes[0] * static_cast<double>(chosen.size());
  while (true) {
    double best_gain = 0.0;
    std::size_t best_block = 0;
    std::size_t best_choice = 0;
    for (std::size_t block = 0; block < chosen.size(); ++block) {
      for (std::size_t choice = chosen[block] + 1; choice < n_choices; ++choice) {
        const double bytes = block_bytes[choice] - block_bytes[chosen[block]];
        const double* const norms = &error_norms[block * n_choices];
        const double gain = hidden_norms[block] * (norms[chosen[block]] - norms[choice]) / bytes;
        if (row_bytes + bytes > largest_row_bytes || !(gain > best_gain)) continue;
        best_gain = gain;
        best_block = block;
        best_choice = choice;
      }
    }
    if (best_choice == 0) break;
    row_bytes += block_bytes[best_choice] - block_bytes[chosen[best_block]];
    chosen[best_block] = best_choice;
  }
  std::vector<std::uint32_t> result(chosen.size());
  std::transform(chosen.begin(), chosen.end(), result.begin(),
                 [&](std::size_t choice) { return bits[choice]; });
  return result;
}

}  // namespace qsf
