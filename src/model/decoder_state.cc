// SPDX-License-Identifier: MIT
//
// Layers with a state in place of attention, or beside it.

#include <array>

#include "model/decoder.h"

namespace qsf {

// hidden += Wout (C * conv(B * x)) with [B, C, x] = Win n and n = in
Status Decoder::short_conv(const Pass& pass, const LayerWeights& w, std::uint32_t layer,
                           Buffer in) {
  const Product parts = {&w.mixer_in, w.mixer_in_bias, buffers_.mixer_in};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kQkv, in, {&parts, 1}, {}));
  const std::uint32_t n = spec_.hidden;
  const BufferColumns gate = {buffers_.mixer_in, 0};
  const BufferColumns out_gate = {buffers_.mixer_in, n};
  const BufferColumns x = {buffers_.mixer_in, 2 * n};
  backend_.multiply(x, gate, n);
  backend_.convolve({.layer = state_places_[layer],
                     .in = x,
                     .out = buffers_.mixed,
                     .n_channels = n,
                     .n_taps = spec_.conv_taps,
                     .taps = w.conv_taps,
                     .bias = w.conv_bias});
  backend_.multiply({buffers_.mixed, 0}, out_gate, n);
  return add_product(pass, OperatorKind::kAttentionOut, buffers_.mixed, w.mixer_out,
                     w.mixer_out_bias, w.attn_post_norm);
}

// hidden += Wout norm(silu(z) * scan(x, B, C, t)) with [z, v, t] = Win n, n = in, and
// [x, B, C] = silu(conv(v)); the norm, where a model has it, is by group
Status Decoder::scan(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in) {
  const Product parts = {&w.mixer_in, w.mixer_in_bias, buffers_.mixer_in};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kQkv, in, {&parts, 1}, {}));
  const std::uint32_t n_inner = spec_.mixer_out();
  const std::uint32_t n_channels = spec_.conv_channels();
  backend_.convolve({.layer = state_places_[layer],
                     .in = {buffers_.mixer_in, n_inner},
                     .out = buffers_.convolved,
                     .n_channels = n_channels,
                     .n_taps = spec_.conv_taps,
                     .taps = w.conv_taps,
                     .bias = w.conv_bias,
                     .activation = ActivationKind::kSilu});
  backend_.scan({.layer = state_places_[layer],
                 .in = buffers_.convolved,
                 .time_step = {buffers_.mixer_in, n_inner + n_channels},
                 .out = buffers_.mixed,
                 .n_heads = spec_.mixer_heads,
                 .head_dim = spec_.mixer_head_dim,
                 .n_state = spec_.mixer_state,
                 .n_groups = spec_.mixer_groups,
                 .state_at = (spec_.conv_taps - 1) * n_channels,
                 .decay = w.scan_decay,
                 .bias = w.scan_bias,
                 .skip = w.scan_skip});
  backend_.gate({buffers_.mixer_in, 0}, {buffers_.mixed, 0}, n_inner, ActivationKind::kSilu);
  const bool normed = !w.scan_norm.empty();
  if (normed) {
    backend_.norm({.in = buffers_.mixer_in,
                   .out = buffers_.mixed,
                   .row_list = {},
                   .n_rows = counts_.n_rows,
                   .n_cols = n_inner / spec_.mixer_groups,
                   .n_parts = spec_.mixer_groups,
                   .kind = NormKind::kRmsNorm,
                   .epsilon = spec_.norm_epsilon,
                   .gain = w.scan_norm,
                   .bias = {}});
  }
  return add_product(pass, OperatorKind::kAttentionOut, normed ? buffers_.mixed : buffers_.mixer_in,
                     w.mixer_out, w.mixer_out_bias, w.attn_post_norm);
}

// hidden += Wout (norm(delta_rule(q, k, v, r, t)) * silu(z)) with z = Wgate n, r = Wrate n,
// t = Wstep n, n = in, and [q, k, v] = silu(conv(Win n)); the norm is by head
Status Decoder::delta_rule(const Pass& pass, const LayerWeights& w, std::uint32_t layer,
                           Buffer in) {
  const std::array<Product, 4> products = {{{&w.mixer_in, w.mixer_in_bias, buffers_.mixer_in},
                                            {&w.mixer_gate, {}, buffers_.gates},
                                            {&w.delta_rate, {}, buffers_.rates},
                                            {&w.delta_step, {}, buffers_.time_steps}}};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kQkv, in, products, {}));
  const std::uint32_t n_channels = spec_.conv_channels();
  backend_.convolve({.layer = state_places_[layer],
                     .in = {buffers_.mixer_in, 0},
                     .out = buffers_.convolved,
                     .n_channels = n_channels,
                     .n_taps = spec_.conv_taps,
                     .taps = w.conv_taps,
                     .bias = w.conv_bias,
                     .activation = ActivationKind::kSilu});
  backend_.delta_rule({.layer = state_places_[layer],
                       .in = buffers_.convolved,
                       .rate = buffers_.rates,
                       .time_step = buffers_.time_steps,
                       .out = buffers_.mixed,
                       .n_heads = spec_.mixer_heads,
                       .head_dim = spec_.mixer_head_dim,
                       .n_state = spec_.mixer_state,
                       .n_groups = spec_.mixer_groups,
                       .heads_in_turn = spec_.mixer_heads_in_turn,
                       .state_at = (spec_.conv_taps - 1) * n_channels,
                       .decay = w.scan_decay,
                       .bias = w.scan_bias});
  backend_.norm({.in = buffers_.mixed,
                 .out = buffers_.mixed,
                 .row_list = {},
                 .n_rows = counts_.n_rows,
                 .n_cols = spec_.mixer_head_dim,
                 .n_parts = spec_.mixer_heads,
                 .kind = NormKind::kRmsNorm,
                 .epsilon = spec_.norm_epsilon,
                 .gain = w.delta_norm,
                 .bias = {}});
  backend_.gate({buffers_.gates, 0}, {buffers_.mixed, 0}, spec_.mixer_out(), ActivationKind::kSilu);
  return add_product(pass, OperatorKind::kAttentionOut, buffers_.gates, w.mixer_out,
                     w.mixer_out_bias, w.attn_post_norm);
}

}  // namespace qsf
