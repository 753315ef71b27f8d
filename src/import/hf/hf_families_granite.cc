// SPDX-License-Identifier: MIT
//
// Granite: LLaMA with four multipliers.

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

// Granite 4 without layers of states and without experts.

namespace {

constexpr std::uint32_t kMaxGraniteFfn = 1U << 24;

Status refuse_layers_with_states(const ConfigFields& fields, std::uint32_t n_layers) {
  const char* key = "layer_types";
  const JsonValue* types = fields.find(key);
  if (types == nullptr || !types->is_array() || types->size() != n_layers) {
    return corrupt("%s: expected a list of %u, one a layer", key, n_layers);
  }
  for (const JsonValue& type : types->elements()) {
    if (type.text() == "attention" || type.text() == "full_attention") continue;
    return unsupported("%s: %s is not supported, expected attention", key, type.shown().c_str());
  }
  return ok_status();
}

}  // namespace

Status parse_granite4(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "granite";
  config.tensor_table = "granite4";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {}, spec));
  QSF_RETURN_IF_ERROR(refuse_layers_with_states(fields, spec.n_layers));
  const std::uint32_t experts = fields.u32_or("num_local_experts", 8, 0, 1U << 16);
  spec.ffn = fields.u32_or("shared_intermediate_size", 1024, 1, kMaxGraniteFfn);
  const std::string positions = fields.text("position_embedding_type", "");
  QSF_RETURN_IF_ERROR(fields.status());
  if (experts != 0) {
    return unsupported("num_local_experts: %u are not supported in this family, expected 0",
                       experts);
  }
  if (positions != "rope") {
    spec.layer_rope.assign(spec.n_layers, static_cast<std::uint32_t>(LayerRope::kNone));
  }
  return parse_granite_scales(fields, config);
}

}  // namespace qsf
