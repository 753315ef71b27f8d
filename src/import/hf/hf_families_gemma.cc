// SPDX-License-Identifier: MIT

#include "import/hf/hf_families.h"

#include <cmath>

namespace qsf {

// Gemma: scaled embeddings, a gate with GELU; from Gemma 2 on norms after the sublayers, windows in
// most layers, and caps on scores and logits; in Gemma 3 norms of queries and keys and another RoPE
// in layers with a window. Their gains are stored less one (hf_model.cc).

namespace {

// Null means no cap, an absent key the default, 0 for none.
float parse_cap(ConfigFields& fields, const char* key, float fallback) {
  const bool none = fields.is_null(key) || (fallback == 0.0F && fields.find(key) == nullptr);
  return none ? 0.0F : fields.positive(key, fallback);
}

Status parse_shared(ConfigFields& fields, const DecoderDefaults& defaults, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_decoder(fields, defaults, spec));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  return fields.status();
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
  QSF_RETURN_IF_ERROR(
      parse_shared(fields, {.tied_head = true, .n_kv_heads = 16, .head_dim = 256}, config));
  // The first published files say "gelu" and mean the tanh form.
  return parse_gelu(fields, "hidden_act", true, config.spec);
}

Status parse_gemma2(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "gemma2";
  QSF_RETURN_IF_ERROR(
      parse_shared(fields, {.tied_head = true, .n_kv_heads = 4, .head_dim = 256}, config));
  QSF_RETURN_IF_ERROR(parse_gelu(fields, "hidden_activation", false, spec));
  spec.attention_scale = 1.0F / std::sqrt(fields.positive("query_pre_attn_scalar", 256.0F));
  spec.attention_soft_cap = parse_cap(fields, "attn_logit_softcapping", 50.0F);
  spec.logit_soft_cap = parse_cap(fields, "final_logit_softcapping", 30.0F);
  const std::uint32_t window = fields.u32_or("sliding_window", 4096, 1, 1U << 30);
  QSF_RETURN_IF_ERROR(fields.status());
  if (fields.is_null("sliding_window")) return ok_status();
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, local_layers(fields, spec.n_layers, 2));
  set_local_windows(local, window, spec);
  return ok_status();
}

namespace {

// Published files leave out heads, context and vocabulary where they are the class's.
Status parse_gemma3_text(ConfigFields& fields, HfConfig& config) {
  constexpr float kLocalTheta = 10000.0F;
  ModelSpec& spec = config.spec;
  spec.architecture = "gemma3";
  QSF_RETURN_IF_ERROR(parse_shared(fields,
                                   {.tied_head = true,
                                    .n_heads = 8,
                                    .max_positions = 131072,
                                    .n_kv_heads = 4,
                                    .head_dim = 256,
                                    .rope_theta = 1000000.0F,
                                    .rope_by_layer = true},
                                   config));
  QSF_RETURN_IF_ERROR(parse_gelu(fields, "hidden_activation", false, spec));
  spec.attention_scale = 1.0F / std::sqrt(fields.positive("query_pre_attn_scalar", 256.0F));
  spec.attention_soft_cap = parse_cap(fields, "attn_logit_softcapping", 0.0F);
  spec.logit_soft_cap = parse_cap(fields, "final_logit_softcapping", 0.0F);
  const std::uint32_t window = fields.u32_or("sliding_window", 4096, 1, 1U << 30);
  const std::uint32_t every = fields.u32_or("sliding_window_pattern", 6, 1, 4096);
  const float theta = fields.positive("rope_local_base_freq", kLocalTheta);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, local_layers(fields, spec.n_layers, every));
  if (!fields.is_null("sliding_window")) set_local_windows(local, window, spec);
  return parse_local_rope(fields, local, theta, spec);
}

}  // namespace

Status parse_gemma3(ConfigFields& fields, HfConfig& config) {
  return parse_gemma3_text(fields, config);
}

// Windows have half their length to each side; the row's own position is counted beside.
Status parse_gemma3_encoder(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.bidirectional = fields.boolean("use_bidirectional_attention", false);
  QSF_RETURN_IF_ERROR(parse_gemma3_text(fields, config));
  if (!spec.bidirectional) return ok_status();
  for (std::uint32_t& window : spec.sliding_window) window = window == 0 ? 0 : window / 2 + 1;
  return ok_status();
}

}  // namespace qsf
