// SPDX-License-Identifier: MIT
//
// Granite: LLaMA with four multipliers. In Granite 4 some layers may scan in place of attention.

#include <string>

#include "import/hf/hf_families.h"

namespace qsf {

// Granite 3 has four multipliers; attention_multiplier is the scale of scores itself.
Status parse_granite_scales(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  spec.embedding_scale = fields.positive("embedding_multiplier", 1.0F);
  spec.attention_scale = fields.positive("attention_multiplier", 1.0F);
  spec.residual_scale = fields.positive("residual_multiplier", 1.0F);
  spec.logit_scale = 1.0F / fields.positive("logits_scaling", 1.0F);
  return fields.status();
}

Status parse_granite(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "granite";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {}, config.spec));
  config.ffn_bias = fields.boolean("mlp_bias", false);
  return parse_granite_scales(fields, config);
}

namespace {

constexpr std::uint32_t kMaxGraniteFfn = 1U << 24;
constexpr std::uint32_t kMaxGraniteExperts = 1024;  // that check_supported() takes

// layer_types has two names for each kind, of older and newer versions of transformers. Without it
// all layers scan.
Status set_granite4_mixers(const ConfigFields& fields, ModelSpec& spec) {
  const char* key = "layer_types";
  const JsonValue* types = fields.find(key);
  if (types == nullptr || !types->is_array() || types->size() != spec.n_layers) {
    return corrupt("%s: expected a list of %u, one a layer", key, spec.n_layers);
  }
  for (const JsonValue& type : types->elements()) {
    const bool attends = type.text() == "attention" || type.text() == "full_attention";
    if (!attends && type.text() != "mamba" && type.text() != "linear_attention") {
      return unsupported("%s: %s is not supported, expected attention or mamba", key,
                         type.shown().c_str());
    }
    const LayerMixer mixer = attends ? LayerMixer::kAttention : LayerMixer::kMamba2;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
  }
  if (!spec.has_state()) spec.layer_mixers.clear();
  if (spec.n_attention_layers() != 0) return ok_status();
  return unsupported("%s: no layer is attention, which is not supported", key);
}

// The sizes of scans.
Status parse_mamba2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.mixer_heads = fields.u32_or("mamba_n_heads", 128, 1, 1024);
  spec.mixer_state = fields.u32_or("mamba_d_state", 256, 1, 1024);
  spec.conv_taps = fields.u32_or("mamba_d_conv", 4, 2, 16);
  const std::uint32_t inner = fields.u32_or("mamba_expand", 2, 1, 64) * spec.hidden;
  config.conv_bias = fields.boolean("mamba_conv_bias", true);
  config.mixer_bias = fields.boolean("mamba_proj_bias", false);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.mixer_groups = fields.u32_or("mamba_n_groups", 1, 1, spec.mixer_heads);
  spec.mixer_head_dim = inner / spec.mixer_heads;
  const JsonValue* width = fields.find("mamba_d_head");
  if (width != nullptr && width->text() != "auto") {
    spec.mixer_head_dim = fields.u32_or("mamba_d_head", 0, 1, 256);
  }
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.mixer_heads * spec.mixer_head_dim != inner) {
    return corrupt("mamba_n_heads: %u of %u columns each, expected %u columns together",
                   spec.mixer_heads, spec.mixer_head_dim, inner);
  }
  return refuse_time_step_limits(fields);
}

}  // namespace

// The FFN of a model without experts is what is the shared expert of others.
Status parse_granite4(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {}, spec));
  QSF_RETURN_IF_ERROR(set_granite4_mixers(fields, spec));
  if (spec.has_state()) QSF_RETURN_IF_ERROR(parse_mamba2(fields, config));
  spec.n_experts = fields.u32_or("num_local_experts", 8, 0, kMaxGraniteExperts);
  const std::uint32_t shared = fields.u32_or("shared_intermediate_size", 1024, 1, kMaxGraniteFfn);
  const std::string positions = fields.text("position_embedding_type", "");
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.n_experts != 0) {
    if (!spec.has_state()) {
      return unsupported("num_local_experts: %u are not supported where all layers attend",
                         spec.n_experts);
    }
    spec.architecture = "granitemoehybrid";
    spec.n_experts_used = fields.u32_or("num_experts_per_tok", 2, 1, spec.n_experts);
    spec.expert_ffn = spec.ffn;
    spec.shared_ffn = shared;
    spec.expert_renormalised = true;
  } else {
    spec.architecture = "granite";
    if (spec.has_state()) spec.architecture = "granitehybrid";
    if (!spec.has_state()) config.tensor_table = "granite4";
    spec.ffn = shared;
  }
  if (positions != "rope") {
    spec.layer_rope.assign(spec.n_layers, static_cast<std::uint32_t>(LayerRope::kNone));
  }
  return parse_granite_scales(fields, config);
}

}  // namespace qsf
