// SPDX-License-Identifier: MIT
//
// Mixtures of experts: relatives of LLaMA whose FFN is a router and many small FFNs.

#include <algorithm>
#include <vector>

#include "base/portable_math.h"
#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMaxExperts = 1024;  // that check_supported() takes
constexpr std::uint32_t kMaxExpertWindow = 1U << 30;

}  // namespace

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

Status parse_sparse_layers(ConfigFields& fields, ModelSpec& spec) {
  const std::uint32_t step = fields.u32_or("decoder_sparse_step", 1, 1, 4096);
  const JsonValue* dense = fields.find("mlp_only_layers");
  QSF_RETURN_IF_ERROR(fields.status());
  std::vector<std::uint32_t> here(spec.n_layers);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    here[layer] = (layer + 1) % step == 0 ? 1 : 0;
  }
  if (dense != nullptr) {
    if (!dense->is_array()) return corrupt("mlp_only_layers: expected a list of layers");
    for (const JsonValue& value : dense->elements()) {
      const auto layer = value.unsigned_integer();
      if (!layer) return corrupt("mlp_only_layers: %s, expected a layer", value.shown().c_str());
      if (*layer < spec.n_layers) here[*layer] = 0;
    }
  }
  if (std::find(here.begin(), here.end(), 1U) == here.end()) {
    return unsupported("decoder_sparse_step %u and mlp_only_layers leave none of %u layers experts",
                       step, spec.n_layers);
  }
  if (std::find(here.begin(), here.end(), 0U) != here.end()) spec.expert_layers = std::move(here);
  return ok_status();
}

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

// Unlike in dense Qwens the window is that of every second layer among the first ones.
Status parse_qwen2moe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "qwen2moe";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {.n_heads = 16, .n_kv_heads = 16}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  config.qkv_bias = fields.boolean("qkv_bias", true);
  QSF_RETURN_IF_ERROR(parse_experts(
      fields, {.count = 60, .used = 4, .ffn_key = "moe_intermediate_size", .ffn = 1408}, spec));
  spec.expert_renormalised = fields.boolean("norm_topk_prob", false);
  spec.shared_ffn = fields.u32_or("shared_expert_intermediate_size", 5632, 1, 1U << 24);
  QSF_RETURN_IF_ERROR(parse_sparse_layers(fields, spec));
  const bool windowed = fields.boolean("use_sliding_window", false);
  if (!windowed || fields.is_null("sliding_window")) return fields.status();
  const std::uint32_t window = fields.u32_or("sliding_window", 4096, 1, kMaxExpertWindow);
  const std::uint32_t end = fields.u32_or("max_window_layers", 28, 0, 4096);
  QSF_RETURN_IF_ERROR(fields.status());
  if (fields.find("layer_types") != nullptr) return set_windows(fields, window, spec);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    spec.sliding_window.push_back(layer % 2 == 0 && layer < end ? window : 0);
  }
  return ok_status();
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
  QSF_RETURN_IF_ERROR(parse_sparse_layers(fields, spec));
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
  return parse_qkv_clip(fields, spec);
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

namespace {

// The yarn of a configuration that says nothing of RoPE.
RopeSpec gpt_oss_rope(float theta) {
  RopeSpec rope;
  rope.theta = theta;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 32.0F;
  rope.original_context = 4096;
  rope.truncate = false;
  rope.attention_factor = static_cast<float>(0.1 * portable::log(32.0) + 1.0);
  return rope;
}

Status expect_number(ConfigFields& fields, const char* key, float expected) {
  const float number = fields.positive(key, expected);
  QSF_RETURN_IF_ERROR(fields.status());
  if (number == expected) return ok_status();
  return unsupported("%s: %g, expected %g", key, static_cast<double>(number),
                     static_cast<double>(expected));
}

}  // namespace

// gpt-oss: sinks in attention, a window in every other layer, biases everywhere, and a clamped
// gate.
Status parse_gpt_oss(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "gpt-oss";
  QSF_RETURN_IF_ERROR(parse_decoder(
      fields, {.epsilon = 1e-5F, .n_kv_heads = 8, .head_dim = 64, .rope_theta = 150000.0F}, spec));
  if (rope_object(fields) == nullptr) spec.rope = gpt_oss_rope(spec.rope.theta);
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  spec.activation = Activation::kSwishClamped;
  QSF_RETURN_IF_ERROR(expect_number(fields, "swiglu_limit", 7.0F));
  QSF_RETURN_IF_ERROR(expect_number(fields, "swiglu_alpha", 1.702F));
  config.qkv_bias = fields.boolean("attention_bias", true);
  config.attn_out_bias = config.qkv_bias;
  QSF_RETURN_IF_ERROR(
      parse_experts(fields, {.count_key = "num_local_experts", .count = 128, .used = 4}, spec));
  spec.expert_renormalised = true;
  const std::uint32_t window = fields.u32_or("sliding_window", 128, 1, kMaxExpertWindow);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, local_layers(fields, spec.n_layers, 2));
  if (!fields.is_null("sliding_window")) set_local_windows(local, window, spec);
  return fields.status();
}

