// SPDX-License-Identifier: MIT

#include "import/hf/hf_families.h"

#include <algorithm>
#include <cmath>

namespace qsf {

// GPT-2, OPT and BLOOM: LayerNorm, biases everywhere, one projection into the FFN. GPT-2 and OPT
// add learned positions to the embedding, BLOOM normalises it and uses ALiBi.

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

// LLaMA and its closest relatives: RMSNorm, RoPE, a gate with SiLU. They differ in biases, windows,
// norms of queries and keys, and in how their weights are stored (hf_model.cc).

namespace {

constexpr std::uint32_t kMaxWindow = 1U << 30;
constexpr std::uint32_t kDefaultWindow = 4096;  // of Mistral and Qwen, where the key is absent

// With use_sliding_window, layers from max_window_layers on see a window and those before it all.
Status parse_qwen_windows(ConfigFields& fields, ModelSpec& spec) {
  constexpr std::uint32_t kDefaultFirst = 28;
  const bool windowed = fields.boolean("use_sliding_window", false);
  QSF_RETURN_IF_ERROR(fields.status());
  if (!windowed || fields.is_null("sliding_window")) return ok_status();
  const std::uint32_t window = fields.u32_or("sliding_window", kDefaultWindow, 1, kMaxWindow);
  const std::uint32_t first = fields.u32_or("max_window_layers", kDefaultFirst, 0, 4096);
  QSF_RETURN_IF_ERROR(fields.status());
  if (fields.find("layer_types") != nullptr) return set_windows(fields, window, spec);
  spec.sliding_window.assign(spec.n_layers, 0);
  for (std::uint32_t layer = first; layer < spec.n_layers; ++layer) {
    spec.sliding_window[layer] = window;
  }
  return ok_status();
}

}  // namespace

Status parse_llama(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "llama";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {}, config.spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  config.ffn_bias = fields.boolean("mlp_bias", false);
  return parse_silu(fields, config.spec);
}

Status parse_mistral(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "mistral";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {.n_kv_heads = 8}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  if (fields.is_null("sliding_window")) return ok_status();
  const std::uint32_t window = fields.u32_or("sliding_window", kDefaultWindow, 1, kMaxWindow);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(set_windows(fields, window, spec));
  // transformers ignores the list and gives every layer of a mistral the window.
  if (std::find(spec.sliding_window.begin(), spec.sliding_window.end(), 0U) ==
      spec.sliding_window.end()) {
    return ok_status();
  }
  return unsupported("layer_types: full_attention is not supported for mistral");
}

Status parse_qwen2(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "qwen2";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {.n_kv_heads = 32}, config.spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, config.spec));
  config.qkv_bias = true;
  return parse_qwen_windows(fields, config.spec);
}

Status parse_qwen3(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "qwen3";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {.n_kv_heads = 32, .head_dim = 128}, config.spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, config.spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  return parse_qwen_windows(fields, config.spec);
}

Status parse_phi3(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "phi3";
  QSF_RETURN_IF_ERROR(parse_decoder(
      fields, {.epsilon = 1e-5F, .partial_rotary = 1.0, .rope_original_context = 4096}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
    QSF_RETURN_IF_ERROR(refuse(fields, key, true));
  }
  const std::uint32_t window = fields.u32_or("sliding_window", 0, 1, kMaxWindow);
  if (window != 0) spec.sliding_window = {window};
  return fields.status();
}

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

// Gemma 1 and 2: scaled embeddings, a gate with GELU; in Gemma 2 also norms after the sublayers,
// windows in every other layer, and caps on scores and logits. Their gains are stored less one
// (hf_model.cc).

namespace {

// Null means no cap, an absent key the default.
float parse_cap(ConfigFields& fields, const char* key, float fallback) {
  return fields.is_null(key) ? 0.0F : fields.positive(key, fallback);
}

Status parse_shared(ConfigFields& fields, std::uint32_t n_kv_heads, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(
      parse_decoder(fields, {.tied_head = true, .n_kv_heads = n_kv_heads, .head_dim = 256}, spec));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  return refuse(fields, "use_bidirectional_attention", true);
}

Status parse_gelu(ConfigFields& fields, const char* key, bool gelu_is_tanh, ModelSpec& spec) {
  const std::string name = fields.text(key, "gelu_pytorch_tanh");
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation(key, name));
  if (gelu_is_tanh && name == "gelu") spec.activation = Activation::kGeluTanh;
  if (spec.activation == Activation::kGeluTanh || spec.activation == Activation::kGeluErf) {
    return ok_status();
  }
  return unsupported("%s: \"%s\", expected gelu_pytorch_tanh or gelu", key, name.c_str());
}

}  // namespace

