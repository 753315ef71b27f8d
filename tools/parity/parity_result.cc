// SPDX-License-Identifier: MIT

#include "tools/parity/parity_result.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace qsf_tools {
namespace {

bool all_finite(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
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

bool all_zero(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(), [](float x) { return x == 0.0F; });
}

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

namespace {

const char* outcome_name(RowOutcome outcome) {
  switch (outcome) {
    case RowOutcome::kOk: return "ok";
    case RowOutcome::kDivergence: return "divergence";
    case RowOutcome::kNotCompared: break;
  }
  return "not_compared";
}

// The extremes and means of a number over the rows that have it.
class Extremes {
 public:
  std::size_t n = 0;
  double sum = 0.0;
  double least = 0.0;
  double most = 0.0;

  void add(const std::optional<double>& value) {
    if (!value) return;
    least = n == 0 ? *value : std::min(least, *value);
    most = n == 0 ? *value : std::max(most, *value);
    sum += *value;
    ++n;
  }
  std::optional<double> mean() const { return some(sum / static_cast<double>(n)); }
  std::optional<double> lowest() const { return some(least); }
  std::optional<double> highest() const { return some(most); }

 private:
  std::optional<double> some(double value) const {
    return n == 0 ? std::nullopt : std::optional(value);
  }
};

SummaryRecord summarise(const ParityResult& result) {
  Extremes cosine;
  Extremes centred;
  Extremes max_abs;
  Extremes mse;
  Extremes kl;
  std::size_t n_compared = 0;
  std::size_t n_top1 = 0;
  double top5 = 0.0;
  bool cosine_ok = !result.rows.empty();
  std::optional<std::uint64_t> first_divergence;
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const RowParity& row = result.rows[i];
    cosine.add(row.cosine);
    centred.add(row.centred_cosine);
    max_abs.add(row.max_abs_error);
    mse.add(row.mse);
    kl.add(row.kl);
    const double bound = result.thresholds.cosine;
    cosine_ok = cosine_ok && row.cosine && row.centred_cosine && *row.cosine >= bound &&
                *row.centred_cosine >= bound;
    if (row.outcome == RowOutcome::kDivergence && !first_divergence) first_divergence = i;
    if (row.outcome == RowOutcome::kNotCompared) continue;
    ++n_compared;
    n_top1 += row.top1_match() ? 1 : 0;
    top5 += top_overlap(row.top_reference, row.top_ours);
  }
  const auto share = [&](double count) {
    return n_compared == 0 ? std::nullopt : std::optional(count / static_cast<double>(n_compared));
  };
  return {.positions = result.n_positions,
          .rows = result.rows.size(),
          .compared = n_compared,
          .cosine_min = cosine.lowest(),
          .cosine_mean = cosine.mean(),
          .centred_cosine_min = centred.lowest(),
          .centred_cosine_mean = centred.mean(),
          .max_abs_error = max_abs.highest(),
          .mse_mean = mse.mean(),
          .kl_mean = kl.mean(),
          .kl_max = kl.highest(),
          .top1_agreement = share(static_cast<double>(n_top1)),
          .top5_agreement = share(top5),
          .cosine_ok = cosine_ok,
          .first_divergence = first_divergence};
}

GreedyRecord greedy_record(const ParityResult& result) {
  std::size_t n_matches = 0;
  std::optional<std::uint64_t> first_divergence;
  for (std::size_t i = 0; i < result.n_steps; ++i) {
    const bool both = i < result.greedy.size() && i < result.reference_greedy.size();
    if (both && result.greedy[i] == result.reference_greedy[i]) {
      ++n_matches;
    } else if (!first_divergence) {
      first_divergence = i;
    }
  }
  GreedyRecord record = {.steps = result.n_steps,
                         .ours = result.greedy,
                         .reference = result.reference_greedy,
                         .matches = n_matches,
                         .match_rate = std::nullopt,
                         .finite = result.greedy_finite,
                         .first_divergence_step = first_divergence};
  if (result.n_steps > 0) {
    record.match_rate = static_cast<double>(n_matches) / static_cast<double>(result.n_steps);
  }
  return record;
}

std::string row_reason(const ParityResult& result, std::size_t position) {
  const RowParity& row = result.rows[position];
  const std::string where = "position " + std::to_string(position) + ": ";
  if (!row.finite) return where + "a logit is not finite";
  if (row.zero) return where + "the logits of one side are all zeros";
  char text[160];
  std::snprintf(text, sizeof text,
                "cosine %.6f, centred %.6f, largest error %.6g, KL %.3g, top token %u and %u",
                *row.cosine, *row.centred_cosine, *row.max_abs_error, *row.kl, row.top_ours[0],
                row.top_reference[0]);
  return where + text;
}

// Returns the first difference of the sides; empty for none.
std::string difference_of(const ParityResult& result, const ParityVerdict& verdict) {
  if (const auto at = result.first_token_difference()) {
    const auto id = [&](const std::vector<std::uint32_t>& tokens) {
      return *at < tokens.size() ? std::to_string(tokens[*at]) : std::string("none");
    };
    return "token ids differ at " + std::to_string(*at) + ": ours " + id(result.tokens) +
           ", the reference's " + id(result.reference_tokens);
  }
  const bool both_known = result.n_vocab != 0 && result.reference_n_vocab != 0;
  if (both_known && result.n_vocab != result.reference_n_vocab) {
    return "the vocabulary has " + std::to_string(result.n_vocab) + " tokens, the reference's " +
           std::to_string(result.reference_n_vocab);
  }
  if (const auto& first = verdict.summary.first_divergence) return row_reason(result, *first);
  if (!result.greedy_finite) return "a logit of a greedy step is not finite";
  const std::size_t n_steps = result.n_steps;
  const bool complete =
      result.greedy.size() == n_steps && result.reference_greedy.size() == n_steps;
  if (n_steps > 0 && complete && !(*verdict.greedy.match_rate >= result.thresholds.greedy_match)) {
    return "greedy tokens differ from step " +
           std::to_string(*verdict.greedy.first_divergence_step) + " on";
  }
  return {};
}

// Returns what was requested and not compared; empty: everything was compared.
std::string gap_of(const ParityResult& result) {
  if (!result.failure.empty()) return result.failure;
  if (result.n_positions == 0 || result.rows.empty()) return "no position was compared";
  if (result.rows.size() != result.n_expected_rows() || result.n_positions > result.tokens.size()) {
    return std::to_string(result.rows.size()) + " of " + std::to_string(result.n_expected_rows()) +
           " rows were compared";
  }
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    if (result.rows[i].outcome == RowOutcome::kNotCompared) {
      return "position " + std::to_string(i) + ": the logits of both sides are all zeros";
    }
  }
  if (result.greedy.size() != result.n_steps || result.reference_greedy.size() != result.n_steps) {
    return "not every greedy step was taken";
  }
  if (result.kernels.empty()) return "no kernel of ours was seen to run";
  return {};
}

}  // namespace

