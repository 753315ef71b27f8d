// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_result.h"

#include <algorithm>
#include <cstdio>

namespace qsf_tools {
namespace {

using nlohmann::json;

json or_null(const std::optional<double>& value) {
  return value ? json(*value) : json();
}

std::optional<double> number_of(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

const char* outcome_name(RowOutcome outcome) {
  switch (outcome) {
    case RowOutcome::kOk: return "ok";
    case RowOutcome::kDivergence: return "divergence";
    case RowOutcome::kNotCompared: break;
  }
  return "not_compared";
}

// The extremes and means of a number over the rows that have it.
struct Spread {
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
  json mean() const { return n == 0 ? json() : json(sum / static_cast<double>(n)); }
  json lowest() const { return n == 0 ? json() : json(least); }
  json highest() const { return n == 0 ? json() : json(most); }
};

json summarise(const ParityResult& result) {
  Spread cosine;
  Spread centred;
  Spread max_abs;
  Spread mse;
  Spread kl;
  std::size_t n_compared = 0;
  std::size_t n_top1 = 0;
  double top5 = 0.0;
  bool cosine_ok = !result.rows.empty();
  json first_divergence;
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
    if (row.outcome == RowOutcome::kDivergence && first_divergence.is_null()) first_divergence = i;
    if (row.outcome == RowOutcome::kNotCompared) continue;
    ++n_compared;
    n_top1 += row.top1_match() ? 1 : 0;
    top5 += top_overlap(row.top_reference, row.top_ours);
  }
  const auto share = [&](double count) {
    return n_compared == 0 ? json() : json(count / static_cast<double>(n_compared));
  };
  return {{"positions", result.n_positions},
          {"rows", result.rows.size()},
          {"compared", n_compared},
          {"cosine_min", cosine.lowest()},
          {"cosine_mean", cosine.mean()},
          {"centred_cosine_min", centred.lowest()},
          {"centred_cosine_mean", centred.mean()},
          {"max_abs_error", max_abs.highest()},
          {"mse_mean", mse.mean()},
          {"kl_mean", kl.mean()},
          {"kl_max", kl.highest()},
          {"top1_agreement", share(static_cast<double>(n_top1))},
          {"top5_agreement", share(top5)},
          {"cosine_ok", cosine_ok},
          {"first_divergence", first_divergence}};
}

json greedy_json(const ParityResult& result) {
  std::size_t n_matches = 0;
  json first_divergence;
  for (std::size_t i = 0; i < result.n_steps; ++i) {
    const bool both = i < result.greedy.size() && i < result.reference_greedy.size();
    if (both && result.greedy[i] == result.reference_greedy[i]) {
      ++n_matches;
    } else if (first_divergence.is_null()) {
      first_divergence = i;
    }
  }
  const json rate =
      result.n_steps == 0
          ? json()
          : json(static_cast<double>(n_matches) / static_cast<double>(result.n_steps));
  return {{"steps", result.n_steps},
          {"ours", result.greedy},
          {"reference", result.reference_greedy},
          {"matches", n_matches},
          {"match_rate", rate},
          {"finite", result.greedy_finite},
          {"first_divergence_step", first_divergence}};
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

// What makes the sides different; empty: nothing that was compared.
std::string divergence_of(const ParityResult& result, const ParityVerdict& verdict) {
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
  const json& first = verdict.summary["first_divergence"];
  if (!first.is_null()) return row_reason(result, first.get<std::size_t>());
  if (!result.greedy_finite) return "a logit of a greedy step is not finite";
  const std::size_t n_steps = result.n_steps;
  const bool complete =
      result.greedy.size() == n_steps && result.reference_greedy.size() == n_steps;
  if (n_steps > 0 && complete &&
      !(verdict.greedy["match_rate"].get<double>() >= result.thresholds.greedy_match)) {
    return "greedy tokens differ from step " +
           std::to_string(verdict.greedy["first_divergence_step"].get<std::size_t>()) + " on";
  }
  return {};
}

// What was not compared of what was asked for; empty: everything was.
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
  verdict.greedy = greedy_json(result);
  const bool tokens_known = !result.tokens.empty() && !result.reference_tokens.empty();
  verdict.reason = tokens_known ? divergence_of(result, verdict) : std::string();
  if (!verdict.reason.empty()) {
    verdict.status = ParityStatus::kDivergence;
    return verdict;
  }
  verdict.reason = tokens_known || !result.failure.empty() ? gap_of(result) : "there are no tokens";
  verdict.status = verdict.reason.empty() ? ParityStatus::kOk : ParityStatus::kNotCompared;
  return verdict;
}

json thresholds_json(const ParityThresholds& thresholds) {
  return {{"cosine", thresholds.cosine},    {"max_abs_error", or_null(thresholds.max_abs_error)},
          {"mse", or_null(thresholds.mse)}, {"kl", or_null(thresholds.kl)},
          {"top1", thresholds.top1},        {"greedy_match", thresholds.greedy_match}};
}

json tokenization_json(const ParityResult& result) {
  const auto difference = result.first_token_difference();
  return {{"ids_given", result.ids_given},
          {"ours", result.tokens},
          {"reference", result.reference_tokens},
          {"n_ours", result.tokens.size()},
          {"n_reference", result.reference_tokens.size()},
          {"match", !difference.has_value()},
          {"first_difference", difference ? json(*difference) : json()}};
}

json rows_json(const ParityResult& result) {
  json rows = json::array();
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const RowParity& row = result.rows[i];
    rows.push_back({{"position", i},
                    {"token", result.token_of_row(i)},
                    {"role", i < result.n_positions ? "prompt" : "generated"},
                    {"finite", row.finite},
                    {"zero", row.zero},
                    {"cosine", or_null(row.cosine)},
                    {"centred_cosine", or_null(row.centred_cosine)},
                    {"max_abs_error", or_null(row.max_abs_error)},
                    {"mse", or_null(row.mse)},
                    {"kl", or_null(row.kl)},
                    {"top_ours", row.top_ours},
                    {"top_reference", row.top_reference},
                    {"top1_match", row.top1_match()},
                    {"top5_agreement", top_overlap(row.top_reference, row.top_ours)},
                    {"outcome", outcome_name(row.outcome)}});
  }
  return rows;
}

ParityResult result_of(const json& receipt) {
  ParityResult result;
  const json& bounds = receipt["thresholds"];
  result.thresholds = {.cosine = bounds["cosine"].get<double>(),
                       .max_abs_error = number_of(bounds["max_abs_error"]),
                       .mse = number_of(bounds["mse"]),
                       .kl = number_of(bounds["kl"]),
                       .top1 = bounds["top1"].get<bool>(),
                       .greedy_match = bounds["greedy_match"].get<double>()};
  const json& tokens = receipt["tokenization"];
  result.ids_given = tokens["ids_given"].get<bool>();
  result.tokens = tokens["ours"].get<std::vector<std::uint32_t>>();
  result.reference_tokens = tokens["reference"].get<std::vector<std::uint32_t>>();
  result.n_vocab = receipt["ours"]["n_vocab"].get<std::uint32_t>();
  result.reference_n_vocab = receipt["reference"]["n_vocab"].get<std::uint32_t>();
  result.n_positions = receipt["summary"]["positions"].get<std::uint32_t>();
  for (const json& from : receipt["rows"]) {
    RowParity row;
    row.finite = from["finite"].get<bool>();
    row.zero = from["zero"].get<bool>();
    row.cosine = number_of(from["cosine"]);
    row.centred_cosine = number_of(from["centred_cosine"]);
    row.max_abs_error = number_of(from["max_abs_error"]);
    row.mse = number_of(from["mse"]);
    row.kl = number_of(from["kl"]);
    row.top_ours = from["top_ours"].get<std::vector<std::uint32_t>>();
    row.top_reference = from["top_reference"].get<std::vector<std::uint32_t>>();
    row.outcome = judge_row(row, result.thresholds);
    result.rows.push_back(std::move(row));
  }
  const json& greedy = receipt["greedy"];
  result.n_steps = greedy["steps"].get<std::uint32_t>();
  result.greedy = greedy["ours"].get<std::vector<std::uint32_t>>();
  result.reference_greedy = greedy["reference"].get<std::vector<std::uint32_t>>();
  for (const json& kernel : receipt["kernels"]) {
    if (kernel["calls"].get<std::uint64_t>() > 0) {
      result.kernels.push_back(kernel["kernel_id"].get<std::string>());
    }
  }
  result.greedy_finite = greedy["finite"].get<bool>();
  result.failure = receipt["failure"].get<std::string>();
  return result;
}

}  // namespace qsf_tools
