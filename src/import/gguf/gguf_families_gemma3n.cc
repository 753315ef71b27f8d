// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "import/gguf/gguf_families.h"

namespace qsf {
namespace {

// The deviations above their mean at which gates of each layer are cut, -inf where they are not.
Status read_cutoffs(GgufFields& fields, ModelSpec& spec) {
  const char* key = "activation_sparsity_scale";
  std::vector<std::uint32_t> cut;
  bool some = false;
  for (const float deviations : fields.f32_array(key, spec.n_layers)) {
    const bool dense = std::isinf(deviations) && deviations < 0.0F;
    cut.push_back(dense ? 0 : 1);
    if (dense) continue;
    if (!std::isfinite(deviations)) {
      return corrupt("GGUF: key \"gemma3n.%s\": %g, expected a number or -inf", key,
                     static_cast<double>(deviations));
    }
    if (some && deviations != spec.ffn_cutoff) {
      return unsupported("GGUF: key \"gemma3n.%s\": %g in one layer and %g in another", key,
                         static_cast<double>(spec.ffn_cutoff), static_cast<double>(deviations));
    }
    spec.ffn_cutoff = deviations;
    some = true;
  }
  QSF_RETURN_IF_ERROR(fields.status());
  if (some) spec.ffn_cutoff_layers = std::move(cut);
  return ok_status();
}

}  // namespace

Status finish_gemma3n(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  fields.refuse_unread("altup.active_idx", 0.0);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F;
  spec.value_norms = true;
  spec.logit_soft_cap = fields.positive_or("final_logit_softcapping", 0.0F);
  spec.n_streams = fields.u32("altup.num_inputs", 2, 8);
  spec.layer_input_dim = fields.u32("embedding_length_per_layer_input", 2, 1U << 16);
  const std::uint32_t n_sharing = fields.u32("attention.shared_kv_layers", 0, spec.n_layers - 1);
  const std::uint32_t window = fields.u32("attention.sliding_window", 1, 1U << 30);
  for (const bool local : fields.pattern("attention.sliding_window_pattern", spec.n_layers, 5)) {
    spec.sliding_window.push_back(local ? window : 0);
    const LayerRope rope = local ? LayerRope::kLocal : LayerRope::kMain;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
  spec.local_rope_theta = fields.positive("rope.freq_base_swa", 10000.0F);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(read_cutoffs(fields, spec));
  const GgufFile::Entry* left = file.find("blk.0.laurel_l.weight");
  const GgufFile::Entry* table = file.find("per_layer_token_embd.weight");
  if (left == nullptr || table == nullptr) {
    return corrupt("GGUF: tensor \"%s\" is missing: no gemma3n without it",
                   left == nullptr ? "blk.0.laurel_l.weight" : "per_layer_token_embd.weight");
  }
  spec.laurel_dim =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(left->tensor->dims[1], UINT32_MAX));
  const std::uint64_t n_rows = table->tensor->dims[1];
  spec.layer_input_rows = n_rows < spec.n_vocab ? static_cast<std::uint32_t>(n_rows) : 0;
  return Status(share_kv(n_sharing, spec)).with_context("attention.shared_kv_layers");
}

}  // namespace qsf
