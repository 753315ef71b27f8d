// SPDX-License-Identifier: MIT

#include "convert/tune/tune_gradients.h"

#include <utility>

#include "base/ranges.h"
#include "convert/encode/encode_rows.h"
#include "kernels/kernel_set.h"

namespace qsf {

TuneGradients::TuneGradients(const ModelSource& original, TunedModel& tuned,
                             std::span<const TokenId> tokens, const TunePassOptions& options)
    : spec_(original.spec()),
      tokens_(tokens),
      options_(options),
      original_(original, options.n_threads),
      tuned_(tuned),
      graph_(spec_, options.context, options.n_threads),
      divergence_(spec_.n_vocab, spec_.hidden, options.n_threads),
      seen_(tokens.size() / options.context) {}

std::uint64_t TuneGradients::memory_bytes(const ModelSpec& spec, std::uint32_t context,
                                          unsigned n_threads) noexcept {
  constexpr std::uint64_t kRowCopies = 6;  // beside the inputs of layers
  const std::uint64_t rows =
      (spec.n_layers + kRowCopies) * std::uint64_t{context} * spec.hidden * sizeof(float);
  return rows + LayerGraph::memory_bytes(spec, context, context, n_threads) +
         TuneDivergence::memory_bytes(spec.n_vocab, spec.hidden, context);
}

// Runs a window up to the final norm: x becomes what the head reads.
Status TuneGradients::run(TuneWeights& weights, std::size_t window, bool keeps,
                          std::vector<float>& x) {
  x.resize(std::size_t{options_.context} * spec_.hidden);
  inputs_.resize(keeps ? spec_.n_layers + 1 : 0);
  QSF_RETURN_IF_ERROR(weights.embed(tokens_of(window), x));
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    QSF_RETURN_IF_ERROR(check_cancelled(options_.cancel));
    if (keeps) inputs_[layer] = x;
    QSF_RETURN_IF_ERROR(weights.load_layer(layer, layer_));
    graph_.forward(layer, layer_, x);
  }
  if (keeps) inputs_.back() = x;
  QSF_RETURN_IF_ERROR(weights.load_final_norm(final_norm_));
  const auto& norm = kernels::host_kernel_set().norm;
  for (std::size_t at = 0; at < x.size(); at += spec_.hidden) {
    norm.rms_norm(x.data() + at, final_norm_.data(), x.data() + at, spec_.hidden,
                  spec_.norm_epsilon);
  }
  return ok_status();
}

Status TuneGradients::see_original(std::size_t window, OriginalRows& rows) {
  QSF_RETURN_IF_ERROR(run(original_, window, false, rows.rows));
  rows.log_z.resize(options_.context);
  return divergence_.find_log_z(original_, rows.rows, rows.log_z);
}

Result<const OriginalRows*> TuneGradients::original_rows(std::size_t window) {
  const std::uint64_t bytes =
      std::uint64_t{options_.context} * (spec_.hidden * sizeof(float) + sizeof(double));
  // The first windows of the text are kept, in whatever order they come.
  if (bytes * (window + 1) > options_.cache_bytes) {
    QSF_RETURN_IF_ERROR(see_original(window, unkept_));
    return &unkept_;
  }
  if (!seen_[window]) {
    OriginalRows rows;
    QSF_RETURN_IF_ERROR(see_original(window, rows));
    seen_[window] = std::move(rows);
  }
  return &*seen_[window];
}

Result<double> TuneGradients::divergence(std::size_t window) {
  QSF_ASSIGN_OR_RETURN(const OriginalRows* const expected, original_rows(window));
  std::vector<float> x;
  QSF_RETURN_IF_ERROR(run(tuned_, window, false, x));
  return divergence_.measure(original_, *expected, tuned_, x, {});
}

Result<double> TuneGradients::find(std::size_t window) {
  QSF_ASSIGN_OR_RETURN(const OriginalRows* const expected, original_rows(window));
  std::vector<float> x;
  QSF_RETURN_IF_ERROR(run(tuned_, window, true, x));
  ranges::fill(tuned_.gradients(), 0.0F);
  std::vector<float> dnormed(x.size());
  QSF_ASSIGN_OR_RETURN(const double divergence,
                       divergence_.measure(original_, *expected, tuned_, x, dnormed));
  std::vector<float> dx(x.size());
  std::vector<float> dgain(spec_.hidden);
  rms_norm_backward(inputs_.back(), final_norm_, spec_.norm_epsilon, dnormed, dx, dgain);
  tuned_.add_final_norm_gradient(final_norm_, dgain);
  for (std::uint32_t layer = spec_.n_layers; layer-- > 0;) {
    QSF_RETURN_IF_ERROR(check_cancelled(options_.cancel));
    QSF_RETURN_IF_ERROR(tuned_.load_layer(layer, layer_));
    graph_.backward(layer, layer_, inputs_[layer], dx, tuned_.layer_sink(layer_));
  }
  QSF_RETURN_IF_ERROR(tuned_.add_embedding_gradients(tokens_of(window), dx));
  return divergence;
}

}  // namespace qsf
