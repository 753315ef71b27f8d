// SPDX-License-Identifier: MIT
//
// The tensors of a model by role: the matrices of each section, norms and biases.
//
// Shapes are checked against the spec once, here.

#ifndef QSF_MODEL_WEIGHTS_H_
#define QSF_MODEL_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "format/qsf_reader.h"
#include "stream/weight_pager.h"

namespace qsf {

// A weight matrix [rows, cols] of a section.
struct MatrixRef {
  std::uint32_t section = 0;  // index in QsfReader::directories()
  std::uint32_t tensor = 0;   // index in the section's directory
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
};

struct ExpertWeights {
  MatrixRef gate, up, down;
  std::span<const float> gate_bias, up_bias, down_bias;
};

// One decoder layer. Spans are f32 and live as long as the pager. A tensor that the model does not
// have is empty, and the decoder skips its operator.
struct LayerWeights {
  MatrixRef q, k, v, o;
  MatrixRef attn_gate;                           // of what attention gives
  MatrixRef mixer_in, mixer_out;                 // in place of q, k, v, o: with a state
  MatrixRef mixer_gate, delta_rate, delta_step;  // of a delta rule
  // Of latent attention, beside q, k and o. The first where queries have a row of their own.
  MatrixRef latent_query, latent_keys, latent_values;
  std::span<const float> latent_query_norm, latent_norm;
  MatrixRef gate, up, down;  // gate with a gated FFN alone
  MatrixRef router;          // with experts instead of the FFN
  std::span<const float> router_correction;
  MatrixRef shared_gate, shared_up, shared_down;  // of the expert that takes every row
  std::span<const float> shared_weight;           // [hidden], where rows weigh that expert
  std::vector<ExpertWeights> experts;
  std::span<const float> attn_norm, attn_norm_bias;
  std::span<const float> ffn_norm, ffn_norm_bias;  // none in a parallel block
  std::span<const float> q_norm, k_norm;           // of every head [head_dim], or [q_dim], [kv_dim]
  std::span<const float> attn_sub_norm, ffn_sub_norm;  // [q_dim], [ffn]: before o and down
  std::span<const float> attn_post_norm,
      ffn_post_norm;  // of attention and FFN outputs, before the residual sum
  std::span<const float> q_bias, k_bias, v_bias, o_bias;
  std::span<const float> mixer_in_bias, mixer_out_bias;
  std::span<const float> conv_taps, conv_bias;  // [taps][channels], [channels]
  std::span<const float> scan_decay, scan_bias, scan_skip, scan_norm;  // [heads] each, [mixer_out]
  std::span<const float> delta_norm;                                   // [mixer_head_dim]
  std::span<const float> gate_bias, up_bias, down_bias;
  std::span<const float> router_bias;
  std::span<const float> attn_sinks;                         // [n_heads]
  MatrixRef layer_input, layer_input_gate, layer_input_out;  // of a token's input for the layer
  std::span<const float> layer_input_norm, layer_input_post_norm;
  std::span<const float> layer_scale;  // [1]
  // With several residual streams: of each but the first, in the first layer and in the last.
  std::vector<MatrixRef> stream_in, stream_out;
  std::span<const float> stream_router, stream_predict, stream_correct, stream_scale;
  MatrixRef laurel_left, laurel_right;
  std::span<const float> laurel_norm;
  // Where experts stand beside an FFN: before the router and the experts, behind FFN and experts.
  std::span<const float> router_norm, expert_norm, dense_post_norm, expert_post_norm;
  std::span<const float> expert_scales;  // [experts]
  // Of a block for multi-token prediction, in its first layer.
  MatrixRef mtp_projection;
  std::span<const float> mtp_token_norm, mtp_hidden_norm;
};

// Checks from the directories alone that a file holds what its architecture needs.
// Fails  kCorrupt: a tensor is missing or of another shape; kUnsupported: an extra tensor, or a
//        spec that this version cannot run
Status check_tensors(const QsfReader& reader);

struct ModelWeights {
  MatrixRef token_embedding;
  MatrixRef layer_embedding;       // with inputs of each layer alone
  MatrixRef dense_up, dense_down;  // of what is pooled, where the model has them
  MatrixRef position_embedding;    // with learned positions alone
  std::span<const float> embedding_norm, embedding_norm_bias;
  std::vector<LayerWeights> layers;
  std::span<const float> final_norm, final_norm_bias;
  MatrixRef head;  // the token embedding where the head is tied
  std::span<const float> head_bias;

  // Finds every tensor that the architecture needs. Requires  check_tensors(reader) is OK
  static ModelWeights bind(const QsfReader& reader, const WeightPager& pager);
};

}  // namespace qsf

#endif  // QSF_MODEL_WEIGHTS_H_
