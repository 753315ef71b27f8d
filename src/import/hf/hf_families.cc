// SPDX-License-Identifier: MIT

#include "import/hf/hf_families.h"

#include <algorithm>

namespace qsf {

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

// Ministral 3: yarn, and queries that grow with the position beyond the original context.

namespace {

// rope_parameters of a file without any.
void set_default_ministral3_rope(ModelSpec& spec) {
  spec.rope.theta = 1000000.0F;
  spec.rope.scaling = RopeScaling::kYarn;
  spec.rope.factor = 16.0F;
  spec.rope.original_context = 16384;
  spec.query_position_scale = 0.1F;
}

}  // namespace

Status parse_ministral3(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "mistral3";
  QSF_RETURN_IF_ERROR(
      parse_decoder(fields, {.epsilon = 1e-5F, .n_kv_heads = 8, .head_dim = 128}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  const JsonValue* rope = rope_object(fields);
  if (rope == nullptr) {
    set_default_ministral3_rope(spec);
  } else {
    ConfigFields inner(*rope);
    const char* beta = "llama_4_scaling_beta";
    if (inner.find(beta) != nullptr) {
      spec.query_position_scale = inner.positive(beta, std::nullopt);
    }
    QSF_RETURN_IF_ERROR(inner.status());
  }
  const std::uint32_t window = fields.u32_or("sliding_window", 0, 1, kMaxWindow);
  QSF_RETURN_IF_ERROR(fields.status());
  if (window != 0) spec.sliding_window = {window};
  return ok_status();
}

Status parse_mistral3(ConfigFields& fields, HfConfig& config) {
  const std::string type = fields.text("model_type", "mistral");
  QSF_RETURN_IF_ERROR(fields.status());
  if (type == "mistral") return parse_mistral(fields, config);
  if (type == "ministral3") return parse_ministral3(fields, config);
  return unsupported("model_type: \"%s\" is not supported; expected mistral or ministral3",
                     type.substr(0, 64).c_str());
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
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.epsilon = 1e-5F,
                                     .partial_rotary = 1.0,
                                     .rope_original_context = 4096,
                                     .yarn_is_longrope = true},
                                    spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
    QSF_RETURN_IF_ERROR(refuse(fields, key, true));
  }
  const std::uint32_t window = fields.u32_or("sliding_window", 0, 1, kMaxWindow);
  if (window != 0) spec.sliding_window = {window};
  return fields.status();
}

// SmolLM3: some layers do not rotate.

// A list of 1 for a layer that rotates and 0 for one that does not; without it, every layer
// but each no_rope_layer_interval-th rotates.
Status parse_no_rope_layers(ConfigFields& fields, ModelSpec& spec) {
  const char* key = "no_rope_layers";
  const JsonValue* list = fields.find(key);
  if (list != nullptr && list->is_array() && list->size() == 0) list = nullptr;
  const std::uint32_t interval = fields.u32_or("no_rope_layer_interval", 4, 1, 4096);
  QSF_RETURN_IF_ERROR(fields.status());
  if (list != nullptr && (!list->is_array() || list->size() < spec.n_layers)) {
    return corrupt("%s: expected a list of at least %u, one a layer", key, spec.n_layers);
  }
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    std::uint64_t rotates = (layer + 1) % interval != 0 ? 1 : 0;
    if (list != nullptr) rotates = list->elements()[layer].unsigned_integer().value_or(2);
    if (rotates > 1) {
      return corrupt("%s: %s in the list, expected 0 or 1", key,
                     list->elements()[layer].shown().c_str());
    }
    spec.layer_rope.push_back(
        static_cast<std::uint32_t>(rotates == 1 ? LayerRope::kMain : LayerRope::kNone));
  }
  return ok_status();
}

Status parse_smollm3(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "smollm3";
  QSF_RETURN_IF_ERROR(
      parse_decoder(fields, {.tied_head = true, .n_kv_heads = 4, .rope_theta = 2000000.0F}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  QSF_RETURN_IF_ERROR(parse_no_rope_layers(fields, spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  config.ffn_bias = fields.boolean("mlp_bias", false);
  const bool windowed = fields.boolean("use_sliding_window", false);
  const std::uint32_t window = fields.u32_or("sliding_window", 0, 1, kMaxWindow);
  QSF_ASSIGN_OR_RETURN(std::vector<bool> local, local_layers(fields, spec.n_layers, 0));
  QSF_RETURN_IF_ERROR(fields.status());
  if (!windowed || window == 0) return ok_status();
  if (fields.find("layer_types") == nullptr) {
    // Without a list, the layers that do not rotate see the window.
    for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
      local[layer] = spec.rope_of(layer) == LayerRope::kNone;
    }
  }
  set_local_windows(local, window, spec);
  return ok_status();
}

// Its class is not in transformers: the keys are those of the code beside the published weights.
Status parse_internlm2(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "internlm2";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {}, config.spec));
  config.qkv_bias = fields.boolean("bias", true);
  config.attn_out_bias = config.qkv_bias;
  return parse_silu(fields, config.spec);
}

}  // namespace qsf
