// SPDX-License-Identifier: MIT
//
// Per-layer embeddings: a second embedding table has a few columns of every token for each layer.
// They join the embedded row and are added, through a gate, behind the layer's FFN. The table is
// read row by row, like the embedding, so it need not be in memory.

#include <array>
#include <cmath>
#include <numbers>

#include "model/decoder.h"

namespace qsf {

// layer_tables = sqrt(columns) * the tokens' rows of the table
Status Decoder::look_up_layer_inputs(const Pass& pass) {
  const MatrixRef& table = weights_.layer_embedding;
  const float scale = std::sqrt(static_cast<float>(spec_.layer_input_dim));
  for (std::uint32_t i = 0; i < counts_.n_rows; ++i) {
    const std::uint32_t token = pass.rows[i].token;
    QSF_RETURN_IF_ERROR(
        pager_.decode_row(table.section, table.tensor, token < table.rows ? token : 0, layer_row_));
    for (float& value : layer_row_) value *= scale;
    backend_.upload_row(buffers_.layer_tables, i, layer_row_);
  }
  return ok_status();
}

// hidden += norm(Wout (act(Wgate hidden) * t)) with t = (norm'(Win embedded / sqrt(H)) + table row)
// / sqrt(2)
// With several residual streams, of which `hidden` is the first one, scaled, the others gain the
// same sum.
Status Decoder::add_layer_input(const Pass& pass, const LayerWeights& w, std::uint32_t layer) {
  const std::uint32_t n = spec_.layer_input_dim;
  const Product input = {&w.layer_input, {}, buffers_.layer_input};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kGateUp, buffers_.embedded, {&input, 1},
                               {.activation = {},
                                .scale = 1.0F / std::sqrt(static_cast<float>(spec_.hidden)),
                                .add_to = {}}));
  norm(buffers_.layer_input, buffers_.layer_input, w.layer_input_norm, {});
  backend_.add_columns({buffers_.layer_input, 0}, {buffers_.layer_tables, layer * n}, n);
  layer_scales_.assign(counts_.n_rows, static_cast<float>(1.0 / std::numbers::sqrt2));
  backend_.scale_rows(buffers_.layer_input, layer_scales_);
  const Product gate = {&w.layer_input_gate, {}, buffers_.layer_gate};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kGateUp, buffers_.hidden, {&gate, 1},
                               {.activation = gate_up_epilogue().activation, .add_to = {}}));
  backend_.multiply({buffers_.layer_gate, 0}, {buffers_.layer_input, 0}, n);
  if (!spec_.has_streams()) {
    return add_product(pass, OperatorKind::kDown, buffers_.layer_gate, w.layer_input_out, {},
                       w.layer_input_post_norm);
  }
  const Product out = {&w.layer_input_out, {}, buffers_.projected};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kDown, buffers_.layer_gate, {&out, 1}, {}));
  norm(buffers_.projected, buffers_.projected, w.layer_input_post_norm, {});
  for (std::uint32_t i = 1; i < spec_.n_streams; ++i) {
    backend_.add_columns({buffers_.streams, i * spec_.hidden}, {buffers_.projected, 0},
                         spec_.hidden);
  }
  return ok_status();
}

}  // namespace qsf
