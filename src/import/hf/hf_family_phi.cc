// SPDX-License-Identifier: MIT
//
// Phi 1 to 2 and StableLM: LayerNorm with a bias, RoPE on the first part of each head. A Phi layer
// (and a StableLM layer that says so) gives attention and FFN the same normalised input.

#include "import/hf/hf_families.h"

namespace qsf {

Status parse_phi2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "phi2";
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.norm = NormType::kLayerNorm,
                                     .epsilon_key = "layer_norm_eps",
                                     .epsilon = 1e-5F,
                                     .gated_ffn = false,
                                     .partial_rotary = 0.5},
                                    spec));
  spec.parallel_block = true;
  config.qkv_bias = true;
  config.attn_out_bias = true;
  config.ffn_bias = true;
  QSF_RETURN_IF_ERROR(parse_plain_activation(fields, "hidden_act", "gelu_new", spec));
  return refuse(fields, "qk_layernorm", true);
}

Status parse_stablelm(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "stablelm";
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.norm = NormType::kLayerNorm,
                                     .epsilon_key = "layer_norm_eps",
                                     .epsilon = 1e-5F,
                                     .n_kv_heads = 32,
                                     .partial_rotary = 0.25},
                                    spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  spec.parallel_block = fields.boolean("use_parallel_residual", false);
  config.qkv_bias = fields.boolean("use_qkv_bias", false);
  return refuse(fields, "qk_layernorm", true);
}

}  // namespace qsf
