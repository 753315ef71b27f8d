// SPDX-License-Identifier: MIT

#include "model/head_bounds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

constexpr double kUnit = 0x1.0p-24;         // u of f32
constexpr double kDoubleSlack = 0x1.0p-30;  // far more than sums of 2^20 doubles round
constexpr double kSmallest = 0x1.0p-126;    // what underflow may take from one operation
constexpr double kLargestNorm = 0x1.0p60;   // of hidden rows: no product or sum overflows
constexpr std::uint32_t kLargestColumns = 1U << 20;
constexpr std::size_t kRowsAtOnce = 256;

// Returns Higham's gamma: what sums may lose, as a share of the sizes of what they add up.
double share_lost(std::uint32_t roundings) noexcept {
  const double n = static_cast<double>(roundings) + kExtraRoundings;
  return n * kUnit / (1.0 - n * kUnit);
}

// Returns an upper bound of the norm of values(i), i in [first, last).
template <typename Values>
double norm_above(std::size_t first, std::size_t last, const Values& values) noexcept {
  double sum = 0.0;
  for (std::size_t i = first; i < last; ++i) sum += values(i) * values(i);
  return std::sqrt(sum) * (1.0 + kDoubleSlack);
}

bool is_bound(float value) noexcept {
  return value >= 0.0F && value <= std::numeric_limits<float>::max();
}

// Adds weight * codes[i] to sums[i]. In runs of a fixed length, which compilers make vectors of.
void add_products(float weight, const std::uint8_t* codes, std::span<float> sums) noexcept {
  constexpr std::size_t kRun = 16;
  std::size_t done = 0;
  for (; done + kRun <= sums.size(); done += kRun) {
    for (std::size_t i = done; i < done + kRun; ++i) {
      sums[i] += weight * static_cast<float>(codes[i]);
    }
  }
  for (; done < sums.size(); ++done) sums[done] += weight * static_cast<float>(codes[done]);
}

// NaN is no bound: it might be anything.
float largest_of(std::span<const float> bounds) noexcept {
  constexpr std::size_t kLanes = 8;  // of a fixed number, which compilers make vectors of
  std::array<float, kLanes> largest;
  std::array<float, kLanes> unknown;  // 0, or NaN where a bound was not finite
  largest.fill(-std::numeric_limits<float>::infinity());
  unknown.fill(0.0F);
  std::size_t done = 0;
  for (; done + kLanes <= bounds.size(); done += kLanes) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const float bound = bounds[done + i];
      largest[i] = bound > largest[i] ? bound : largest[i];
      unknown[i] += bound - bound;
    }
  }
  for (; done < bounds.size(); ++done) {
    largest[0] = std::max(largest[0], bounds[done]);
    unknown[0] += bounds[done] - bounds[done];
  }
  float most = largest[0];
  float any_unknown = 0.0F;
  for (std::size_t i = 0; i < kLanes; ++i) {
    most = std::max(most, largest[i]);
    any_unknown += unknown[i];
  }
  return std::isnan(any_unknown) ? std::numeric_limits<float>::infinity() : most;
}

Status check_errors(const HeadErrors& errors, std::size_t n_codes) {
  const std::size_t n_blocks = sketch_blocks(errors.n_cols);
  if (errors.n_cols == 0 || errors.n_cols > kLargestColumns || errors.n_rows == 0) {
    return corrupt("head errors: %u rows of %u columns, expected 1 or more of at most %u",
                   errors.n_rows, errors.n_cols, kLargestColumns);
  }
  if (errors.steps.size() != n_blocks || errors.sketch_norms.size() != n_blocks ||
      n_codes != n_blocks * errors.n_rows ||
      (!errors.shared.empty() && errors.shared.size() != errors.n_cols)) {
    return corrupt("head errors: arrays of other sizes than %u rows of %u columns have",
                   errors.n_rows, errors.n_cols);
  }
  const auto are_bounds = [](const std::vector<float>& list) {
    return std::all_of(list.begin(), list.end(), is_bound);
  };
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!are_bounds(errors.steps) || !are_bounds(errors.sketch_norms) ||
      !is_bound(errors.error_norm) || !is_bound(errors.head_magnitude) ||
      !is_bound(errors.sketch_magnitude) || !is_bound(errors.defect) || errors.defect >= 0.5F ||
      !std::all_of(errors.shared.begin(), errors.shared.end(), is_finite)) {
    return corrupt("head errors: a number is negative, too large or none");
  }
  return ok_status();
}

}  // namespace

float round_up(double value) noexcept {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (std::isnan(value)) return kInfinity;
  const auto nearest = static_cast<float>(value);
  return static_cast<double>(nearest) < value ? std::nextafter(nearest, kInfinity) : nearest;
}

HeadBounds::HeadBounds(HeadErrors errors, std::span<const std::uint8_t> codes)
    : errors_(std::move(errors)), codes_(codes), weights_(errors_.steps.size()) {}

