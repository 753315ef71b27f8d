// SPDX-License-Identifier: MIT
//
// Log probabilities of the tokens that a generation draws: of the softmax of the model's logits at
// temperature 1, over all ids that can be drawn, before any step of sampling.

#ifndef QSF_ENGINE_LOG_PROBS_H_
#define QSF_ENGINE_LOG_PROBS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace qsf {

// Alternatives that can be asked for.
inline constexpr std::uint32_t kMaxTopLogProbs = 100;

struct TokenLogProb {
  TokenId token = 0;
  float log_prob = 0.0F;
};

// The largest finite logits of a row, the largest first, of equals the smaller id first.
class TopLogits {
 public:
  // Requires  n <= kMaxTopLogProbs
  explicit TopLogits(std::uint32_t n);

  void clear() noexcept { entries_.clear(); }
  // Adds logits of ids from `first` on, ids in ascending order. Allocates nothing.
  void add(TokenId first, std::span<const float> logits);
  // Makes log probabilities of the logits, once before the next clear().
  std::span<const TokenLogProb> to_log_probs(double log_total) noexcept;

 private:
  std::size_t n_;
  std::vector<TokenLogProb> entries_;
};

class LogProbs {
 public:
  // Requires  n_top <= kMaxTopLogProbs
  explicit LogProbs(std::uint32_t n_top);

  // Reads a row, and keeps a copy of it in `kept`, until a token was drawn from it. Allocates
  // nothing.
  // Shapes  logits [n], kept [n]
  void take(std::span<const float> logits, std::span<float> kept);

  // Returns the natural log probability of an id of the row taken last.
  float of(TokenId token) const noexcept;
  // The most likely tokens of that row, the likeliest first, of equals the smaller id first; fewer
  // where the row has fewer finite logits. Valid until the next take().
  std::span<const TokenLogProb> top() const noexcept { return top_; }

 private:
  TopLogits top_logits_;
  std::span<const TokenLogProb> top_;
  std::span<const float> kept_;
  double log_total_ = 0.0;
};

}  // namespace qsf

#endif  // QSF_ENGINE_LOG_PROBS_H_
