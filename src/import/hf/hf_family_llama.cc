// SPDX-License-Identifier: MIT
//
// LLaMA and its closest relatives: RMSNorm, RoPE, a gate with SiLU. They differ in biases, windows,
// norms of queries and keys, and in how their weights are stored (hf_model.cc).

#include <algorithm>

#include "import/hf/hf_families.h"

namespace qsf {
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
  // transformers gives every layer of a mistral the window, whatever the list says.
  if (std::find(spec.sliding_window.begin(), spec.sliding_window.end(), 0U) ==
      spec.sliding_window.end()) {
    return ok_status();
  }
  return unsupported(
      "layer_types: a mistral with layers of full_attention is not known to this version");
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

}  // namespace qsf