Status parse_gemma(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "gemma";
  QSF_RETURN_IF_ERROR(parse_shared(fields, 16, config));
  // The first published files say "gelu" and mean the tanh form.
  return parse_gelu(fields, "hidden_act", true, config.spec);
}

Status parse_gemma2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "gemma2";
  QSF_RETURN_IF_ERROR(parse_shared(fields, 4, config));
  QSF_RETURN_IF_ERROR(parse_gelu(fields, "hidden_activation", false, spec));
  spec.attention_scale = 1.0F / std::sqrt(fields.positive("query_pre_attn_scalar", 256.0F));
  spec.attention_soft_cap = parse_cap(fields, "attn_logit_softcapping", 50.0F);
  spec.logit_soft_cap = parse_cap(fields, "final_logit_softcapping", 30.0F);
  const std::uint32_t window = fields.u32_or("sliding_window", 4096, 1, 1U << 30);
  QSF_RETURN_IF_ERROR(fields.status());
  if (fields.is_null("sliding_window")) return ok_status();
  if (fields.find("layer_types") != nullptr) return set_windows(fields, window, spec);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    spec.sliding_window.push_back(layer % 2 == 0 ? window : 0);
  }
  return ok_status();
}

// BitNet b1.58: a llama with norms before the attention output and the down projection, whose
// products take ternary weights and rows of int8. Two classes have almost the same name: BitNet is
// Microsoft's; Bitnet is the older class of 1bitLLM, with other names for the norms.

namespace {

Status parse_graph(ConfigFields& fields, const DecoderDefaults& defaults, std::string_view act,
                   HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_decoder(fields, defaults, spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "attention_bias", true));
  const std::string name = fields.text("hidden_act", act);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation("hidden_act", name));
  return ok_status();
}

// Layers that stay floats would take other rows than the others.
Status check_all_converted(const ConfigFields& quantisation) {
  const char* key = "modules_to_not_convert";
  const JsonValue* names = quantisation.find(key);
  if (names == nullptr) return ok_status();
  if (!names->is_array()) return corrupt("%s: expected a list of names", key);
  for (const JsonValue& name : names->elements()) {
    if (name.text() == "lm_head" || name.text() == "lm_head.weight") continue;
    return unsupported("%s: %s is not supported; only lm_head may stay unconverted", key,
                       name.shown().c_str());
  }
  return ok_status();
}

Result<TernaryStorage> parse_storage(ConfigFields& quantisation) {
  const std::string method = quantisation.text("quant_method", "");
  if (method != "bitnet") {
    return unsupported(
        "method \"%s\": the weights are already quantised; convert the original model",
        method.substr(0, 64).c_str());
  }
  QSF_RETURN_IF_ERROR(refuse(quantisation, "use_rms_norm", true));
  QSF_RETURN_IF_ERROR(check_all_converted(quantisation));
  const std::string linear = quantisation.text("linear_class", "bitlinear");
  const std::string mode = quantisation.text("quantization_mode", "offline");
  QSF_RETURN_IF_ERROR(quantisation.status());
  if (linear == "bitlinear" && mode == "offline") return TernaryStorage::kOverScale;
  if (linear == "autobitlinear" && mode == "offline") return TernaryStorage::kTimesScale;
  if (linear == "autobitlinear" && mode == "online") return TernaryStorage::kMasters;
  return unsupported("linear_class \"%s\" with quantization_mode \"%s\" is not supported",
                     linear.substr(0, 64).c_str(), mode.substr(0, 64).c_str());
}

}  // namespace

Status parse_bitnet(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "bitnet-b1.58";
  return parse_graph(fields, {.epsilon = 1e-5F, .n_kv_heads = 5, .rope_theta = 500000.0F}, "relu2",
                     config);
}

Status parse_bitnet_1bit(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "bitnet";
  config.ternary = TernaryStorage::kMasters;
  return parse_graph(fields, {}, "silu", config);
}

Status parse_quantisation(const JsonValue& object, HfConfig& config) {
  const char* key = "quantization_config";
  if (!object.is_object()) return corrupt("%s: expected an object", key);
  ConfigFields quantisation(object);
  auto storage = parse_storage(quantisation);
  if (!storage) return std::move(storage).error().with_context(key);
  config.ternary = *storage;
  return ok_status();
}

}  // namespace qsf
