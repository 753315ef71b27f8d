// SPDX-License-Identifier: MIT
//
// Encoders: models whose rows attend to both sides, which embed texts.

#include <algorithm>
#include <string>
#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {

namespace {

constexpr const char* kNomicWidth = "n_embd";

// The keys of the published files, whose class has GPT-2's names and defaults: biases, no RoPE.
// Beyond the trained positions its RoPE has another base, so the context ends there.
Status parse_published_nomic(ConfigFields& fields, ModelSpec& spec) {
  spec.hidden = fields.u32(kNomicWidth, 1, 1U << 20);
  spec.n_layers = fields.u32("n_layer", 1, 4096);
  spec.n_heads = spec.n_kv_heads = fields.u32("n_head", 1, 1U << 16);
  spec.ffn = fields.u32_or("n_inner", 4 * spec.hidden, 1, 1U << 24);
  spec.max_positions = std::min(fields.u32("n_positions", 1, 1U << 24),
                                fields.u32_or("max_trained_positions", 2048, 1, 1U << 24));
  spec.norm_epsilon = fields.positive("layer_norm_epsilon", 1e-5F);
  spec.rope.theta = fields.positive("rotary_emb_base", 10000.0F);
  const double rotated = fields.fraction("rotary_emb_fraction", 0.0);
  const char* activation = "activation_function";
  const std::string name = fields.text(activation, "gelu_new");
  QSF_RETURN_IF_ERROR(fields.status());
  if (rotated != 1.0) {
    return unsupported("rotary_emb_fraction: %g is not supported, expected 1", rotated);
  }
  if (name != "swiglu") {
    return unsupported("%s: \"%s\", expected swiglu", activation, name.substr(0, 64).c_str());
  }
  for (const char* key : {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"}) {
    if (fields.boolean(key, true)) return unsupported("%s: true is not supported", key);
  }
  for (const char* key : {"prenorm", "parallel_block", "use_rms_norm", "causal",
                          "rotary_emb_interleaved", "scale_attn_by_inverse_layer_idx"}) {
    QSF_RETURN_IF_ERROR(refuse(fields, key, true));
  }
  QSF_RETURN_IF_ERROR(refuse(fields, "scale_attn_weights", false));
  if (fields.find("rotary_emb_scale_base") != nullptr) {
    return unsupported("rotary_emb_scale_base: %s is not supported",
                       fields.find("rotary_emb_scale_base")->shown().c_str());
  }
  return divide_heads(kNomicWidth, "n_head", spec);
}

}  // namespace

// Norms of the sums behind attention and FFN; the row of the first token type is part of every
// token's. A head that predicts masked tokens is left out. Files that transformers saved have its
// keys, and perhaps the published ones too.
Status parse_nomic_bert(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "nomic-bert";
  for (const char* key : {"num_experts", "moe_every_n_layers"}) {
    const JsonValue* value = fields.find(key);
    if (value == nullptr || value->number().value_or(1.0) <= 0.0) continue;
    return unsupported("nomic-bert-moe is not supported: %s is %s", key, value->shown().c_str());
  }
  if (fields.find("hidden_size") == nullptr && fields.find(kNomicWidth) != nullptr) {
    QSF_RETURN_IF_ERROR(parse_published_nomic(fields, spec));
  } else {
    const DecoderDefaults defaults = {.norm = NormType::kLayerNorm,
                                      .epsilon_key = "layer_norm_eps",
                                      .epsilon = 1e-12F,
                                      .rope_theta = 1000.0F};
    QSF_RETURN_IF_ERROR(parse_decoder(fields, defaults, spec));
    QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
    QSF_RETURN_IF_ERROR(refuse(fields, "is_decoder", true));
  }
  spec.norm = NormType::kLayerNorm;
  spec.positions = PositionEncoding::kRope;
  spec.activation = Activation::kSilu;
  spec.gated_ffn = spec.norms_stream = spec.bidirectional = true;
  spec.pooling = Pooling::kMean;  // where no module says otherwise
  return fields.status();
}

// A head that predicts masked tokens is left out. Windows have half their length to each side; the
// row's own position is counted beside.
Status parse_modernbert(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "modernbert";
  const DecoderDefaults defaults = {.norm = NormType::kLayerNorm,
                                    .epsilon_key = "norm_eps",
                                    .epsilon = 1e-5F,
                                    .rope_theta_key = "global_rope_theta",
                                    .rope_theta = 160000.0F,
                                    .rope_by_layer = true};
  QSF_RETURN_IF_ERROR(parse_decoder(fields, defaults, spec));
  for (const char* key : {"norm_bias", "attention_bias", "mlp_bias"}) {
    QSF_RETURN_IF_ERROR(refuse(fields, key, true));
  }
  const char* activation = "hidden_activation";
  const std::string name = fields.text(activation, "gelu");
  const std::uint32_t window = fields.u32_or("local_attention", 128, 2, 1U << 30);
  const std::uint32_t every = fields.u32_or("global_attn_every_n_layers", 3, 1, 4096);
  const float theta = fields.positive("local_rope_theta", 10000.0F);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation(activation, name));
  std::vector<bool> local;
  if (fields.find("layer_types") != nullptr) {
    QSF_ASSIGN_OR_RETURN(local, local_layers(fields, spec.n_layers, 0));
  } else {
    for (std::uint32_t i = 0; i < spec.n_layers; ++i) local.push_back(i % every != 0);
  }
  set_local_windows(local, window / 2 + 1, spec);
  spec.bidirectional = true;
  return parse_local_rope(fields, local, theta, spec);
}

}  // namespace qsf
