// SPDX-License-Identifier: MIT
//
// Latent attention: a row of the cache stands for the keys and values of all heads, which are
// products of it. A head's matrices are taken out of the sum over positions, so that heads attend
// to the rows themselves, as to one KV head whose values are its keys:
//
//   key_h = [rope(r); Wk_h c]       q_h . key_h = [rope(q_r); Wk_h^T q_c] . [rope(r); c]
//   value_h = Wv_h c                sum of p_j value_h,j = Wv_h (sum of p_j c_j)
//
// with the row [r; c] of a position, r rotated and c normed. Prompts take the same form as
// generated rows, so that a row has the same bits in both.
//
// Based on: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1.

#include <array>

#include "model/decoder.h"

namespace qsf {

// hidden += Wo v with v_h = Wv_h (attended_h's latent columns)
Status Decoder::latent_attention(const Pass& pass, const LayerWeights& w, std::uint32_t layer,
                                 Buffer in) {
  const std::uint32_t n_heads = spec_.n_heads;
  const std::uint32_t n_rope = spec_.rope.dims;
  const std::uint32_t n_latent = spec_.latent_dim;
  const std::uint32_t n_key = spec_.latent_key_dim;
  const bool own_row = spec_.latent_query_dim != 0;
  const Product query = {&w.q, {}, buffers_.head_queries};
  const std::array<Product, 2> rows = {
      {{own_row ? &w.latent_query : &w.q, {}, own_row ? buffers_.latent_query : query.out},
       {&w.k, {}, buffers_.k}}};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kQkv, in, rows, {}));
  norm_latent(buffers_.k, n_rope, w.latent_norm);
  if (own_row) {
    norm_latent(buffers_.latent_query, 0, w.latent_query_norm);
    QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kQkv, buffers_.latent_query, {&query, 1}, {}));
  }
  backend_.copy_parts({query.out, n_key, spec_.query_dim()}, {buffers_.q, 0, spec_.head_dim},
                      n_heads, n_rope);
  backend_.copy_parts({query.out, 0, spec_.query_dim()},
                      {buffers_.key_parts, 0, part_stride(n_key)}, n_heads, n_key);
  QSF_RETURN_IF_ERROR(multiply_parts(pass, OperatorKind::kQkv, buffers_.key_parts, w.latent_keys,
                                     buffers_.q,
                                     {.n_parts = n_heads,
                                      .n_rows = n_latent,
                                      .in_stride = part_stride(n_key),
                                      .out_first = n_rope,
                                      .out_stride = spec_.head_dim}));
  if (spec_.scales_queries(layer)) backend_.scale_rows(buffers_.q, query_scales_);
  rotate(0, spec_.n_kv_heads);
  if (ends_with_keys(pass, layer)) return store_keys(layer);
  attend(w, layer);
  backend_.copy_parts({buffers_.attended, n_rope, spec_.head_dim},
                      {buffers_.latent_parts, 0, part_stride(n_latent)}, n_heads, n_latent);
  QSF_RETURN_IF_ERROR(multiply_parts(pass, OperatorKind::kAttentionOut, buffers_.latent_parts,
                                     w.latent_values, buffers_.v,
                                     {.n_parts = n_heads,
                                      .n_rows = spec_.value_dim(),
                                      .in_stride = part_stride(n_latent),
                                      .out_first = 0,
                                      .out_stride = spec_.value_dim()}));
  return add_product(pass, OperatorKind::kAttentionOut, buffers_.v, w.o, {}, w.attn_post_norm);
}

Status Decoder::multiply_parts(const Pass& pass, OperatorKind kind, Buffer in,
                               const MatrixRef& matrix, Buffer out, const MatmulParts& parts) {
  const Product product = {&matrix, {}, out};
  return multiply_rows(pass, kind, in, {counts_, {}}, {&product, 1}, {}, parts);
}

// Normalises columns from `first_col` on in place, as many as there are gains.
void Decoder::norm_latent(Buffer x, std::uint32_t first_col, std::span<const float> gain) {
  backend_.norm({.in = x,
                 .out = x,
                 .row_list = {},
                 .n_rows = counts_.n_rows,
                 .n_cols = static_cast<std::uint32_t>(gain.size()),
                 .first_col = first_col,
                 .n_parts = 1,
                 .kind = NormKind::kRmsNorm,
                 .epsilon = spec_.latent_epsilon,
                 .gain = gain,
                 .bias = {}});
}

}  // namespace qsf
