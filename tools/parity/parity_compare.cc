// SPDX-License-Identifier: MIT

#include "tools/parity/parity_compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace qsf_tools {
namespace {

bool all_finite(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
}

bool all_zero(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float x) { return x == 0.0F; });
}

double mean_of(std::span<const float> logits) {
  double sum = 0.0;
  for (const float x : logits) sum += static_cast<double>(x);
  return sum / static_cast<double>(logits.size());
}

// The cosine of (a - a_shift) and (b - b_shift). Two vectors of zeros are the same, one is not:
// there is no angle then.
double cosine_of(std::span<const float> a, std::span<const float> b, double a_shift,
                 double b_shift) {
  double dot = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]) - a_shift;
    const double y = static_cast<double>(b[i]) - b_shift;
    dot += x * y;
    aa += x * x;
    bb += y * y;
  }
  if (aa == 0.0 && bb == 0.0) return 1.0;
  if (aa == 0.0 || bb == 0.0) return 0.0;
  // One root of the product, which no f32 can make overflow: 1 exactly for rows of the same bits.
  return std::clamp(dot / std::sqrt(aa * bb), -1.0, 1.0);
}

double log_sum_exp(std::span<const float> logits) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return largest + std::log(sum);
}

// sum of p_ref * (log p_ref - log p_ours)
double divergence_of(std::span<const float> ours, std::span<const float> reference) {
  const double ours_z = log_sum_exp(ours);
  const double reference_z = log_sum_exp(reference);
  double sum = 0.0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_z;
    const double log_q = static_cast<double>(ours[i]) - ours_z;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  // Rounding may leave the divergence of equal rows below zero.
  return std::max(sum, 0.0);
}

bool exceeds(const std::optional<double>& value, const std::optional<double>& bound) {
  return bound.has_value() && !(value.has_value() && *value <= *bound);
}

bool below(const std::optional<double>& value, double bound) {
  return !(value.has_value() && *value >= bound);
}

}  // namespace

std::vector<std::uint32_t> top_tokens(std::span<const float> logits) {
  std::vector<std::uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0U);
  const auto n = static_cast<std::ptrdiff_t>(std::min(kTopTokens, ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + n, ids.end(), [&](std::uint32_t a, std::uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  ids.resize(static_cast<std::size_t>(n));
  return ids;
}

double top_overlap(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  if (a.empty()) return 0.0;
  const auto shared = std::count_if(a.begin(), a.end(), [&](std::uint32_t id) {
    return std::find(b.begin(), b.end(), id) != b.end();
  });
  return static_cast<double>(shared) / static_cast<double>(a.size());
}

std::optional<std::uint32_t> greedy_token(std::span<const float> logits) {
  if (logits.empty() || !all_finite(logits)) return std::nullopt;
  return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

RowOutcome judge_row(const RowParity& row, const ParityThresholds& thresholds) {
  if (!row.finite) return RowOutcome::kDivergence;
  // Of two rows of zeros nothing was computed; beside numbers, zeros are wrong.
  if (row.zero) {
    return row.cosine.has_value() ? RowOutcome::kDivergence : RowOutcome::kNotCompared;
  }
  const bool differs =
      below(row.cosine, thresholds.cosine) || below(row.centred_cosine, thresholds.cosine) ||
      exceeds(row.max_abs_error, thresholds.max_abs_error) || exceeds(row.mse, thresholds.mse) ||
      exceeds(row.kl, thresholds.kl) || (thresholds.top1 && !row.top1_match());
  return differs ? RowOutcome::kDivergence : RowOutcome::kOk;
}

RowParity compare_row(std::span<const float> ours, std::span<const float> reference,
                      const ParityThresholds& thresholds) {
  RowParity row;
  row.finite = all_finite(ours) && all_finite(reference);
  const bool ours_zero = all_zero(ours);
  const bool reference_zero = all_zero(reference);
  row.zero = ours_zero || reference_zero;
  if (row.finite && !(ours_zero && reference_zero)) {
    row.cosine = cosine_of(ours, reference, 0.0, 0.0);
    row.centred_cosine = cosine_of(ours, reference, mean_of(ours), mean_of(reference));
    double largest = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double error = static_cast<double>(ours[i]) - static_cast<double>(reference[i]);
      largest = std::max(largest, std::fabs(error));
      squares += error * error;
    }
    row.max_abs_error = largest;
    row.mse = squares / static_cast<double>(ours.size());
    row.kl = divergence_of(ours, reference);
    row.top_ours = top_tokens(ours);
    row.top_reference = top_tokens(reference);
  }
  row.outcome = judge_row(row, thresholds);
  return row;
}

}  // namespace qsf_tools
