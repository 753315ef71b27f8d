// SPDX-License-Identifier: MIT
//
// The KL divergence of a tuned model's next-token distributions from the original's, over the whole
// vocabulary, and its gradients. Logits are never in memory as a whole: the head is multiplied some
// rows at a time, once for the sums of exponentials and once for the rest.

#ifndef QSF_CONVERT_TUNE_TUNE_DIVERGENCE_H_
#define QSF_CONVERT_TUNE_TUNE_DIVERGENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "convert/tune/tune_weights.h"
#include "convert/tune/tuned_model.h"

namespace qsf {

// What the original makes of a window: the rows that its head reads, and the logarithms of the sums
// of its logits' exponentials.
struct OriginalRows {
  std::vector<float> rows;    // [n_rows, hidden]
  std::vector<double> log_z;  // [n_rows]
};

class TuneDivergence {
 public:
  TuneDivergence(std::uint32_t n_vocab, std::uint32_t hidden, unsigned n_threads)
      : n_vocab_(n_vocab), hidden_(hidden), n_threads_(n_threads) {}

  static std::uint64_t memory_bytes(std::uint32_t n_vocab, std::uint32_t hidden,
                                    std::size_t n_rows) noexcept;

  // Shapes  rows [n_rows, hidden], log_z [n_rows]
  Status find_log_z(TuneWeights& weights, std::span<const float> rows, std::span<double> log_z);

  // Returns the mean over rows of the divergence. Where dx is not empty, adds the gradients of it
  // to those of the head, and puts those of the rows into dx.
  // Shapes  rows, dx [n_rows, hidden]
  Result<double> measure(TuneWeights& original, const OriginalRows& expected, TunedModel& tuned,
                         std::span<const float> rows, std::span<float> dx);

 private:
  std::uint32_t chunk_rows(std::uint32_t first) const noexcept;
  Status load_logits(TuneWeights& weights, std::uint32_t first, std::span<const float> rows,
                     std::vector<float>& head, std::vector<float>& logits) const;

  std::uint32_t n_vocab_;
  std::uint32_t hidden_;
  unsigned n_threads_;
};

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_TUNE_DIVERGENCE_H_
