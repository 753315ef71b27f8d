// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {

// Gemma 4: layers that see everything have heads of their own width and number, whose values may be
// the product of their keys, and a RoPE that turns some of their pairs; values are normalised.

namespace {

constexpr float kGlobalTheta = 1000000.0F;
constexpr float kLocalTheta = 10000.0F;
constexpr std::uint32_t kMostHeads = 1U << 16;

// Published files name what the layers that see everything have; transformers writes the sizes of
// each layer that differs.
Status parse_heads(ConfigFields& fields, const std::vector<bool>& local, bool keys_are_values,
                   ModelSpec& spec) {
  const KvHeads own = {.n_kv_heads = spec.n_kv_heads, .head_dim = spec.head_dim};
  KvHeads global = own;
  global.head_dim = fields.u32_or("global_head_dim", 512, 1, kMostHeads);
  const std::uint32_t n_global =
      fields.u32_or("num_global_key_value_heads", own.n_kv_heads, 1, kMostHeads);
  if (keys_are_values) global.n_kv_heads = n_global;
  std::vector<KvHeads> heads;
  for (const bool is_local : local) heads.push_back(is_local ? own : global);
  const JsonValue* by_layer = fields.find("per_layer_config");
  if (by_layer != nullptr) {
    if (!by_layer->is_object()) return corrupt("per_layer_config: expected an object");
    heads.assign(spec.n_layers, own);
    for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
      const JsonValue* of_layer = by_layer->find(std::to_string(layer));
      if (of_layer == nullptr) continue;
      if (!of_layer->is_object()) return corrupt("per_layer_config: %u: expected an object", layer);
      ConfigFields inner(*of_layer);
      heads[layer] = {
          .n_kv_heads = inner.u32_or("num_key_value_heads", own.n_kv_heads, 1, kMostHeads),
          .head_dim = inner.u32_or("head_dim", own.head_dim, 1, kMostHeads)};
      QSF_RETURN_IF_ERROR(Status(inner.status()).with_context("per_layer_config"));
    }
  }
  set_layer_heads(std::move(heads), spec);
  return fields.status();
}

// The RoPE of layers that see everything.
Status parse_global_rope(ConfigFields& fields, std::uint32_t head_dim, RopeSpec& rope) {
  constexpr double kShare = 0.25;
  rope.theta = kGlobalTheta;
  double share = kShare;
  std::string type = "proportional";
  const JsonValue* all = fields.find("rope_parameters");
  if (all != nullptr) {
    const JsonValue* full = all->is_object() ? all->find("full_attention") : nullptr;
    if (full == nullptr || !full->is_object()) {
      return corrupt("rope_parameters: expected objects full_attention and sliding_attention");
    }
    ConfigFields inner(*full);
    rope.theta = inner.positive("rope_theta", std::nullopt);
    type = inner.text("rope_type", "default");
    share = inner.fraction("partial_rotary_factor", 1.0);
    rope.factor = inner.positive("factor", 1.0F);
    QSF_RETURN_IF_ERROR(Status(inner.status()).with_context("rope_parameters"));
  }
  if (type != "proportional") {
    return unsupported("rope_parameters: rope_type: \"%s\" is not supported; expected proportional",
                       type.substr(0, 64).c_str());
  }
  if (rope.factor != 1.0F) rope.scaling = RopeScaling::kLinear;
  const std::uint32_t n_pairs = head_dim / 2;
  const auto n_turning = static_cast<std::uint32_t>(share * head_dim) / 2;
  if (n_turning == 0) {
    return corrupt("partial_rotary_factor: %g of a head of %u columns turns none", share, head_dim);
  }
  rope.n_turning = n_turning == n_pairs ? 0 : n_turning;
  return ok_status();
}

// The smaller siblings: a second embedding has an input for each layer, and the last layers take
// the keys and values of an earlier one and may have a wider FFN.
Status parse_smaller(ConfigFields& fields, ModelSpec& spec) {
  const std::uint32_t n_sharing = fields.u32_or("num_kv_shared_layers", 0, 0, spec.n_layers - 1);
  const bool double_wide = fields.boolean("use_double_wide_mlp", false);
  spec.layer_input_dim = fields.u32_or("hidden_size_per_layer_input", 256, 0, 1U << 16);
  const std::uint32_t n_rows = fields.u32_or("vocab_size_per_layer_input", 262144, 1, 1U << 24);
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.layer_input_dim != 0 && n_rows != spec.n_vocab) {
    return unsupported("vocab_size_per_layer_input: %u is not supported, expected vocab_size, %u",
                       n_rows, spec.n_vocab);
  }
  if (spec.n_experts != 0 && (spec.layer_input_dim != 0 || n_sharing != 0)) {
    return unsupported(
        "hidden_size_per_layer_input: %u and num_kv_shared_layers: %u are not supported with "
        "experts, expected 0",
        spec.layer_input_dim, n_sharing);
  }
  if (double_wide && n_sharing != 0) {
    std::vector<std::uint32_t> ffn(spec.n_layers, spec.ffn);
    std::fill(ffn.end() - n_sharing, ffn.end(), 2 * spec.ffn);
    set_layer_ffn(std::move(ffn), spec);
  }
  return Status(share_kv(n_sharing, spec)).with_context("num_kv_shared_layers");
}

// Experts beside the FFN of every layer.
Status parse_experts(ConfigFields& fields, ModelSpec& spec) {
  if (!fields.boolean("enable_moe_block", false)) return fields.status();
  spec.architecture = "gemma4moe";
  spec.experts_beside_ffn = true;
  spec.expert_renormalised = true;
  spec.n_experts = fields.u32("num_experts", 2, 1U << 16);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32("top_k_experts", 1, spec.n_experts);
  spec.expert_ffn = fields.u32("moe_intermediate_size", 1, 1U << 24);
  return fields.status();
}

}  // namespace

Status parse_gemma4(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "gemma4";
  QSF_RETURN_IF_ERROR(parse_decoder_sizes(
      fields,
      {.tied_head = true, .n_heads = 8, .max_positions = 131072, .n_kv_heads = 4, .head_dim = 256},
      spec));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F;
  spec.value_norms = true;
  const std::string activation = fields.text("hidden_activation", "gelu_pytorch_tanh");
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation("hidden_activation", activation));
  QSF_RETURN_IF_ERROR(parse_experts(fields, spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "attention_bias", true));
  if (fields.find("final_logit_softcapping") != nullptr) {
    spec.logit_soft_cap = fields.positive("final_logit_softcapping", std::nullopt);
  }
  const std::uint32_t window = fields.u32_or("sliding_window", 512, 1, 1U << 30);
  const bool keys_are_values = fields.boolean("attention_k_eq_v", false);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(std::vector<bool> local, local_layers(fields, spec.n_layers, 6));
  local.back() = false;  // whatever the file says
  set_local_windows(local, window, spec);
  for (const bool is_local : local) {
    if (keys_are_values) spec.key_value_layers.push_back(is_local ? 0 : 1);
  }
  QSF_RETURN_IF_ERROR(parse_heads(fields, local, keys_are_values, spec));
  QSF_RETURN_IF_ERROR(parse_smaller(fields, spec));
  QSF_RETURN_IF_ERROR(
      parse_global_rope(fields, spec.attention_of(spec.n_layers - 1).head_dim, spec.rope));
  return parse_local_rope(fields, local, kLocalTheta, spec);
}

}  // namespace qsf
