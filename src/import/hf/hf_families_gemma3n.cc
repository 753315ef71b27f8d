// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {

// Gemma 3n: several residual streams, inputs of layers, layers that share keys and values, and FFNs
// of which the largest gates alone are kept.

namespace {

// The number of standard deviations below which a normal number lies with that probability.
float normal_quantile(float probability) {
  double low = -9.0;
  double high = 9.0;
  for (int step = 0; step < 80; ++step) {
    const double middle = (low + high) / 2;
    const double below = 0.5 * std::erfc(-middle / std::numbers::sqrt2);
    (below < static_cast<double>(probability) ? low : high) = middle;
  }
  return static_cast<float>((low + high) / 2);
}

// The share of gates of each layer that are cut; 0: none are.
Status parse_sparsity(ConfigFields& fields, ModelSpec& spec) {
  const char* key = "activation_sparsity_pattern";
  constexpr std::uint32_t kSparseLayers = 10;
  constexpr float kShare = 0.95F;
  std::vector<float> shares(spec.n_layers, 0.0F);
  const JsonValue* list = fields.find(key);
  if (list == nullptr && spec.n_layers > kSparseLayers) {
    std::fill_n(shares.begin(), kSparseLayers, kShare);
  }
  if (list != nullptr) {
    shares = fields.numbers(key, spec.n_layers);
    QSF_RETURN_IF_ERROR(fields.status());
    if (shares.size() != spec.n_layers) {
      return corrupt("%s: %zu numbers, expected one for each of %u layers", key, shares.size(),
                     spec.n_layers);
    }
  }
  float of_cut_layers = 0.0F;
  std::vector<std::uint32_t> cut;
  for (const float share : shares) {
    if (!(share >= 0.0F && share < 1.0F)) {
      return corrupt("%s: %g, expected at least 0 and less than 1", key,
                     static_cast<double>(share));
    }
    cut.push_back(share > 0.0F ? 1 : 0);
    if (share == 0.0F) continue;
    if (of_cut_layers != 0.0F && of_cut_layers != share) {
      return unsupported("%s: %g in one layer and %g in another is not supported", key,
                         static_cast<double>(of_cut_layers), static_cast<double>(share));
    }
    of_cut_layers = share;
  }
  if (of_cut_layers == 0.0F) return ok_status();
  spec.ffn_cutoff = normal_quantile(of_cut_layers);
  spec.ffn_cutoff_layers = std::move(cut);
  return ok_status();
}

Status parse_streams(ConfigFields& fields, ModelSpec& spec) {
  spec.n_streams = fields.u32_or("altup_num_inputs", 4, 2, 8);
  spec.laurel_dim = fields.u32_or("laurel_rank", 64, 2, 1U << 16);
  spec.layer_input_dim = fields.u32_or("hidden_size_per_layer_input", 256, 2, 1U << 16);
  const char* rows_key = "vocab_size_per_layer_input";
  const std::uint32_t n_rows = fields.u32_or(rows_key, 262144, 1, 1U << 24);
  const std::uint32_t active = fields.u32_or("altup_active_idx", 0, 0, 7);
  QSF_RETURN_IF_ERROR(fields.status());
  if (active != 0) {
    return unsupported("altup_active_idx: %u is not supported, expected 0", active);
  }
  if (n_rows > spec.n_vocab) {
    return unsupported("%s: %u is not supported, expected at most vocab_size, %u", rows_key, n_rows,
                       spec.n_vocab);
  }
  spec.layer_input_rows = n_rows == spec.n_vocab ? 0 : n_rows;
  return refuse(fields, "altup_correct_scale", false);
}

}  // namespace

Status parse_gemma3n(ConfigFields& fields, HfConfig& config) {
  constexpr float kLocalTheta = 10000.0F;
  ModelSpec& spec = config.spec;
  spec.architecture = "gemma3n";
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.tied_head = true,
                                     .n_heads = 8,
                                     .max_positions = 32768,
                                     .n_kv_heads = 2,
                                     .head_dim = 256,
                                     .ffn_by_layer = true,
                                     .rope_theta = 1000000.0F,
                                     .rope_by_layer = true},
                                    spec));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F;
  spec.value_norms = true;
  const std::string activation = fields.text("hidden_activation", "gelu_pytorch_tanh");
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation("hidden_activation", activation));
  QSF_RETURN_IF_ERROR(refuse(fields, "attention_bias", true));
  const char* cap_key = "final_logit_softcapping";
  if (!fields.is_null(cap_key)) spec.logit_soft_cap = fields.positive(cap_key, 30.0F);
  const std::uint32_t window = fields.u32_or("sliding_window", 512, 1, 1U << 30);
  const float theta = fields.positive("rope_local_base_freq", kLocalTheta);
  const std::uint32_t n_sharing = fields.u32_or("num_kv_shared_layers", 15, 0, spec.n_layers - 1);
  QSF_RETURN_IF_ERROR(fields.status());
  if (n_sharing >= spec.n_layers) {
    return corrupt("num_kv_shared_layers: %u of %u layers, expected fewer", n_sharing,
                   spec.n_layers);
  }
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, local_layers(fields, spec.n_layers, 5));
  set_local_windows(local, window, spec);
  QSF_RETURN_IF_ERROR(parse_sparsity(fields, spec));
  QSF_RETURN_IF_ERROR(parse_streams(fields, spec));
  QSF_RETURN_IF_ERROR(Status(share_kv(n_sharing, spec)).with_context("num_kv_shared_layers"));
  return parse_local_rope(fields, local, theta, spec);
}

}  // namespace qsf
