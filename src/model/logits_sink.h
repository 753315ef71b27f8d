// SPDX-License-Identifier: MIT
//
// LogitsSink: receives logits in blocks of the vocabulary, so that they are never stored whole for
// many rows (512 rows of a 128k vocabulary would be 262 MB).

#ifndef QSF_MODEL_LOGITS_SINK_H_
#define QSF_MODEL_LOGITS_SINK_H_

#include <cstdint>
#include <span>

namespace qsf {

inline constexpr std::uint32_t kLogitBlock = 1024;  // vocabulary rows a block holds, the last fewer

// What of a row's logits a sink needs.
struct HeadNeed {
  std::uint32_t n_best = 0;    // the best ones alone, of equal ones the smaller tokens; 0: all
  std::uint32_t n_tokens = 0;  // of these tokens, from 0 on
  bool most_suffice = false;   // with an approximate head the probable ones do
};

class LogitsSink {
 public:
  virtual ~LogitsSink() = default;

  // Asked for each row in front of its logits.
  virtual HeadNeed head_need(std::uint32_t /*row*/) const noexcept { return {}; }
  // Tells that a row has only some logits, the best ones among them. They arrive in runs of tokens,
  // each once and in any order; those that do not arrive are -infinity.
  virtual void expect_some(std::uint32_t /*row*/) noexcept {}

  // Receives the logits of tokens first_token .. first_token + logits.size() - 1 after output row
  // number `row` of the pass. Blocks of one row arrive in ascending order; rows may alternate.
  // Called by the thread that runs the pass.
  virtual void consume(std::uint32_t row, std::uint32_t first_token,
                       std::span<const float> logits) noexcept = 0;
};

// Stores the logits of row 0 whole, for one row at a time.
class LogitsCopy final : public LogitsSink {
 public:
  // Shapes  out [n_vocab]
  explicit LogitsCopy(std::span<float> out) noexcept : out_(out) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    if (row != 0) return;
    for (std::size_t i = 0; i < logits.size(); ++i) out_[first_token + i] = logits[i];
  }

 private:
  std::span<float> out_;
};

}  // namespace qsf

#endif  // QSF_MODEL_LOGITS_SINK_H_
