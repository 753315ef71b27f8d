// SPDX-License-Identifier: MIT
//
// Layers of several residual streams. A layer computes the first alone; the others are predicted
// before it, from all of them, and corrected behind it by what the first one's prediction lacked.
// Based on: AltUp (Baykal et al., "Alternating updates for efficient transformers", 2023) and
// LAuReL (Menghani et al., "LAuReL: Learned augmented residual layer", 2024) as Gemma 3n has them.

#include <array>
#include <numbers>

#include "model/decoder.h"

namespace qsf {

// Copies one stream: columns from `first` on to those from `to_first` on.
void Decoder::copy_stream(Buffer from, std::uint32_t first, Buffer to, std::uint32_t to_first) {
  backend_.copy_parts({from, first, spec_.hidden}, {to, to_first, spec_.hidden}, 1, spec_.hidden);
}

// Stream 0 is the embedded row; the others are products of it, as long as it is.
Status Decoder::expand_streams(const Pass& pass) {
  const LayerWeights& w = weights_.layers.front();
  copy_stream(buffers_.hidden, 0, buffers_.streams, 0);
  for (std::uint32_t i = 1; i < spec_.n_streams; ++i) {
    const Product product = {&w.stream_in[i - 1], {}, buffers_.projected};
    QSF_RETURN_IF_ERROR(
        multiply(pass, OperatorKind::kGateUp, buffers_.embedded, {&product, 1}, {}));
    backend_.match_length(buffers_.projected, {buffers_.hidden, 0}, spec_.hidden);
    copy_stream(buffers_.projected, 0, buffers_.streams, i * spec_.hidden);
  }
  return ok_status();
}

// The streams are predicted; with a the first and n = norm(a),
//   b = (a + norm(attention(n)) + n + laurel(n)) / sqrt(2);  y = b + norm(ffn(norm(b)))
// corrects all of them. `hidden` then is the first one, scaled.
Status Decoder::run_stream_layer(const Pass& pass, std::uint32_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  StreamArgs streams = {.streams = buffers_.streams,
                        .normed = buffers_.normed,
                        .active = buffers_.hidden,
                        .n_streams = spec_.n_streams,
                        .n_cols = spec_.hidden,
                        .router = w.stream_router,
                        .factors = w.stream_predict,
                        .scale = w.stream_scale};
  norm(buffers_.streams, buffers_.normed, w.router_norm, {});
  backend_.predict_streams(streams);
  copy_stream(buffers_.streams, 0, buffers_.hidden, 0);
  norm(buffers_.hidden, buffers_.normed, w.attn_norm, {});
  QSF_RETURN_IF_ERROR(attention(pass, w, layer, buffers_.normed));
  QSF_RETURN_IF_ERROR(add_laurel(pass, w));
  norm(buffers_.hidden, buffers_.normed, w.ffn_norm, {});
  QSF_RETURN_IF_ERROR(spec_.cuts_gates(layer) ? run_cut_ffn(pass, w, layer)
                                              : ffn(pass, w, buffers_.normed));
  norm(buffers_.hidden, buffers_.normed, w.router_norm, {});
  streams.factors = w.stream_correct;
  backend_.correct_streams(streams);
  return ok_status();
}

// hidden = (hidden + n + norm(Wright Wleft n)) / sqrt(2) with n = normed
Status Decoder::add_laurel(const Pass& pass, const LayerWeights& w) {
  const Product left = {&w.laurel_left, {}, buffers_.laurel};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kGateUp, buffers_.normed, {&left, 1}, {}));
  const Product right = {&w.laurel_right, {}, buffers_.projected};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kDown, buffers_.laurel, {&right, 1}, {}));
  norm(buffers_.projected, buffers_.projected, w.laurel_norm, {});
  backend_.add(buffers_.hidden, buffers_.projected);
  backend_.add(buffers_.hidden, buffers_.normed);
  layer_scales_.assign(counts_.n_rows, static_cast<float>(1.0 / std::numbers::sqrt2));
  backend_.scale_rows(buffers_.hidden, layer_scales_);
  return ok_status();
}

// As ffn, with gates cut before the activation.
Status Decoder::run_cut_ffn(const Pass& pass, const LayerWeights& w, std::uint32_t layer) {
  const std::array<Product, 2> gate_up = {
      {{&w.gate, w.gate_bias, buffers_.gate}, {&w.up, w.up_bias, buffers_.up}}};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kGateUp, buffers_.normed, gate_up, {}));
  const std::uint32_t n = spec_.ffn_of(layer);
  backend_.cut(buffers_.gate, n, spec_.ffn_cutoff);
  backend_.gate({buffers_.gate, 0}, {buffers_.up, 0}, n, *gate_up_epilogue().activation);
  return add_product(pass, OperatorKind::kDown, buffers_.gate, w.down, w.down_bias,
                     w.ffn_post_norm);
}

// hidden = the mean of the first stream and products of the others, as long as the first is
Status Decoder::merge_streams(const Pass& pass) {
  const LayerWeights& w = weights_.layers.back();
  copy_stream(buffers_.streams, 0, buffers_.hidden, 0);
  for (std::uint32_t i = 1; i < spec_.n_streams; ++i) {
    copy_stream(buffers_.streams, i * spec_.hidden, buffers_.normed, 0);
    const Product product = {&w.stream_out[i - 1], {}, buffers_.projected};
    QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kDown, buffers_.normed, {&product, 1}, {}));
    backend_.match_length(buffers_.projected, {buffers_.streams, 0}, spec_.hidden);
    backend_.add(buffers_.hidden, buffers_.projected);
  }
  layer_scales_.assign(counts_.n_rows, 1.0F / static_cast<float>(spec_.n_streams));
  backend_.scale_rows(buffers_.hidden, layer_scales_);
  return ok_status();
}

}  // namespace qsf
