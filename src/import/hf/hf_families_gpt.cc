// SPDX-License-Identifier: MIT

#include "import/hf/hf_families.h"

namespace qsf {

// LayerNorm and one projection into the FFN. GPT-2, OPT and BLOOM have biases everywhere; GPT-2 and
// OPT add learned positions to the embedding, BLOOM normalises it and uses ALiBi.

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
      "supported",
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

// GPT-NeoX rotates a quarter of each head. With a parallel residual, which is the rule, attention
// and FFN still have a norm each, of the same input.
Status parse_gptneox(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "gptneox";
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.norm = NormType::kLayerNorm,
                                     .epsilon_key = "layer_norm_eps",
                                     .epsilon = 1e-5F,
                                     .gated_ffn = false,
                                     .partial_rotary = 0.25,
                                     .partial_rotary_key = "rotary_pct",
                                     .rope_theta_key = "rotary_emb_base"},
                                    spec));
  spec.parallel_block = fields.boolean("use_parallel_residual", true);
  config.qkv_bias = fields.boolean("attention_bias", true);
  config.attn_out_bias = config.qkv_bias;
  config.ffn_bias = true;
  return parse_plain_activation(fields, "hidden_act", "gelu", spec);
}

Status parse_starcoder2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "starcoder2";
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.norm = NormType::kLayerNorm,
                                     .epsilon_key = "norm_epsilon",
                                     .epsilon = 1e-5F,
                                     .tied_head = true,
                                     .gated_ffn = false,
                                     .n_kv_heads = 2},
                                    spec));
  set_biases(fields.boolean("use_bias", true), config);
  const std::uint32_t window = fields.u32_or("sliding_window", 0, 1, 1U << 30);
  QSF_RETURN_IF_ERROR(fields.status());
  if (window != 0) spec.sliding_window = {window};
  return parse_plain_activation(fields, "hidden_act", "gelu_pytorch_tanh", spec);
}

// Falcon. Three layouts of queries, keys and values are one by groups: a pair of KV heads for each
// query head, for all of them, or for a group. The newer architecture has a norm for attention and
// one for the FFN, of the same input; its largest model and the older architecture share one.

namespace {

Status parse_falcon_sizes(ConfigFields& fields, ModelSpec& spec) {
  const char* hidden = fields.either("n_embed", "hidden_size");
  const char* heads = fields.either("num_attention_heads", "n_head");
  spec.hidden = fields.u32(hidden, 1, 1U << 20);
  spec.n_layers = fields.u32(fields.either("num_hidden_layers", "n_layer"), 1, 4096);
  spec.n_heads = fields.u32(heads, 1, 1U << 16);
  spec.max_positions = fields.u32_or("max_position_embeddings", 2048, 1, 1U << 24);
  spec.ffn = fields.u32_or("ffn_hidden_size", 4 * spec.hidden, 1, 1U << 24);
  spec.norm = NormType::kLayerNorm;
  spec.norm_epsilon = fields.positive("layer_norm_epsilon", 1e-5F);
  spec.positions = PositionEncoding::kRope;
  spec.tied_head = fields.boolean("tie_word_embeddings", true);
  QSF_RETURN_IF_ERROR(fields.status());
  return divide_heads(hidden, heads, spec);
}

}  // namespace

