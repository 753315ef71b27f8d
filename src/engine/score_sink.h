// SPDX-License-Identifier: MIT

#ifndef QSF_ENGINE_SCORE_SINK_H_
#define QSF_ENGINE_SCORE_SINK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/logits_sink.h"
#include "ops/log_sum_exp.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Rows of a pass arrive block by block of the vocabulary; each keeps its running log-sum-exp and
// the logit of the token that truly follows.
class ScoreSink final : public LogitsSink {
 public:
  ScoreSink(std::uint32_t n_vocab, std::uint32_t max_rows) : n_vocab_(n_vocab), rows_(max_rows) {}

  // Sets where the next pass's results go: targets[i] follows its output row i.
  void begin(std::span<const TokenId> targets, std::span<double> log_probs) {
    targets_ = targets;
    log_probs_ = log_probs;
  }

  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    RowState& state = rows_[row];
    if (first_token == 0) state = {};
    state.total.add(logits);
    const TokenId target = targets_[row];
    if (target >= first_token && target - first_token < logits.size()) {
      state.target_logit = logits[target - first_token];
    }
    if (first_token + logits.size() == n_vocab_) {
      log_probs_[row] = static_cast<double>(state.target_logit) - state.total.value();
    }
  }

 private:
  struct RowState {
    LogSumExp total;
    float target_logit = 0.0F;
  };

  std::uint32_t n_vocab_;
  std::vector<RowState> rows_;
  std::span<const TokenId> targets_;
  std::span<double> log_probs_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_SCORE_SINK_H_
