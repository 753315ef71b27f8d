// SPDX-License-Identifier: MIT

#include "convert/gptq/layerwise_gptq.h"

#include <algorithm>
#include <string>
#include <utility>

namespace qsf {

std::uint32_t LayerwiseGptq::layers_at_once(const ModelSpec& spec,
                                            std::uint64_t budget_bytes) noexcept {
  if (budget_bytes == 0) return spec.n_layers;
  const std::uint64_t n = budget_bytes / 2 / HessianSums::layer_bytes(spec);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(n, 1, spec.n_layers));
}

Result<const GptqFactor*> LayerwiseGptq::factor_of(TensorKind kind, std::uint32_t layer,
                                                   std::uint32_t n_cols) {
  const ModelSpec& spec = gatherer_->spec();
  const std::optional<ProductInput> input = product_input_of(kind, spec.tied_head);
  if (!input || *input == ProductInput::kHead || input_cols(spec, *input) != n_cols) return nullptr;
  if (factor_ && input_ == *input && layer_ == layer) return &*factor_;
  factor_.reset();
  std::vector<float> hessian;
  if (sums_ && sums_->has(layer)) hessian = sums_->take(*input, layer);
  if (hessian.empty()) {  // not there yet, or given up before
    sums_.reset();
    const std::uint32_t n_layers = std::min(layers_at_once_, spec.n_layers - layer);
    sums_.emplace(spec, layer, n_layers, n_threads_);
    QSF_RETURN_IF_ERROR(gatherer_->feed(tokens_, layer, layer + n_layers, *sums_));
    hessian = sums_->take(*input, layer);
  }
  auto factor = GptqFactor::create(std::move(hessian), n_cols);
  if (!factor) return Status(factor.error()).with_context("layer " + std::to_string(layer));
  factor_.emplace(std::move(*factor));
  input_ = *input;
  layer_ = layer;
  return &*factor_;
}

}  // namespace qsf