Status parse_falcon(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "falcon";
  QSF_RETURN_IF_ERROR(refuse(fields, "apply_residual_connection_post_layernorm", true));
  QSF_RETURN_IF_ERROR(parse_falcon_sizes(fields, spec));
  // The first files of the newer architecture have its key for KV heads alone.
  const bool newer =
      fields.boolean("new_decoder_architecture", fields.find("n_head_kv") != nullptr);
  const bool older_files = fields.text("model_type", "falcon") != "falcon";
  const bool one_kv_head = !newer && fields.boolean("multi_query", !older_files);
  const std::uint32_t kv_heads =
      fields.u32_or(fields.either("num_kv_heads", "n_head_kv"), spec.n_heads, 1, spec.n_heads);
  spec.n_kv_heads = one_kv_head ? 1 : kv_heads;
  spec.parallel_block = fields.boolean("parallel_attn", true);
  const std::uint32_t norms = fields.u32_or("num_ln_in_parallel_attn", newer ? 2 : 1, 1, 2);
  set_biases(fields.boolean("bias", false), config);
  QSF_RETURN_IF_ERROR(fields.status());
  if (newer && !spec.parallel_block) return refuse(fields, "parallel_attn", false);
  if (!newer && norms == 2) {
    return unsupported("num_ln_in_parallel_attn: 2 without new_decoder_architecture");
  }
  if (!newer && !one_kv_head && kv_heads != spec.n_heads) {
    return unsupported("num_kv_heads: %u without new_decoder_architecture, expected %u", kv_heads,
                       spec.n_heads);
  }
  if (norms == 2) spec.architecture = "falcon-two-norms";
  QSF_RETURN_IF_ERROR(parse_plain_activation(fields, "activation", "gelu", spec));
  if (fields.boolean("alibi", false)) {
    spec.positions = PositionEncoding::kAlibi;
    spec.bf16_biases = true;
    return fields.status();
  }
  return parse_rope(fields, {}, spec);
}

// MPT: ALiBi with BLOOM's slopes, no bias at all.

namespace {

// Whatever would change the scores.
Status parse_mpt_attention(ConfigFields& attention, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(refuse(attention, "alibi", false));
  for (const char* key : {"qk_ln", "prefix_lm", "attn_uses_sequence_id"}) {
    QSF_RETURN_IF_ERROR(refuse(attention, key, true));
  }
  const std::string type = attention.text("attn_type", "multihead_attention");
  const float most = attention.positive("alibi_bias_max", 8.0F);
  if (attention.find("softmax_scale") != nullptr) {
    spec.attention_scale = attention.positive("softmax_scale", std::nullopt);
  }
  QSF_RETURN_IF_ERROR(attention.status());
  if (type != "multihead_attention") {
    return unsupported("attn_type: \"%s\" is not supported", type.substr(0, 64).c_str());
  }
  if (most != 8.0F) {
    return unsupported("alibi_bias_max: %g, expected 8", static_cast<double>(most));
  }
  return parse_qkv_clip(attention, spec);
}

}  // namespace

Status parse_mpt(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "mpt";
  spec.hidden = fields.u32("d_model", 1, 1U << 20);
  spec.n_layers = fields.u32("n_layers", 1, 4096);
  spec.n_heads = fields.u32("n_heads", 1, 1U << 16);
  spec.n_kv_heads = spec.n_heads;
  spec.max_positions = fields.u32("max_seq_len", 1, 1U << 24);
  spec.ffn = fields.u32_or("expansion_ratio", 4, 1, 16) * spec.hidden;
  spec.norm = NormType::kLayerNorm;
  spec.norm_epsilon = fields.positive("layer_norm_epsilon", 1e-5F);
  spec.positions = PositionEncoding::kAlibi;
  spec.activation = Activation::kGeluErf;
  spec.tied_head = fields.boolean("tie_word_embeddings", true);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(divide_heads("d_model", "n_heads", spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "no_bias", false));
  const std::string norm = fields.text("norm_type", "low_precision_layernorm");
  QSF_RETURN_IF_ERROR(fields.status());
  if (!norm.ends_with("layernorm")) {
    return unsupported("norm_type: \"%s\", expected low_precision_layernorm or layernorm",
                       norm.substr(0, 64).c_str());
  }
  const JsonValue* scale = fields.find("logit_scale");
  if (scale != nullptr)
    return unsupported("logit_scale: %s is not supported", scale->shown().c_str());
  const char* key = "attn_config";
  const JsonValue* attention = fields.find(key);
  if (attention == nullptr) return ok_status();
  if (!attention->is_object()) return corrupt("%s: expected an object", key);
  ConfigFields inner(*attention);
  return parse_mpt_attention(inner, spec).with_context(key);
}

}  // namespace qsf
