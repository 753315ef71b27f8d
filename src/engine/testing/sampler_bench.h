// SPDX-License-Identifier: MIT
//
// For tests of the sampler: options without effect, and a sampler with memory of its own.

#ifndef QSF_ENGINE_TESTING_SAMPLER_BENCH_H_
#define QSF_ENGINE_TESTING_SAMPLER_BENCH_H_

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine/sampler.h"

namespace qsf::testing_support {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Options that let everything through at temperature 1.
inline SamplingOptions plain() {
  SamplingOptions options;
  options.temperature = 1.0F;
  options.top_k = 0;
  options.top_p = 1.0F;
  return options;
}

inline SamplingOptions greedy() {
  SamplingOptions options = plain();
  options.temperature = 0.0F;
  return options;
}

// A sampler with memory of its own, fed in blocks as the model does.
class SamplerBench {
 public:
  SamplerBench(const SamplingOptions& options, std::size_t n_vocab)
      : options_(options), logits_(n_vocab), order_(n_vocab), sampler_(options_, logits_, order_) {}

  TokenId draw(std::span<const float> logits, std::span<const TokenId> history = {}) {
    for (std::size_t first = 0; first < logits.size(); first += kLogitBlock) {
      sampler_.consume(
          0, static_cast<std::uint32_t>(first),
          logits.subspan(first, std::min<std::size_t>(kLogitBlock, logits.size() - first)));
    }
    return sampler_.draw(history);
  }

  // What a greedy draw leaves: the logits after penalties, DRY and bias.
  std::vector<float> penalised(const std::vector<float>& logits,
                               const std::vector<TokenId>& history) {
    draw(logits, history);
    return logits_;
  }

  std::map<TokenId, int> frequencies(std::span<const float> logits, int n_draws) {
    std::map<TokenId, int> counts;
    for (int i = 0; i < n_draws; ++i) ++counts[draw(logits)];
    return counts;
  }

 private:
  SamplingOptions options_;
  std::vector<float> logits_;
  std::vector<std::uint32_t> order_;
  Sampler sampler_;
};

inline TokenId draw_once(const SamplingOptions& options, const std::vector<float>& logits,
                         const std::vector<TokenId>& history = {}) {
  return SamplerBench(options, logits.size()).draw(logits, history);
}

inline std::set<TokenId> drawn(const SamplingOptions& options, const std::vector<float>& logits,
                               int n_draws = 2000) {
  std::set<TokenId> tokens;
  for (const auto& [token, count] :
       SamplerBench(options, logits.size()).frequencies(logits, n_draws)) {
    tokens.insert(token);
  }
  return tokens;
}

inline std::vector<float> penalised(const SamplingOptions& options,
                                    const std::vector<float>& logits,
                                    const std::vector<TokenId>& history) {
  return SamplerBench(options, logits.size()).penalised(logits, history);
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_SAMPLER_BENCH_H_
