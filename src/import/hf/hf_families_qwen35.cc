// SPDX-License-Identifier: MIT
//
// Qwen 3.5 and Qwen3-Next: most layers have a gated delta rule in place of attention, which is
// gated too.

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMostDeltaHeads = 1024;
constexpr std::uint32_t kMostDeltaColumns = 1024;

Status set_delta_mixers(ConfigFields& fields, ModelSpec& spec) {
  if (const JsonValue* types = fields.find("layer_types"); types != nullptr) {
    QSF_RETURN_IF_ERROR(set_mixers(*types, "linear_attention", LayerMixer::kDeltaNet, spec));
  } else {
    const std::uint32_t every = fields.u32_or("full_attention_interval", 4, 1, 4096);
    QSF_RETURN_IF_ERROR(fields.status());
    for (std::uint32_t layer = 1; layer <= spec.n_layers; ++layer) {
      const bool attends = layer % every == 0;
      const LayerMixer mixer = attends ? LayerMixer::kAttention : LayerMixer::kDeltaNet;
      spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
    }
  }
  if (!spec.has_state()) spec.layer_mixers.clear();
  if (spec.n_attention_layers() != 0) return ok_status();
  return unsupported("layer_types: no layer is full_attention, which is not supported");
}

// Heads of values are called so, groups heads of keys.
Status parse_delta_rule(ConfigFields& fields, ModelSpec& spec) {
  spec.conv_taps = fields.u32_or("linear_conv_kernel_dim", 4, 2, 16);
  spec.mixer_heads = fields.u32_or("linear_num_value_heads", 32, 1, kMostDeltaHeads);
  spec.mixer_head_dim = fields.u32_or("linear_value_head_dim", 128, 1, kMostDeltaColumns);
  spec.mixer_state = fields.u32_or("linear_key_head_dim", 128, 1, kMostDeltaColumns);
  spec.mixer_groups = fields.u32_or("linear_num_key_heads", 16, 1, kMostDeltaHeads);
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.mixer_heads % spec.mixer_groups == 0) return ok_status();
  return corrupt("linear_num_value_heads: %u is not a multiple of linear_num_key_heads, %u",
                 spec.mixer_heads, spec.mixer_groups);
}

struct Qwen35Defaults {
  const char* ffn_key = "intermediate_size";
  std::uint32_t n_kv_heads = 2;
};

Status parse_common(ConfigFields& fields, const Qwen35Defaults& defaults, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.n_heads = 16,
                                     .n_kv_heads = defaults.n_kv_heads,
                                     .head_dim = 256,
                                     .partial_rotary = 0.25,
                                     .ffn_key = defaults.ffn_key},
                                    spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "attention_bias", true));
  QSF_RETURN_IF_ERROR(refuse(fields, "attn_output_gate", false));
  QSF_RETURN_IF_ERROR(set_delta_mixers(fields, spec));
  return spec.has_state() ? parse_delta_rule(fields, spec) : ok_status();
}

Status parse_shared_expert(ConfigFields& fields, ModelSpec& spec) {
  spec.shared_ffn = fields.u32_or("shared_expert_intermediate_size", 512, 1, 1U << 24);
  return fields.status();
}

}  // namespace

Status parse_qwen35(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "qwen35";
  return parse_common(fields, {.n_kv_heads = 4}, config.spec);
}

// There is no dense FFN.
Status parse_qwen35moe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "qwen35moe";
  QSF_RETURN_IF_ERROR(parse_common(fields, {.ffn_key = "moe_intermediate_size"}, spec));
  QSF_RETURN_IF_ERROR(parse_experts(
      fields, {.count = 256, .used = 8, .ffn_key = "moe_intermediate_size", .ffn = 512}, spec));
  spec.expert_renormalised = true;
  return parse_shared_expert(fields, spec);
}

Status parse_qwen3next(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "qwen3next";
  QSF_RETURN_IF_ERROR(parse_common(fields, {}, spec));
  QSF_RETURN_IF_ERROR(parse_experts(
      fields, {.count = 512, .used = 10, .ffn_key = "moe_intermediate_size", .ffn = 512}, spec));
  spec.expert_renormalised = fields.boolean("norm_topk_prob", true);
  QSF_RETURN_IF_ERROR(parse_sparse_layers(fields, spec));
  return parse_shared_expert(fields, spec);
}

}  // namespace qsf