Result<HeadBounds> HeadBounds::create(HeadErrors errors, std::span<const std::uint8_t> codes) {
  QSF_RETURN_IF_ERROR(check_errors(errors, errors.codes.size() + codes.size()));
  return HeadBounds(std::move(errors), codes);
}

bool HeadBounds::prepare(const HiddenRow& row) noexcept {
  const std::size_t n_cols = errors_.n_cols;
  QSF_CHECK(row.input.size() == n_cols && row.turned.size() == n_cols &&
            row.multiplied.size() == n_cols);
  const auto of = [](std::span<const float> values) {
    return [values](std::size_t i) { return static_cast<double>(values[i]); };
  };
  const double input = norm_above(0, n_cols, of(row.input));
  const double multiplied = norm_above(0, n_cols, of(row.multiplied));
  // Comparisons are false for NaN.
  if (!(input < kLargestNorm && multiplied < kLargestNorm)) return false;

  const std::uint32_t roundings =
      row.roundings == 0 ? errors_.n_cols : std::min(row.roundings, errors_.n_cols);
  const double rounding = share_lost(roundings);
  const double defect = static_cast<double>(errors_.defect);
  // A column of Q h is a sum of n_cols products, of a row of Q whose norm is at most this.
  const double basis_norm = std::sqrt(1.0 + defect) * (1.0 + kDoubleSlack);
  const double turned_error =
      std::sqrt(static_cast<double>(kSketchColumns)) * rounding * basis_norm * input +
      kSmallest * static_cast<double>(n_cols);
  double slack = rounding * (static_cast<double>(errors_.head_magnitude) * input +
                             static_cast<double>(errors_.sketch_magnitude) * multiplied) +
                 static_cast<double>(errors_.error_norm) * defect * input +
                 kSmallest * 4.0 * static_cast<double>(n_cols);
  for (std::size_t block = 0; block < weights_.size(); ++block) {
    const std::size_t first = block * kSketchColumns;
    const std::size_t last = std::min(first + kSketchColumns, n_cols);
    const double norm = norm_above(first, last, of(row.turned)) + turned_error;
    if (!(norm < kLargestNorm)) return false;
    weights_[block] = round_up(norm * static_cast<double>(errors_.steps[block]));
    const double left_out = norm_above(first, last, [&](std::size_t i) {
      return static_cast<double>(row.turned[i]) - static_cast<double>(row.multiplied[i]);
    });
    slack += (left_out + turned_error) * static_cast<double>(errors_.sketch_norms[block]);
  }
  double shared = 0.0;
  double shared_size = 0.0;
  for (std::size_t i = 0; i < errors_.shared.size(); ++i) {
    const double product =
        static_cast<double>(errors_.shared[i]) * static_cast<double>(row.input[i]);
    shared += product;
    shared_size += std::abs(product);
  }
  // Products of c with what is rounded to f32 in `input`.
  slack += shared_size * (kUnit + kDoubleSlack);
  constant_ = shared + slack * (1.0 + kDoubleSlack);
  return std::isfinite(constant_);
}

void HeadBounds::bound(std::uint32_t first_row, std::span<float> scores) const noexcept {
  QSF_DCHECK(first_row <= errors_.n_rows && scores.size() <= errors_.n_rows - first_row);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::size_t n_blocks = weights_.size();
  const float constant = round_up(constant_ + kSmallest * 2.0 * static_cast<double>(n_blocks + 1));
  // Each term of a width is rounded twice and each sum once; all are positive. The sums below have
  // six roundings of what is at most `size`.
  const float share = round_up(kUnit * (4.0 * static_cast<double>(n_blocks + 1) + 16.0));
  std::array<float, kRowsAtOnce> widths;
  for (std::size_t done = 0; done < scores.size(); done += kRowsAtOnce) {
    const std::span<float> its = scores.subspan(done, std::min(kRowsAtOnce, scores.size() - done));
    widths.fill(0.0F);
    for (std::size_t block = 0; block < n_blocks; ++block) {
      add_products(weights_[block], codes() + block * errors_.n_rows + first_row + done,
                   std::span(widths).first(its.size()));
    }
    for (std::size_t i = 0; i < its.size(); ++i) {
      const float size = std::abs(its[i]) + widths[i] + std::abs(constant);
      const float bound = its[i] + widths[i] + constant + size * share;
      its[i] = bound < kInfinity ? bound : kInfinity;  // NaN too
    }
  }
}

std::size_t bound_units(std::span<const float> bounds, std::uint32_t unit_rows,
                        std::span<float> units) noexcept {
  QSF_CHECK(unit_rows > 0);
  std::size_t n_units = 0;
  for (std::size_t first = 0; first < bounds.size(); first += unit_rows, ++n_units) {
    const std::size_t n = std::min<std::size_t>(unit_rows, bounds.size() - first);
    units[n_units] = largest_of(bounds.subspan(first, n));
  }
  return n_units;
}

}  // namespace qsf