const char* status_name(ParityStatus status) {
  switch (status) {
    case ParityStatus::kOk: return "ok";
    case ParityStatus::kDivergence: return "divergence";
    case ParityStatus::kNotCompared: break;
  }
  return "not_compared";
}

int exit_code(ParityStatus status) {
  switch (status) {
    case ParityStatus::kOk: return 0;
    case ParityStatus::kDivergence: return 1;
    case ParityStatus::kNotCompared: break;
  }
  return 3;
}

std::uint32_t ParityResult::token_of_row(std::size_t row) const {
  return row < n_positions ? tokens[row] : greedy[row - n_positions];
}

std::size_t ParityResult::n_greedy_shared() const {
  const auto [a, b] =
      std::mismatch(greedy.begin(), greedy.end(), reference_greedy.begin(), reference_greedy.end());
  return static_cast<std::size_t>(a - greedy.begin());
}

std::size_t ParityResult::n_expected_rows() const {
  return n_positions + (n_steps == 0 ? 0 : std::min<std::size_t>(n_greedy_shared(), n_steps - 1));
}

std::optional<std::size_t> ParityResult::first_token_difference() const {
  const auto [a, b] =
      std::mismatch(tokens.begin(), tokens.end(), reference_tokens.begin(), reference_tokens.end());
  if (a == tokens.end() && b == reference_tokens.end()) return std::nullopt;
  return static_cast<std::size_t>(a - tokens.begin());
}

ParityVerdict judge(const ParityResult& result) {
  ParityVerdict verdict;
  verdict.summary = summarise(result);
  verdict.greedy = greedy_record(result);
  const bool tokens_known = !result.tokens.empty() && !result.reference_tokens.empty();
  verdict.reason = tokens_known ? difference_of(result, verdict) : std::string();
  if (!verdict.reason.empty()) {
    verdict.status = ParityStatus::kDivergence;
    return verdict;
  }
  verdict.reason = tokens_known || !result.failure.empty() ? gap_of(result) : "there are no tokens";
  verdict.status = verdict.reason.empty() ? ParityStatus::kOk : ParityStatus::kNotCompared;
  return verdict;
}

TokenizationRecord tokenization_record(const ParityResult& result) {
  const auto difference = result.first_token_difference();
  TokenizationRecord record = {.ids_given = result.ids_given,
                               .ours = result.tokens,
                               .reference = result.reference_tokens,
                               .n_ours = result.tokens.size(),
                               .n_reference = result.reference_tokens.size(),
                               .match = !difference.has_value(),
                               .first_difference = std::nullopt};
  if (difference) record.first_difference = *difference;
  return record;
}

std::vector<RowRecord> row_records(const ParityResult& result) {
  std::vector<RowRecord> records;
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const RowParity& row = result.rows[i];
    records.push_back({.position = i,
                       .token = result.token_of_row(i),
                       .role = i < result.n_positions ? "prompt" : "generated",
                       .finite = row.finite,
                       .zero = row.zero,
                       .cosine = row.cosine,
                       .centred_cosine = row.centred_cosine,
                       .max_abs_error = row.max_abs_error,
                       .mse = row.mse,
                       .kl = row.kl,
                       .top_ours = row.top_ours,
                       .top_reference = row.top_reference,
                       .top1_match = row.top1_match(),
                       .top5_agreement = top_overlap(row.top_reference, row.top_ours),
                       .outcome = outcome_name(row.outcome)});
  }
  return records;
}

}  // namespace qsf_tools
