// SPDX-License-Identifier: MIT
//
// Log probabilities of the tokens of a prompt, as log_probs.h defines them: row by row of a pass,
// while logits come in blocks and are never stored whole.

#ifndef QSF_ENGINE_PROMPT_LOG_PROBS_H_
#define QSF_ENGINE_PROMPT_LOG_PROBS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/log_probs.h"
#include "model/logits_sink.h"
#include "ops/log_sum_exp.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class PromptLogProbs final : public LogitsSink {
 public:
  // Holds `max_rows` rows of a pass: about 40 bytes each, and 8 for each of the `n_top`. `last`
  // outlives it.
  // Requires  n_drawable > 0, n_top <= kMaxTopLogProbs
  PromptLogProbs(std::uint32_t n_drawable, std::size_t max_rows, std::uint32_t n_top,
                 LogitsSink& last);

  // Begins a pass. Row i is followed by targets[i]; the row behind them goes to `last`, as row 0.
  // Allocates nothing.
  // Requires  targets.size() <= max_rows; they stay where they are during the pass
  void begin(std::span<const TokenId> targets);

  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override;

  // Of the pass that was computed, row by row.

  // The tokens that follow the rows.
  std::span<const TokenId> targets() const noexcept { return targets_; }
  // Returns whether the row's logits make a distribution.
  bool is_sound(std::size_t row) const noexcept;
  // Returns the natural log probability of the token that follows the row; -infinity for one that
  // cannot be drawn.
  float of(std::size_t row) const noexcept;
  // The most likely tokens there, as LogProbs::top(). Valid until the next pass begins.
  std::span<const TokenLogProb> top(std::size_t row);

 private:
  struct Row {
    explicit Row(std::uint32_t n_top) : top(n_top) {}
    LogSumExp total;
    float target_logit = 0.0F;
    TopLogits top;
  };

  std::uint32_t n_drawable_;
  LogitsSink& last_;
  std::vector<Row> rows_;
  std::span<const TokenId> targets_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_PROMPT_LOG_PROBS_H_
