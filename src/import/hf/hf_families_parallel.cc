// SPDX-License-Identifier: MIT

#include "import/hf/hf_families.h"

namespace qsf {

// Phi 1 to 2 and StableLM: LayerNorm with a bias, RoPE on the first part of each head. A Phi layer
// (and a StableLM layer with use_parallel_residual) gives attention and FFN the same normalised
// input.

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

// Command-R: LayerNorm without a bias, one for both parts of a layer, which have gates with SiLU.
// Logits are scaled. RoPE rotates neighbours; the rows are reordered (hf_model.cc).

namespace {

Status parse_cohere_shared(ConfigFields& fields, float rope_theta, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.norm = NormType::kLayerNorm,
                                     .epsilon_key = "layer_norm_eps",
                                     .epsilon = 1e-5F,
                                     .tied_head = true,
                                     .rope_theta = rope_theta},
                                    spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  spec.parallel_block = true;
  spec.logit_scale = fields.positive("logit_scale", 0.0625F);
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  return fields.status();
}

}  // namespace

Status parse_cohere(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "command-r";
  QSF_RETURN_IF_ERROR(parse_cohere_shared(fields, 500000.0F, config));
  config.head_norms = fields.boolean("use_qk_norm", false);
  // max_position_embeddings of published files is a sixteenth of what the model was trained with.
  spec.max_positions = fields.u32_or("model_max_length", spec.max_positions, 1, 1U << 24);
  return fields.status();
}

// Layers with a window rotate, the others do not.
Status parse_cohere2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "cohere2";
  QSF_RETURN_IF_ERROR(parse_cohere_shared(fields, 10000.0F, config));
  QSF_RETURN_IF_ERROR(refuse(fields, "use_qk_norm", true));
  for (const char* key : {"use_parallel_block", "use_gated_activation"}) {
    QSF_RETURN_IF_ERROR(refuse(fields, key, false));
  }
  const std::uint32_t window = fields.u32_or("sliding_window", 4096, 1, 1U << 30);
  const std::uint32_t every = fields.u32_or("sliding_window_pattern", 4, 1, 4096);
  QSF_RETURN_IF_ERROR(fields.status());
  if (fields.is_null("sliding_window")) return unsupported("sliding_window: null is not supported");
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, local_layers(fields, spec.n_layers, every));
  set_local_windows(local, window, spec);
  for (const bool rotates : local) {
    spec.layer_rope.push_back(
        static_cast<std::uint32_t>(rotates ? LayerRope::kMain : LayerRope::kNone));
  }
  return ok_status();
}

}  // namespace qsf
