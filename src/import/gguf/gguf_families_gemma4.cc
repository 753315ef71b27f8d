// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "import/gguf/gguf_families.h"

namespace qsf {
namespace {

// Layers with a window have heads of their own width; the keys without "_swa" are those of the
// others.
void read_gemma4_heads(GgufFields& fields, ModelSpec& spec) {
  const char* heads_key = "attention.head_count_kv";
  std::vector<std::uint32_t> counts(spec.n_layers, spec.n_kv_heads);
  if (fields.is_array(heads_key)) counts = fields.u32_array(heads_key, spec.n_layers, 1U << 16);
  const std::uint32_t width = fields.u32_or("attention.key_length_swa", spec.head_dim, 1, 1U << 16);
  fields.refuse_unread("attention.value_length_swa", width);
  fields.refuse_unread("rope.dimension_count_swa", width);
  std::vector<KvHeads> heads;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    heads.push_back({.n_kv_heads = counts[layer],
                     .head_dim = spec.window_of(layer) != 0 ? width : spec.head_dim});
  }
  set_layer_heads(std::move(heads), spec);
}

// Divisors of 1 and then of 1e30 say which pairs turn, in layers that see everything.
Status read_turning_pairs(RopeSpec& rope) {
  if (rope.scaling != RopeScaling::kLongrope) return ok_status();
  constexpr float kUnturnedDivisor = 1e20F;
  const std::vector<float>& factors = rope.short_factors;
  const auto stands =
      std::find_if(factors.begin(), factors.end(), [](float f) { return f != 1.0F; });
  const bool plain = stands != factors.begin() && std::all_of(stands, factors.end(), [](float f) {
                       return f > kUnturnedDivisor;
                     });
  if (!plain) {
    return unsupported("GGUF: rope_freqs.weight: expected factors of 1 and behind them of 1e30");
  }
  const auto n_turning = static_cast<std::uint32_t>(stands - factors.begin());
  rope = {.theta = rope.theta,
          .dims = rope.dims,
          .n_turning = n_turning == factors.size() ? 0 : n_turning};
  return ok_status();
}

}  // namespace

Status finish_gemma4(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F;
  spec.value_norms = true;
  spec.logit_soft_cap = fields.positive_or("final_logit_softcapping", 0.0F);
  spec.layer_input_dim = fields.u32_or("embedding_length_per_layer_input", 0, 0, 1U << 16);
  const std::uint32_t n_sharing =
      fields.u32_or("attention.shared_kv_layers", 0, 0, spec.n_layers - 1);
  const std::uint32_t window = fields.u32("attention.sliding_window", 1, 1U << 30);
  for (const bool local : fields.pattern("attention.sliding_window_pattern", spec.n_layers, 6)) {
    spec.sliding_window.push_back(local ? window : 0);
    const LayerRope rope = local ? LayerRope::kLocal : LayerRope::kMain;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
  spec.local_rope_theta = fields.positive("rope.freq_base_swa", 10000.0F);
  read_gemma4_heads(fields, spec);
  QSF_RETURN_IF_ERROR(fields.status());
  std::vector<std::uint32_t> key_values;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const std::string name = "blk." + std::to_string(layer) + ".attn_v.weight";
    const bool own = layer < spec.n_layers - n_sharing;
    key_values.push_back(own && file.find(name) == nullptr ? 1 : 0);
  }
  const bool any = std::count(key_values.begin(), key_values.end(), 1U) != 0;
  if (any) spec.key_value_layers = std::move(key_values);
  QSF_RETURN_IF_ERROR(share_kv(n_sharing, spec).with_context("attention.shared_kv_layers"));
  return read_turning_pairs(spec.rope);
}

bool has_gemma4_experts(const GgufFile& file) {
  const auto count = file.keys().get_unsigned("gemma4.expert_count");
  return count.has_value() && count->value_or(0) != 0;
}

Status finish_gemma4moe(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  fields.refuse_unread("attention.shared_kv_layers", 0.0);
  fields.refuse_unread("embedding_length_per_layer_input", 0.0);
  QSF_RETURN_IF_ERROR(finish_gemma4(file, fields, spec));
  spec.experts_beside_ffn = true;
  spec.expert_renormalised = true;
  spec.n_experts = fields.u32("expert_count", 2, 1U << 16);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32("expert_used_count", 1, spec.n_experts);
  spec.expert_ffn = fields.u32("expert_feed_forward_length", 1, 1U << 24);
  fields.refuse_unread("expert_gating_func", 1.0);
  fields.refuse_unread("expert_weights_scale", 1.0);
  fields.refuse_unread("expert_shared_count", 0.0);
  return fields.status();
}

}  // namespace qsf
