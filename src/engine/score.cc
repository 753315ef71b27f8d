// SPDX-License-Identifier: MIT
//
// Log probabilities of a text, in constant memory per row.

#include <cmath>
#include <vector>

#include "engine/engine_impl.h"
#include "ops/log_sum_exp.h"

namespace qsf {
namespace {

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

}  // namespace

Status Engine::score(std::span<const TokenId> tokens, std::size_t first,
                     std::span<double> log_probs) {
  if (tokens.size() > impl_->max_context) {
    return out_of_budget("%zu tokens to score, the context has %u positions", tokens.size(),
                         impl_->max_context);
  }
  if (first == 0 || first >= tokens.size() || log_probs.size() != tokens.size() - first) {
    return invalid_argument(
        "scoring from token %zu of %zu: expected at least one token before it and "
        "one place for each from it on",
        first, tokens.size());
  }
  for (const TokenId token : tokens.subspan(first)) {
    if (token >= spec().n_vocab) {
      return invalid_argument("token %u: the vocabulary ends at %u", token, spec().n_vocab - 1);
    }
  }
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, create_session());
  ScoreSink sink(spec().n_vocab, impl_->rows_per_pass);
  // Row i predicts token i + 1, so the last token is no row and rows from first - 1 on are scored.
  const std::span<const TokenId> inputs = tokens.first(tokens.size() - 1);
  if (first > 1) QSF_RETURN_IF_ERROR(session->prefill(inputs.first(first - 1), nullptr));
  for (std::size_t row = first - 1; row < inputs.size();) {
    const std::size_t n = std::min<std::size_t>(impl_->rows_per_pass, inputs.size() - row);
    sink.begin(tokens.subspan(row + 1, n), log_probs.subspan(row + 1 - first, n));
    QSF_RETURN_IF_ERROR(
        impl_->append(session->sequence_, inputs.subspan(row, n), RowRole::kPrompt, 0, &sink));
    row += n;
  }
  impl_->take_cancel();  // asked for after the last pass: too late to matter, and not for the next
                         // call
  for (const double log_prob : log_probs) {
    if (!std::isfinite(log_prob)) {
      return corrupt(
          "%s: the model's logits are not finite; its weights or its configuration are "
          "damaged",
          impl_->reader->file().path().c_str());
    }
  }
  return ok_status();
}

}  // namespace qsf
