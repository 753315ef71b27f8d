// SPDX-License-Identifier: MIT

#include "convert/gptq/layerwise_gptq.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/run_on_threads.h"
#include "convert/gptq/outer_products.h"
#include "format/tensor_rules.h"

namespace qsf {
namespace {

// The columns of a Hessian; 0 for a place whose matrices are not compensated.
std::uint64_t hessian_cols(const CalibratedModel& shape, const InputPlace& place) noexcept {
  const bool router_alone = place.input == ProductInput::kGateUp &&
                            input_cols(shape, {ProductInput::kDown, place.layer}) == 0;
  return router_alone || is_in_parts(place.input) ? 0 : input_cols(shape, place);
}

// Rows of a tied head are looked up as well: more of the diagonal keeps their own error small.
constexpr float kTiedHeadDamping = 0.1F;

}  // namespace

HessianSums::HessianSums(const ModelSpec& spec, std::uint32_t first_layer, std::uint32_t n_layers,
                         unsigned n_threads)
    : first_layer_(first_layer), n_threads_(std::max(n_threads, 1U)), layers_(n_layers) {
  const CalibratedModel shape = shape_of(spec);
  for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
    std::size_t most = 0;
    for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
      Sum& sum = layers_[layer][i];
      sum.cols = hessian_cols(shape, {static_cast<ProductInput>(i), first_layer + layer});
      sum.products.resize(sum.cols * sum.cols);
      most = std::max(most, sum.cols);
    }
    gathered_[i].panels.resize(panel_floats(most));
  }
}

void HessianSums::add_head(const ModelSpec& spec) {
  head_.cols = input_cols(shape_of(spec), {ProductInput::kHead});
  head_.products.resize(head_.cols * head_.cols);
  gathered_[kHeadInput].panels.resize(panel_floats(head_.cols));
}

std::uint64_t HessianSums::layer_bytes(const ModelSpec& spec) noexcept {
  const CalibratedModel shape = shape_of(spec);
  std::uint64_t most = 0;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const std::uint64_t cols = hessian_cols(shape, {static_cast<ProductInput>(i), layer});
      n += cols * cols;
    }
    most = std::max(most, n);
  }
  return most * sizeof(float);
}

std::uint64_t HessianSums::head_bytes(const ModelSpec& spec) noexcept {
  const std::uint64_t cols = input_cols(shape_of(spec), {ProductInput::kHead});
  return (cols * cols + panel_floats(cols)) * sizeof(float);
}

std::uint64_t HessianSums::gathered_bytes(const ModelSpec& spec) noexcept {
  const CalibratedModel shape = shape_of(spec);
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
    std::uint64_t most = 0;
    for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
      most = std::max(most, hessian_cols(shape, {static_cast<ProductInput>(i), layer}));
    }
    n += panel_floats(most);
  }
  return n * sizeof(float);
}

void HessianSums::take_input(const InputPlace& place, std::span<const float> row) {
  if (place.expert != InputPlace::kNoExpert) return;
  const auto input = static_cast<std::size_t>(place.input);
  if (input != kHeadInput && !has(place.layer)) return;
  const Sum& sum = sum_of(input, place.layer);
  if (sum.cols == 0) return;
  QSF_CHECK(row.size() == sum.cols && !sum.products.empty());
  Gathered& gathered = gathered_[input];
  if (gathered.layer != place.layer) add_rows(input);
  gathered.layer = place.layer;
  store_in_panels(row, gathered.n_rows, std::span(gathered.panels).first(panel_floats(sum.cols)));
  if (++gathered.n_rows == kPanelRows) add_rows(input);
}

// Threads take panels of the sum, so that one thread adds to each element.
void HessianSums::add_rows(std::size_t input) {
  Gathered& gathered = gathered_[input];
  if (gathered.n_rows == 0) return;
  Sum& sum = sum_of(input, gathered.layer);
  const auto panels = std::span(gathered.panels).first(panel_floats(sum.cols));
  const std::size_t n_parts = n_panels(sum.cols);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    // From the last panel, the largest of the triangle, to the first.
    for (std::size_t i = next++; i < n_parts; i = next++) {
      add_outer_products(panels, gathered.n_rows, sum.cols, n_parts - 1 - i, sum.products);
    }
  };
  run_on_threads(std::min<std::size_t>(n_threads_, n_parts), work);
  gathered.n_rows = 0;
}

