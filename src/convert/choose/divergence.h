// SPDX-License-Identifier: MIT
//
// Mean Kullback-Leibler divergence of a model's next-token distributions from those of a reference
// model on the same tokens: KLD = sum of p (log p - log q), averaged over positions.

#ifndef QSF_CONVERT_CHOOSE_DIVERGENCE_H_
#define QSF_CONVERT_CHOOSE_DIVERGENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "model/logits_sink.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Hands the logits of a window's rows to a sink. The window begins at token `first` of the text.
using RunWindow =
    FunctionRef<Status(std::size_t first, std::span<const TokenId> window, LogitsSink& sink)>;

// Holds the probabilities of the reference model: rows * n_vocab f32.
class DivergenceMeter {
 public:
  // Each window of `context` tokens begins like a text; only the last one may be shorter.
  // Requires  at least one token; both outlive the meter
  DivergenceMeter(std::span<const TokenId> tokens, std::uint32_t context, std::uint32_t n_vocab);

  static std::uint64_t memory_bytes(std::uint64_t n_rows, std::uint32_t n_vocab) noexcept {
    return n_rows * (n_vocab * sizeof(float) + 3 * sizeof(double));
  }

  // Runs the reference model.
  // Fails  as `run`; kCorrupt on logits that are not finite
  Status take_reference(RunWindow run);
  // Returns the mean divergence of a model, at least 0. Requires  take_reference() succeeded
  Result<double> measure(RunWindow run);

 private:
  Status run_all(RunWindow run, bool reference);

  std::span<const TokenId> tokens_;
  std::uint32_t context_;
  std::uint32_t n_vocab_;
  std::vector<float> p_;            // of the reference, [rows, n_vocab]; first its logits
  std::vector<double> log_z_;       // of the reference, [rows]
  std::vector<double> negentropy_;  // of the reference, sum of p log p [rows]
  std::vector<double> results_;     // of the model, [rows]
};

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_DIVERGENCE_H_
