// SPDX-License-Identifier: MIT
//
// For tests that compare two ways to the same logits.

#ifndef QSF_ENGINE_TESTING_LOGITS_LOG_H_
#define QSF_ENGINE_TESTING_LOGITS_LOG_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "model/logits_sink.h"
#include "tokenizer/tokenizer.h"

namespace qsf::testing_support {

// Keeps all logits of all calls in the order in which they come.
class LogitsLog final : public LogitsSink {
 public:
  void consume(std::uint32_t, std::uint32_t, std::span<const float> logits) noexcept override {
    values.insert(values.end(), logits.begin(), logits.end());
  }
  std::vector<float> values;
};

// Returns n ids from 10 on, below 10 + n_ids; the same for a seed.
inline std::vector<TokenId> random_tokens(std::size_t n, std::uint64_t seed = 1,
                                          std::uint32_t n_ids = 4000) {
  Rng rng(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = 10 + rng.below(n_ids);
  return tokens;
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_LOGITS_LOG_H_
