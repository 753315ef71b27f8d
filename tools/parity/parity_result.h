// SPDX-License-Identifier: MIT
//
// The logits of two sides compared position by position, the result of a whole comparison, and the
// verdict that follows from it.
//
// A row has three outcomes. Rows of all zeros come from programs that computed nothing, so two of
// them are not compared. A row of zeros beside a row of numbers differs, and so does a row with a
// NaN or an infinity. The arithmetic is in f64.
//
// The verdict is a function of the numbers in the receipt, so every reader of a receipt can compute
// it again. It is "ok" only where every requested position was compared and passed.

#ifndef QSF_TOOLS_PARITY_PARITY_RESULT_H_
#define QSF_TOOLS_PARITY_PARITY_RESULT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qsf_tools {

// Returns whether every logit is 0, as a backend gives that computed nothing.
bool all_zero(std::span<const float> logits);

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

enum class ParityStatus : std::uint8_t { kOk, kDivergence, kNotCompared };
// Returns "ok", "divergence" or "not_compared".
const char* status_name(ParityStatus status);
// Returns 0, 1 or 3.
int exit_code(ParityStatus status);

struct ParityResult {
  ParityThresholds thresholds;
  bool ids_given = false;  // both sides were told the ids
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint32_t> reference_tokens;
  std::uint32_t n_vocab = 0;
  std::uint32_t reference_n_vocab = 0;
  std::uint32_t n_positions = 0;  // of the prompt to compare: the first so many tokens
  std::uint32_t n_steps = 0;      // of greedy generation that were asked for
  std::vector<std::uint32_t> greedy;
  std::vector<std::uint32_t> reference_greedy;
  bool greedy_finite = true;  // every logit behind which a greedy token was chosen
  // Of positions 0, 1, ...: the prompt's, then those of greedy tokens as long as both sides have
  // chosen the same ones and another token follows.
  std::vector<RowParity> rows;
  std::vector<std::string> kernels;  // that computed our side
  std::string failure;               // why the comparison ended early; empty: it did not

  // Returns the token in front of a row, and how many rows there are when all was compared.
  std::uint32_t token_of_row(std::size_t row) const;
  std::size_t n_expected_rows() const;
  // Returns how many greedy tokens agree before the first that does not.
  std::size_t n_greedy_shared() const;
  // Returns the first token that differs; nothing: none does.
  std::optional<std::size_t> first_token_difference() const;
};

// The parts of a receipt that follow from a result.
struct TokenizationRecord {
  bool ids_given = false;
  std::vector<std::uint32_t> ours;
  std::vector<std::uint32_t> reference;
  std::uint64_t n_ours = 0;
  std::uint64_t n_reference = 0;
  bool match = false;
  std::optional<std::uint64_t> first_difference;
};

struct RowRecord {
  std::uint64_t position = 0;
  std::uint32_t token = 0;
  std::string role;  // "prompt" or "generated"
  bool finite = false;
  bool zero = false;
  std::optional<double> cosine;
  std::optional<double> centred_cosine;
  std::optional<double> max_abs_error;
  std::optional<double> mse;
  std::optional<double> kl;
  std::vector<std::uint32_t> top_ours;
  std::vector<std::uint32_t> top_reference;
  bool top1_match = false;
  std::optional<double> top5_agreement;
  std::string outcome;
};

struct SummaryRecord {
  std::uint32_t positions = 0;
  std::uint64_t rows = 0;
  std::uint64_t compared = 0;
  std::optional<double> cosine_min;
  std::optional<double> cosine_mean;
  std::optional<double> centred_cosine_min;
  std::optional<double> centred_cosine_mean;
  std::optional<double> max_abs_error;
  std::optional<double> mse_mean;
  std::optional<double> kl_mean;
  std::optional<double> kl_max;
  std::optional<double> top1_agreement;
  std::optional<double> top5_agreement;
  bool cosine_ok = false;
  std::optional<std::uint64_t> first_divergence;
};

struct GreedyRecord {
  std::uint32_t steps = 0;
  std::vector<std::uint32_t> ours;
  std::vector<std::uint32_t> reference;
  std::uint64_t matches = 0;
  std::optional<double> match_rate;
  bool finite = true;
  std::optional<std::uint64_t> first_divergence_step;
};

struct ParityVerdict {
  ParityStatus status = ParityStatus::kNotCompared;
  std::string reason;  // empty for ok
  SummaryRecord summary;
  GreedyRecord greedy;
};

ParityVerdict judge(const ParityResult& result);

TokenizationRecord tokenization_record(const ParityResult& result);
std::vector<RowRecord> row_records(const ParityResult& result);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_RESULT_H_
