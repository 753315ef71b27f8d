// SPDX-License-Identifier: MIT
//
// Layers with a state in place of attention.

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
  backend_.convolve({.layer = places_[layer],
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

}  // namespace qsf
