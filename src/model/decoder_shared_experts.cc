// SPDX-License-Identifier: MIT
//
// The shared expert of a layer with experts: an FFN that takes every row, beside those chosen.

#include <array>

#include "base/portable_math.h"
#include "model/decoder.h"

namespace qsf {
namespace {

// 1 / (1 + exp(-(weight . row)))
float sigmoid_of_product(std::span<const float> weight, std::span<const float> row) {
  double sum = 0.0;
  for (std::size_t i = 0; i < weight.size(); ++i) sum += static_cast<double>(weight[i]) * row[i];
  return static_cast<float>(1.0 / (1.0 + portable::exp(-sum)));
}

}  // namespace

// projected = residual_scale * s * Wdown(activation(Wgate in) * (Wup in)), where s is 1 or, in
// models that weigh it, sigmoid(weight . in).
// Requires  nothing was submitted since the last wait for the backend
Status Decoder::run_shared_expert(const Pass& pass, const LayerWeights& w, Buffer in) {
  const bool weighed = !w.shared_weight.empty();
  shared_scales_.clear();
  for (std::uint32_t row = 0; weighed && row < counts_.n_rows; ++row) {
    const std::span<const float> values = backend_.read_row(in, row).first(spec_.hidden);
    shared_scales_.push_back(spec_.residual_scale * sigmoid_of_product(w.shared_weight, values));
  }
  const std::array<Product, 2> gate_up = {
      {{&w.shared_gate, {}, buffers_.gate}, {&w.shared_up, {}, buffers_.up}}};
  QSF_RETURN_IF_ERROR(
      multiply(pass, OperatorKind::kGateUp, in, gate_up_products(gate_up), gate_up_epilogue()));
  const Product down = {&w.shared_down, {}, buffers_.projected};
  QSF_RETURN_IF_ERROR(
      multiply(pass, OperatorKind::kDown, activated(), {&down, 1},
               {.activation = {}, .scale = weighed ? 1.0F : spec_.residual_scale, .add_to = {}}));
  if (weighed) backend_.scale_rows(buffers_.projected, shared_scales_);
  return ok_status();
}

}  // namespace qsf
