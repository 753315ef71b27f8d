// SPDX-License-Identifier: MIT
//
// GPT-2, OPT and BLOOM: LayerNorm, biases everywhere, one projection into the FFN. GPT-2 and OPT
// add learned positions to the embedding, BLOOM normalises it and tells positions by ALiBi.

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kBloomTrainedContext = 2048;  // of every published size

void set_biases(bool present, HfConfig& config) {
  config.qkv_bias = present;
  config.attn_out_bias = present;
  config.ffn_bias = present;
}

}  // namespace

Status parse_gpt2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "gpt2";
  spec.hidden = fields.u32("n_embd", 1, 1U << 20);
  spec.n_layers = fields.u32("n_layer", 1, 4096);
  spec.n_heads = fields.u32("n_head", 1, 1U << 16);
  spec.n_kv_heads = spec.n_heads;
  spec.max_positions = fields.u32("n_positions", 1, 1U << 24);
  spec.ffn = fields.u32_or("n_inner", 4 * spec.hidden, 1, 1U << 24);
  spec.norm = NormType::kLayerNorm;
  spec.norm_epsilon = fields.positive("layer_norm_epsilon", 1e-5F);
  spec.positions = PositionEncoding::kLearned;
  spec.tied_head = fields.boolean("tie_word_embeddings", true);
  set_biases(true, config);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(divide_heads("n_embd", "n_head", spec));
  QSF_RETURN_IF_ERROR(parse_plain_activation(fields, "activation_function", "gelu_new", spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "scale_attn_weights", false));
  QSF_RETURN_IF_ERROR(refuse(fields, "scale_attn_by_inverse_layer_idx", true));
  return refuse(fields, "add_cross_attention", true);
}

Status parse_opt(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "opt";
  spec.hidden = fields.u32("hidden_size", 1, 1U << 20);
  spec.n_layers = fields.u32("num_hidden_layers", 1, 4096);
  spec.n_heads = fields.u32("num_attention_heads", 1, 1U << 16);
  spec.n_kv_heads = spec.n_heads;
  spec.max_positions = fields.u32("max_position_embeddings", 1, 1U << 24);
  spec.ffn = fields.u32("ffn_dim", 1, 1U << 24);
  spec.norm = NormType::kLayerNorm;
  spec.norm_epsilon = 1e-5F;  // no key: the default of torch's LayerNorm
  spec.positions = PositionEncoding::kLearned;
  spec.tied_head = fields.boolean("tie_word_embeddings", true);
  set_biases(fields.boolean("enable_bias", true), config);
  const std::uint32_t embedded = fields.u32_or("word_embed_proj_dim", spec.hidden, 1, 1U << 20);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(divide_heads("hidden_size", "num_attention_heads", spec));
  QSF_RETURN_IF_ERROR(parse_plain_activation(fields, "activation_function", "relu", spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "do_layer_norm_before", false));
  QSF_RETURN_IF_ERROR(refuse(fields, "layer_norm_elementwise_affine", false));
  QSF_RETURN_IF_ERROR(refuse(fields, "_remove_final_layer_norm", true));
  if (embedded == spec.hidden) return ok_status();
  return unsupported(
      "word_embed_proj_dim: %u, expected hidden_size, %u: projections of the embedding are not "
      "known to this version",
      embedded, spec.hidden);
}

Status parse_bloom(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "bloom";
  const char* hidden = fields.either("n_embed", "hidden_size");
  const char* heads = fields.either("n_head", "num_attention_heads");
  spec.hidden = fields.u32(hidden, 1, 1U << 20);
  spec.n_layers = fields.u32(fields.either("n_layer", "num_hidden_layers"), 1, 4096);
  spec.n_heads = fields.u32(heads, 1, 1U << 16);
  spec.n_kv_heads = spec.n_heads;
  spec.max_positions = fields.u32_or("seq_length", kBloomTrainedContext, 1, 1U << 24);
  spec.ffn = 4 * spec.hidden;
  spec.norm = NormType::kLayerNorm;
  spec.norm_epsilon = fields.positive("layer_norm_epsilon", 1e-5F);
  spec.positions = PositionEncoding::kAlibi;
  spec.activation = Activation::kGeluTanh;
  spec.tied_head = fields.boolean("tie_word_embeddings", true);
  set_biases(true, config);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(divide_heads(hidden, heads, spec));
  return refuse(fields, "apply_residual_connection_post_layernorm", true);
}

}  // namespace qsf