// Beside the experts a shared one of equal weight.
Status parse_granitemoeshared(ConfigFields& fields, HfConfig& config) {
  config.spec.shared_ffn = fields.u32_or("shared_intermediate_size", 0, 0, 1U << 24);
  QSF_RETURN_IF_ERROR(fields.status());
  return parse_granitemoe(fields, config);
}

Status parse_glm4moe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "glm4moe";
  QSF_RETURN_IF_ERROR(parse_decoder(
      fields, {.epsilon = 1e-5F, .n_heads = 96, .n_kv_heads = 8, .partial_rotary = 0.5}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.head_norms = fields.boolean("use_qk_norm", false);
  const char* count = fields.has("num_local_experts") ? "num_local_experts" : "n_routed_experts";
  QSF_RETURN_IF_ERROR(parse_experts(fields,
                                    {.count_key = count,
                                     .count = 128,
                                     .used = 8,
                                     .ffn_key = "moe_intermediate_size",
                                     .ffn = 1408},
                                    spec));
  const std::uint32_t n_shared = fields.u32_or("n_shared_experts", 1, 1, 64);
  const std::uint32_t n_dense = fields.u32_or("first_k_dense_replace", 1, 0, spec.n_layers - 1);
  spec.expert_scale = fields.positive("routed_scaling_factor", 1.0F);
  spec.expert_groups = fields.u32_or("n_group", 1, 1, spec.n_experts);
  spec.expert_groups_used = fields.u32_or("topk_group", 1, 1, spec.n_experts);
  spec.expert_renormalised = fields.boolean("norm_topk_prob", true);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.expert_scoring = ExpertScoring::kSigmoid;
  if (spec.expert_renormalised) spec.expert_epsilon = 1e-20F;
  spec.shared_ffn = n_shared * spec.expert_ffn;
  if (n_dense == 0) return ok_status();
  spec.expert_layers.assign(spec.n_layers, 1);
  std::fill_n(spec.expert_layers.begin(), n_dense, 0);
  return ok_status();
}

namespace {

// The factors of cos and sin are given, not derived: one for each list of factors of frequencies.
Status parse_phimoe_scales(const ConfigFields& fields, RopeSpec& rope) {
  const JsonValue* object = rope_object(fields);
  if (object == nullptr || rope.scaling == RopeScaling::kNone) return ok_status();
  if (rope.scaling != RopeScaling::kLongrope) {
    return unsupported("rope_scaling: a scaling other than longrope is not supported for phimoe");
  }
  ConfigFields inner(*object);
  rope.attention_factor = inner.positive("long_mscale", std::nullopt);
  const float at_short = inner.positive("short_mscale", std::nullopt);
  if (at_short != rope.attention_factor) rope.short_attention_factor = at_short;
  return Status(inner.status()).with_context("rope_scaling");
}

}  // namespace

Status parse_phimoe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "phimoe";
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.norm = NormType::kLayerNorm,
                                     .epsilon = 1e-5F,
                                     .max_positions = 131072,
                                     .n_kv_heads = 8,
                                     .rope_theta = 1000000.0F},
                                    spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  QSF_RETURN_IF_ERROR(parse_phimoe_scales(fields, spec.rope));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  config.head_bias = fields.boolean("lm_head_bias", false);
  QSF_RETURN_IF_ERROR(
      parse_experts(fields, {.count_key = "num_local_experts", .count = 16, .used = 2}, spec));
  if (spec.n_experts_used != 2) {
    return unsupported("num_experts_per_tok: %u, expected the 2 that sparsemixer chooses",
                       spec.n_experts_used);
  }
  spec.expert_scoring = ExpertScoring::kSparsemixer;
  spec.expert_margin = fields.positive("router_jitter_noise", 0.01F);
  const std::uint32_t window = fields.u32_or("sliding_window", 0, 1, kMaxExpertWindow);
  if (window != 0) spec.sliding_window = {window};
  return fields.status();
}

}  // namespace qsf
