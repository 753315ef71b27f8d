// SPDX-License-Identifier: MIT
//
// Passes of a model and its conversion over windows of tokens: how far the next-token distributions
// of the one diverge from the other's, and the gradients of that by what is tuned.

#ifndef QSF_CONVERT_TUNE_TUNE_GRADIENTS_H_
#define QSF_CONVERT_TUNE_TUNE_GRADIENTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "convert/tune/layer_graph.h"
#include "convert/tune/tune_divergence.h"
#include "convert/tune/tune_weights.h"
#include "convert/tune/tuned_model.h"
#include "import/model_source.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

struct TunePassOptions {
  std::uint32_t context = 512;                // tokens of a window
  unsigned n_threads = 1;                     // at least 1
  std::uint64_t cache_bytes = 0;              // memory for what the original makes of windows
  const std::atomic<bool>* cancel = nullptr;  // checked at every layer
};

class TuneGradients {
 public:
  // Requires  LayerGraph::check() of the model is OK; whole windows; all outlive this
  TuneGradients(const ModelSource& original, TunedModel& tuned, std::span<const TokenId> tokens,
                const TunePassOptions& options);

  static std::uint64_t memory_bytes(const ModelSpec& spec, std::uint32_t context,
                                    unsigned n_threads) noexcept;

  std::size_t n_windows() const noexcept { return seen_.size(); }
  // What the original makes of a window.
  Result<const OriginalRows*> original_rows(std::size_t window);
  // Returns the mean divergence over the rows of a window. The second form puts its gradients into
  // those of the tuned model.
  Result<double> divergence(std::size_t window);
  Result<double> find(std::size_t window);

 private:
  std::span<const TokenId> tokens_of(std::size_t window) const {
    return tokens_.subspan(window * options_.context, options_.context);
  }
  Status run(TuneWeights& weights, std::size_t window, bool keeps, std::vector<float>& x);
  Status see_original(std::size_t window, OriginalRows& rows);

  const ModelSpec& spec_;
  std::span<const TokenId> tokens_;
  TunePassOptions options_;
  OriginalWeights original_;
  TunedModel& tuned_;
  LayerGraph graph_;
  TuneDivergence divergence_;
  std::vector<std::optional<OriginalRows>> seen_;  // by window, as far as they fit
  OriginalRows unkept_;
  LayerValues layer_;
  std::vector<float> final_norm_;
  std::vector<std::vector<float>> inputs_;  // of every layer, behind them the last one's output
};

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_TUNE_GRADIENTS_H_
