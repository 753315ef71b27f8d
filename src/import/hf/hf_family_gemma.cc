// SPDX-License-Identifier: MIT
//
// Gemma 1 and 2: scaled embeddings, a gate with GELU; in Gemma 2 also norms behind the sublayers,
// windows in every other layer, and caps on scores and logits. Their gains are stored less one
// (hf_model.cc).

#include <cmath>

#include "import/hf/hf_families.h"

namespace qsf {
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

}  // namespace qsf
