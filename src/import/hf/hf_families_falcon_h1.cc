// SPDX-License-Identifier: MIT
//
// Falcon-H1: every layer scans and attends side by side, and a multiplier stands at every product.
//
// Multipliers are folded into the weights, in the order in which llama.cpp's converter does that,
// so that folders and GGUF files give the same bits. Where the head is the embedding, whose
// multipliers differ, they stay numbers of the model.

#include <string>
#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

// The inputs of scans: z, x, B, C, time steps.
constexpr std::size_t kScanParts = 5;

// Returns `n` multipliers, all 1 where the file is silent.
std::vector<float> multipliers(ConfigFields& fields, const char* key, std::size_t n) {
  std::vector<float> values(n, 1.0F);
  if (fields.find(key) == nullptr) return values;
  const std::vector<float> listed = fields.numbers(key, n);
  if (!fields.status().ok()) return values;
  if (listed.size() != n) {
    fields.fail(corrupt("%s: %zu numbers, expected %zu", key, listed.size(), n));
    return values;
  }
  for (const float value : listed) {
    if (value > 0.0F) continue;
    fields.fail(corrupt("%s: %g, expected numbers above 0", key, static_cast<double>(value)));
  }
  return listed;
}

Status parse_falcon_scans(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.mixer_heads = fields.u32_or("mamba_n_heads", 128, 1, 1024);
  spec.mixer_state = fields.u32_or("mamba_d_state", 256, 1, 1024);
  spec.conv_taps = fields.u32_or("mamba_d_conv", 4, 2, 16);
  const std::uint32_t expanded = fields.u32_or("mamba_expand", 2, 1, 64) * spec.hidden;
  const char* width = "mamba_d_ssm";
  const std::uint32_t inner =
      fields.is_null(width) ? expanded : fields.u32_or(width, 1024, 1, 1U << 18);
  config.conv_bias = fields.boolean("mamba_conv_bias", true);
  config.scan_norm = fields.boolean("mamba_rms_norm", false);
  const bool early = fields.boolean("mamba_norm_before_gate", true);
  QSF_RETURN_IF_ERROR(fields.status());
  if (config.scan_norm && early) {
    return unsupported("mamba_norm_before_gate: true is not supported with mamba_rms_norm");
  }
  spec.mixer_groups = fields.u32_or("mamba_n_groups", 1, 1, spec.mixer_heads);
  spec.mixer_head_dim = inner / spec.mixer_heads;
  const JsonValue* head = fields.find("mamba_d_head");
  if (head != nullptr && head->text() != "auto") {
    spec.mixer_head_dim = fields.u32_or("mamba_d_head", 0, 1, 256);
  }
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.mixer_heads * spec.mixer_head_dim != inner) {
    return corrupt("mamba_n_heads: %u of %u columns each, expected %u columns together",
                   spec.mixer_heads, spec.mixer_head_dim, inner);
  }
  spec.layer_mixers.assign(spec.n_layers,
                           static_cast<std::uint32_t>(LayerMixer::kMamba2AndAttention));
  return refuse_time_step_limits(fields);
}

Status set_factors(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  const float attention_in = fields.positive("attention_in_multiplier", 1.0F);
  const float attention_out = fields.positive("attention_out_multiplier", 1.0F);
  const float key = fields.positive("key_multiplier", 1.0F);
  const float scan_in = fields.positive("ssm_in_multiplier", 1.0F);
  const float scan_out = fields.positive("ssm_out_multiplier", 1.0F);
  const float embedding = fields.positive("embedding_multiplier", 1.0F);
  const float head = fields.positive("lm_head_multiplier", 1.0F);
  const std::vector<float> ffn = multipliers(fields, "mlp_multipliers", 2);
  const std::vector<float> parts = multipliers(fields, "ssm_multipliers", kScanParts);
  QSF_RETURN_IF_ERROR(fields.status());
  const auto set = [&](TensorKind kind, std::uint32_t n_rows, float first, float second = 1.0F) {
    config.factors[kind].push_back({n_rows, first, second});
  };
  set(TensorKind::kAttnQ, spec.q_dim(), attention_in);
  set(TensorKind::kAttnK, spec.kv_dim(), key, attention_in);
  set(TensorKind::kAttnV, spec.kv_dim(), attention_in);
  set(TensorKind::kAttnO, spec.hidden, attention_out);
  const std::uint32_t shared = spec.mixer_groups * spec.mixer_state;
  const std::uint32_t sizes[kScanParts] = {spec.mixer_out(), spec.mixer_out(), shared, shared,
                                           spec.mixer_heads};
  for (std::size_t i = 0; i < kScanParts; ++i) {
    set(TensorKind::kMixerIn, sizes[i], scan_in, parts[i]);
  }
  set(TensorKind::kMixerOut, spec.hidden, scan_out);
  set(TensorKind::kFfnGate, spec.ffn, ffn[0]);
  set(TensorKind::kFfnDown, spec.hidden, ffn[1]);
  if (spec.tied_head) {
    spec.embedding_scale = embedding;
    spec.logit_scale = head;
    return ok_status();
  }
  set(TensorKind::kTokenEmbedding, spec.n_vocab, embedding);
  set(TensorKind::kHead, spec.n_vocab, head);
  return ok_status();
}

}  // namespace

Status parse_falcon_h1(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "falcon-h1";
  QSF_RETURN_IF_ERROR(parse_decoder(
      fields, {.epsilon = 1e-5F, .n_heads = 32, .max_positions = 8192, .n_kv_heads = 8}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"}) {
    QSF_RETURN_IF_ERROR(refuse(fields, key, true));
  }
  QSF_RETURN_IF_ERROR(refuse(fields, "mamba_use_mlp", false));
  if (const JsonValue* listed = fields.find("attn_layer_indices"); listed != nullptr) {
    return unsupported("attn_layer_indices: %s, expected null", listed->shown().c_str());
  }
  QSF_RETURN_IF_ERROR(parse_falcon_scans(fields, config));
  return set_factors(fields, config);
}

}  // namespace qsf
