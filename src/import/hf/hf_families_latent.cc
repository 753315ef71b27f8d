// SPDX-License-Identifier: MIT
//
// Models with latent attention: DeepSeek-V2 and V3, GLM-4.7-Flash.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/portable_math.h"
#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMostLatent = 1U << 16;

// Defaults of a configuration class.
struct LatentDefaults {
  std::uint32_t n_heads;
  std::uint32_t max_positions;
  float epsilon = 1e-6F;
  std::uint32_t query_row;
  std::uint32_t key = 128;
  std::uint32_t value = 128;
  std::uint32_t n_experts = 64;
  std::uint32_t n_used;
  std::uint32_t expert_ffn;
  std::uint32_t n_shared;
  std::uint32_t n_dense;
  float scale = 1.0F;
};

// The factor of scores grows with the context that YaRN adds, twice over.
double score_growth(const ConfigFields& fields, const RopeSpec& rope) {
  const JsonValue* object = rope_object(fields);
  if (object == nullptr || !object->is_object() || rope.scaling == RopeScaling::kNone) return 1.0;
  const JsonValue* scale = object->find("mscale_all_dim");
  if (scale == nullptr || rope.factor <= 1.0F) return 1.0;
  const double growth =
      0.1 * scale->number().value_or(0.0) * portable::log(static_cast<double>(rope.factor)) + 1.0;
  return growth * growth;
}

Status parse_latent(ConfigFields& fields, const LatentDefaults& defaults, ModelSpec& spec) {
  const std::uint32_t n_rope = fields.u32_or("qk_rope_head_dim", 64, 2, kMostLatent);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.epsilon = defaults.epsilon,
                                     .n_heads = defaults.n_heads,
                                     .max_positions = defaults.max_positions,
                                     .head_dim = n_rope},
                                    spec));
  if (spec.n_kv_heads != spec.n_heads) {
    return unsupported("num_key_value_heads: %u, expected as many as heads, %u", spec.n_kv_heads,
                       spec.n_heads);
  }
  if (spec.rope.scaling == RopeScaling::kLongrope) {
    return unsupported("rope_scaling: longrope is not supported for %s", spec.architecture.c_str());
  }
  spec.latent_dim = fields.u32_or("kv_lora_rank", 512, 1, kMostLatent);
  spec.latent_key_dim = fields.u32_or("qk_nope_head_dim", defaults.key, 1, kMostLatent);
  spec.latent_value_dim = fields.u32_or("v_head_dim", defaults.value, 1, kMostLatent);
  if (!fields.is_null("q_lora_rank")) {
    spec.latent_query_dim = fields.u32_or("q_lora_rank", defaults.query_row, 1, kMostLatent);
  }
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_kv_heads = 1;
  spec.rope.dims = n_rope;
  spec.head_dim = spec.latent_dim + n_rope;
  spec.attention_scale = static_cast<float>(score_growth(fields, spec.rope) /
                                            std::sqrt(static_cast<double>(spec.query_dim())));
  if (!std::isfinite(spec.attention_scale) || spec.attention_scale <= 0.0F) {
    return corrupt("mscale_all_dim: the scale of scores would be %g",
                   static_cast<double>(spec.attention_scale));
  }
  QSF_RETURN_IF_ERROR(refuse(fields, "attention_bias", true));
  QSF_RETURN_IF_ERROR(refuse(fields, "mlp_bias", true));
  return refuse(fields, "rope_interleave", false);
}