void HessianSums::finish() {
  for (std::size_t input = 0; input < gathered_.size(); ++input) {
    add_rows(input);
    std::vector<float>().swap(gathered_[input].panels);
  }
}

std::vector<float> HessianSums::take(ProductInput input, std::uint32_t layer) {
  QSF_CHECK(input == ProductInput::kHead ? has_head() : has(layer));
  add_rows(static_cast<std::size_t>(input));
  return std::exchange(sum_of(static_cast<std::size_t>(input), layer).products, {});
}

std::uint32_t LayerwiseGptq::layers_at_once(const ModelSpec& spec,
                                            std::uint64_t budget_bytes) noexcept {
  if (budget_bytes == 0) return spec.n_layers;
  const std::uint64_t half = budget_bytes / 2;
  const std::uint64_t others =
      std::min(half, HessianSums::gathered_bytes(spec) + HessianSums::head_bytes(spec));
  const std::uint64_t n = (half - others) / HessianSums::layer_bytes(spec);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(n, 1, spec.n_layers));
}

Status LayerwiseGptq::open_collector() {
  if (collector_ != nullptr) return ok_status();
  QSF_ASSIGN_OR_RETURN(collector_, open_(layers_at_once_));
  return ok_status();
}

Result<const GptqFactor*> LayerwiseGptq::head_factor(std::uint32_t n_cols) {
  const CalibratedModel shape = shape_of(spec_);
  if (input_cols(shape, {ProductInput::kHead}) != n_cols) return nullptr;
  if (head_factor_) return &*head_factor_;
  std::vector<float> hessian;
  if (sums_ && sums_->has_head()) hessian = sums_->take(ProductInput::kHead, 0);
  if (hessian.empty()) {
    QSF_RETURN_IF_ERROR(open_collector());
    HessianSums sums(spec_, 0, 0, n_threads_);
    sums.add_head(spec_);
    QSF_RETURN_IF_ERROR(collector_->run_head(tokens_, sums));
    hessian = sums.take(ProductInput::kHead, 0);
  }
  auto factor = GptqFactor::create(std::move(hessian), n_cols,
                                   shape.tied_head ? kTiedHeadDamping : kGptqDamping);
  if (!factor) return Status(factor.error()).with_context("head");
  return &head_factor_.emplace(std::move(*factor));
}

Result<const GptqFactor*> LayerwiseGptq::factor_of(TensorKind kind, std::uint32_t layer,
                                                   std::uint32_t n_cols) {
  const CalibratedModel shape = shape_of(spec_);
  const std::optional<ProductInput> input = product_input_of(shape, layer, kind);
  if (!input || is_expert(kind)) return nullptr;
  if (*input == ProductInput::kHead) return head_factor(n_cols);
  if (hessian_cols(shape, {*input, layer}) != n_cols) return nullptr;
  if (layer_ != layer) {
    for (std::optional<GptqFactor>& factor : factors_) factor.reset();
  }
  layer_ = layer;
  head_factor_.reset();
  std::optional<GptqFactor>& known = factors_[static_cast<std::size_t>(*input)];
  if (known) return &*known;
  std::vector<float> hessian;
  if (sums_ && sums_->has(layer)) hessian = sums_->take(*input, layer);
  if (hessian.empty()) {  // not summed yet, or released before
    sums_.reset();
    QSF_RETURN_IF_ERROR(open_collector());
    const std::uint32_t n_layers = std::min(layers_at_once_, spec_.n_layers - layer);
    sums_.emplace(spec_, layer, n_layers, n_threads_);
    QSF_RETURN_IF_ERROR(collector_->run_layers(tokens_, layer, layer + n_layers, *sums_));
    hessian = sums_->take(*input, layer);
  }
  auto factor = GptqFactor::create(std::move(hessian), n_cols);
  if (!factor) return Status(factor.error()).with_context("layer " + std::to_string(layer));
  return &known.emplace(std::move(*factor));
}

}  // namespace qsf
