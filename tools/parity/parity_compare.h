// SPDX-License-Identifier: MIT
//
// How far the logits of one position are from a reference's: the arithmetic alone, in f64.
//
// A comparison has three outcomes. Rows of all zeros come from programs that computed nothing, so
// two of them are not compared; a row of zeros beside one that has numbers differs, and so does a
// row with a NaN or an infinity, whatever the other one holds.

#ifndef QSF_TOOLS_PARITY_PARITY_COMPARE_H_
#define QSF_TOOLS_PARITY_PARITY_COMPARE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qsf_tools {

inline constexpr std::size_t kTopTokens = 5;

enum class RowOutcome : std::uint8_t { kOk, kDivergence, kNotCompared };

// Bounds of a row that is equal enough; those without a value are not asked for.
struct ParityThresholds {
  double cosine = 0.99;  // at least, of the logits and of the centred logits
  std::optional<double> max_abs_error;
  std::optional<double> mse;
  std::optional<double> kl;
  bool top1 = false;          // whether the most likely token has to be the same
  double greedy_match = 1.0;  // share of greedy tokens that have to be equal
};

// Of one position. Numbers that do not exist, because a row is not finite or all zeros, have no
// value.
struct RowParity {
  bool finite = false;  // both rows, every logit
  bool zero = false;    // one row or both are all zeros
  std::optional<double> cosine;
  std::optional<double> centred_cosine;  // of the logits less their means
  std::optional<double> max_abs_error;
  std::optional<double> mse;
  std::optional<double> kl;             // of ours from the reference's distribution, in nats
  std::vector<std::uint32_t> top_ours;  // most likely first, ties by the smaller id; at most five
  std::vector<std::uint32_t> top_reference;
  RowOutcome outcome = RowOutcome::kNotCompared;

  bool top1_match() const noexcept {
    return !top_ours.empty() && !top_reference.empty() && top_ours[0] == top_reference[0];
  }
};

// Returns the tokens of the largest logits, at most kTopTokens, ties by the smaller id.
// Requires  every logit is finite
std::vector<std::uint32_t> top_tokens(std::span<const float> logits);

// Returns the share of the first list's tokens that the second list holds, 0 for an empty list.
double top_overlap(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b);

// Returns the largest logit's token, ties by the smaller id; nothing when a logit is not finite or
// there is none.
std::optional<std::uint32_t> greedy_token(std::span<const float> logits);

// Returns the outcome that the numbers of a row have by the thresholds. `outcome` is not read.
RowOutcome judge_row(const RowParity& row, const ParityThresholds& thresholds);

// Compares. Requires  both rows have the same length, at least 1
RowParity compare_row(std::span<const float> ours, std::span<const float> reference,
                      const ParityThresholds& thresholds);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_COMPARE_H_
