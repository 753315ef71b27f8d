// SPDX-License-Identifier: MIT
//
// How far the next-token distribution of a model is from that of a reference, row by row, from
// logits that arrive in blocks. Of the reference the logits of the rows in work are kept, of the
// model none.
//
//   KLD(row) = sum over tokens of p_ref * (log p_ref - log p_model)
//            = sum of p_ref * (ref - model)  -  log Z_ref  +  log Z_model
//
// where ref and model are logits and Z the sums of their exponentials; so one sweep over the
// model's logits is enough. Everything is computed in f64: a divergence of 1e-5 is the difference
// of numbers of about 0.1.

#ifndef QSF_TOOLS_PERPLEXITY_LOGITS_COMPARE_H_
#define QSF_TOOLS_PERPLEXITY_LOGITS_COMPARE_H_

#include <cstddef>
#include <span>
#include <vector>

namespace qsf_tools {

// Z of one row, the largest logit and where it stands, and the logit of one token.
class RowLogits {
 public:
  // Blocks come in ascending order.
  void add(std::size_t first_token, std::span<const float> logits, std::size_t target) noexcept;
  double log_z() const noexcept;
  double target_log_prob() const noexcept { return target_logit_ - log_z(); }
  std::size_t top() const noexcept { return top_; }  // ties: the smallest id

 private:
  double max_ = 0.0;
  double sum_ = 0.0;  // of exp(logit - max)
  double target_logit_ = 0.0;
  std::size_t top_ = 0;
};

struct RowComparison {
  double divergence = 0.0;  // in nats
  bool same_top = false;
  double log_prob = 0.0;            // of the token that follows, by the model
  double reference_log_prob = 0.0;  // the same by the reference
};

class LogitsComparison {
 public:
  // Shapes  memory for max_rows rows of n_vocab f32
  LogitsComparison(std::size_t n_vocab, std::size_t max_rows);

  std::size_t max_rows() const noexcept { return rows_.size(); }

  // Starts over with rows that are followed by `targets`.
  // Requires  1 to max_rows targets, each below n_vocab, valid until the last row was read
  void begin(std::span<const int> targets) noexcept;
  // Take a block of logits; those of a row in ascending order. All of the reference come first.
  void add_reference(std::size_t row, std::size_t first_token,
                     std::span<const float> logits) noexcept;
  void add_model(std::size_t row, std::size_t first_token, std::span<const float> logits) noexcept;
  // Requires  both models' logits of the row are complete
  RowComparison row(std::size_t index) const noexcept;

 private:
  struct Row {
    RowLogits reference;
    RowLogits model;
    double weighted = 0.0;  // sum of p_ref * (ref - model) so far
  };

  std::size_t n_vocab_;
  std::vector<Row> rows_;
  std::vector<float> reference_;  // [max_rows, n_vocab]
  std::span<const int> targets_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PERPLEXITY_LOGITS_COMPARE_H_