// Everything but how experts are chosen.
Status parse_latent_model(ConfigFields& fields, const LatentDefaults& defaults, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "deepseek2";
  QSF_RETURN_IF_ERROR(parse_latent(fields, defaults, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  spec.n_experts = fields.u32_or("n_routed_experts", defaults.n_experts, 2, 1024);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32_or("num_experts_per_tok", defaults.n_used, 1, spec.n_experts);
  spec.expert_ffn = fields.u32_or("moe_intermediate_size", defaults.expert_ffn, 1, 1U << 24);
  const std::uint32_t n_shared = fields.u32_or("n_shared_experts", defaults.n_shared, 1, 64);
  const std::uint32_t n_dense = fields.u32_or(
      "first_k_dense_replace", std::min(defaults.n_dense, spec.n_layers - 1), 0, spec.n_layers - 1);
  const std::uint32_t every = fields.u32_or("moe_layer_freq", 1, 1, 4096);
  spec.expert_scale = fields.positive("routed_scaling_factor", defaults.scale);
  QSF_RETURN_IF_ERROR(fields.status());
  if (every != 1) return unsupported("moe_layer_freq: %u, expected 1", every);
  if (spec.n_experts_used > spec.n_experts) {
    return corrupt("num_experts_per_tok: missing, and the default, %u, is more than the %u experts",
                   spec.n_experts_used, spec.n_experts);
  }
  spec.shared_ffn = n_shared * spec.expert_ffn;
  if (n_dense == 0) return ok_status();
  spec.expert_layers.assign(spec.n_layers, 1);
  std::fill_n(spec.expert_layers.begin(), n_dense, 0);
  return ok_status();
}

Status parse_groups(ConfigFields& fields, std::uint32_t n_groups, std::uint32_t n_used,
                    ModelSpec& spec) {
  spec.expert_groups = fields.u32_or("n_group", n_groups, 1, spec.n_experts);
  spec.expert_groups_used = fields.u32_or("topk_group", n_used, 1, spec.n_experts);
  return fields.status();
}

// DeepSeek-V3's rule.
Status parse_sigmoid_routing(ConfigFields& fields, std::uint32_t n_groups, std::uint32_t n_used,
                             HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_groups(fields, n_groups, n_used, spec));
  config.router_correction = true;
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_renormalised = fields.boolean("norm_topk_prob", true);
  if (spec.expert_renormalised) spec.expert_epsilon = 1e-20F;
  const std::string scoring = fields.text("scoring_func", "sigmoid");
  QSF_RETURN_IF_ERROR(fields.status());
  if (scoring == "sigmoid") return ok_status();
  return unsupported("scoring_func: \"%s\", expected sigmoid", scoring.substr(0, 64).c_str());
}

}  // namespace

// The class has a key for renormalised weights, which its model does not read.
Status parse_deepseek_v2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_latent_model(fields,
                                         {.n_heads = 32,
                                          .max_positions = 2048,
                                          .query_row = 1536,
                                          .n_used = 6,
                                          .expert_ffn = 1407,
                                          .n_shared = 2,
                                          .n_dense = 0},
                                         config));
  const std::string method = fields.text("topk_method", "greedy");
  const std::string scoring = fields.text("scoring_func", "softmax");
  QSF_RETURN_IF_ERROR(fields.status());
  if (scoring != "softmax") {
    return unsupported("scoring_func: \"%s\", expected softmax", scoring.substr(0, 64).c_str());
  }
  if (method == "greedy") return ok_status();
  if (method == "group_limited_greedy") return parse_groups(fields, 1, 1, spec);
  return unsupported("topk_method: \"%s\", expected greedy or group_limited_greedy",
                     method.substr(0, 64).c_str());
}

Status parse_deepseek_v3(ConfigFields& fields, HfConfig& config) {
  QSF_RETURN_IF_ERROR(parse_latent_model(fields,
                                         {.n_heads = 128,
                                          .max_positions = 4096,
                                          .query_row = 1536,
                                          .n_experts = 256,
                                          .n_used = 8,
                                          .expert_ffn = 2048,
                                          .n_shared = 1,
                                          .n_dense = 3,
                                          .scale = 2.5F},
                                         config));
  return parse_sigmoid_routing(fields, 8, 4, config);
}

namespace {

// Newer files of GLM-4.7-Flash name the kind of every layer.
Status parse_mlp_layers(const ConfigFields& fields, ModelSpec& spec) {
  const JsonValue* types = fields.find("mlp_layer_types");
  if (types == nullptr) return ok_status();
  if (!types->is_array() || types->size() != spec.n_layers) {
    return corrupt("mlp_layer_types: expected a list of %u, one a layer", spec.n_layers);
  }
  std::vector<std::uint32_t> sparse;
  for (const JsonValue& type : types->elements()) {
    if (type.text() != "dense" && type.text() != "sparse") {
      return unsupported("mlp_layer_types: %s, expected dense or sparse", type.shown().c_str());
    }
    sparse.push_back(type.text() == "sparse" ? 1 : 0);
  }
  if (std::find(sparse.begin(), sparse.end(), 1U) == sparse.end()) {
    return unsupported("mlp_layer_types: no layer is sparse, which is not supported");
  }
  spec.expert_layers.clear();
  if (std::find(sparse.begin(), sparse.end(), 0U) != sparse.end()) spec.expert_layers = sparse;
  return ok_status();
}

}  // namespace

Status parse_glm4moe_lite(ConfigFields& fields, HfConfig& config) {
  QSF_RETURN_IF_ERROR(parse_latent_model(fields,
                                         {.n_heads = 20,
                                          .max_positions = 202752,
                                          .epsilon = 1e-5F,
                                          .query_row = 768,
                                          .key = 192,
                                          .value = 256,
                                          .n_used = 4,
                                          .expert_ffn = 1536,
                                          .n_shared = 1,
                                          .n_dense = 1,
                                          .scale = 1.8F},
                                         config));
  QSF_RETURN_IF_ERROR(parse_mlp_layers(fields, config.spec));
  return parse_sigmoid_routing(fields, 1, 1, config);
}

}  // namespace qsf
