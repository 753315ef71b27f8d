// SPDX-License-Identifier: MIT
//
// Mixtures of experts: relatives of LLaMA whose FFN is a router and many small FFNs.

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMaxExperts = 1024;  // that check_supported() takes
constexpr std::uint32_t kMaxExpertWindow = 1U << 30;

struct ExpertDefaults {
  const char* count_key = "num_experts";
  std::uint32_t count = 0;
  std::uint32_t used = 0;
  const char* ffn_key = "intermediate_size";
  std::uint32_t ffn = 0;  // 0: the key is required
};

Status parse_experts(ConfigFields& fields, const ExpertDefaults& defaults, ModelSpec& spec) {
  spec.n_experts = fields.u32_or(defaults.count_key, defaults.count, 2, kMaxExperts);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32_or("num_experts_per_tok", defaults.used, 1, spec.n_experts);
  spec.expert_ffn = defaults.ffn == 0 ? fields.u32(defaults.ffn_key, 1, 1U << 24)
                                      : fields.u32_or(defaults.ffn_key, defaults.ffn, 1, 1U << 24);
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.n_experts_used <= spec.n_experts) return ok_status();
  return corrupt("num_experts_per_tok: missing, and the default, %u, is more than the %u experts",
                 spec.n_experts_used, spec.n_experts);
}

}  // namespace

Status parse_mixtral(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "mixtral";
  QSF_RETURN_IF_ERROR(
      parse_decoder(fields, {.epsilon = 1e-5F, .n_kv_heads = 8, .rope_theta = 1000000.0F}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  QSF_RETURN_IF_ERROR(
      parse_experts(fields, {.count_key = "num_local_experts", .count = 8, .used = 2}, spec));
  spec.expert_renormalised = true;
  const std::uint32_t window = fields.u32_or("sliding_window", 0, 1, kMaxExpertWindow);
  if (window != 0) spec.sliding_window = {window};
  return fields.status();
}

Status parse_qwen3moe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "qwen3moe";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {.n_kv_heads = 4}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  QSF_RETURN_IF_ERROR(parse_experts(
      fields, {.count = 128, .used = 8, .ffn_key = "moe_intermediate_size", .ffn = 768}, spec));
  spec.expert_renormalised = fields.boolean("norm_topk_prob", false);
  const std::uint32_t step = fields.u32_or("decoder_sparse_step", 1, 1, 4096);
  const JsonValue* dense = fields.find("mlp_only_layers");
  QSF_RETURN_IF_ERROR(fields.status());
  if (step != 1 || (dense != nullptr && dense->size() != 0)) {
    return unsupported(
        "decoder_sparse_step or mlp_only_layers: layers without experts are not supported");
  }
  // Unlike in dense Qwens every layer has the window; max_window_layers has no effect.
  if (!fields.boolean("use_sliding_window", false) || fields.is_null("sliding_window")) {
    return fields.status();
  }
  spec.sliding_window = {fields.u32_or("sliding_window", 4096, 1, kMaxExpertWindow)};
  return fields.status();
}

Status parse_olmoe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "olmoe";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {.epsilon = 1e-5F}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  QSF_RETURN_IF_ERROR(parse_experts(fields, {.count = 64, .used = 8}, spec));
  spec.expert_renormalised = fields.boolean("norm_topk_prob", false);
  QSF_RETURN_IF_ERROR(fields.status());
  if (fields.find("clip_qkv") == nullptr) return ok_status();
  return unsupported("clip_qkv: clipped queries, keys and values are not supported");
}

// The softmax over the scores of the chosen experts alone has the sum 1.
Status parse_granitemoe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "granitemoe";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {}, spec));
  QSF_RETURN_IF_ERROR(
      parse_experts(fields, {.count_key = "num_local_experts", .count = 8, .used = 2}, spec));
  spec.expert_renormalised = true;
  return parse_granite_scales(fields, config);
}

}  // namespace qsf
