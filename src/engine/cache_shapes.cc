// SPDX-License-Identifier: MIT
//
// The shapes of a model's caches: keys and values, and states.

#include <algorithm>
#include <span>

#include "engine/engine_plan.h"

namespace qsf {

KvShape kv_shape(const ModelSpec& spec, const EngineOptions& options) {
  // A part of a model may have none of these layers, but its sequences have slots like the others'.
  const std::uint32_t n_layers = std::max(spec.n_kv_layers(), 1U);
  const std::span<const KvHeads> heads = spec.layer_heads;
  return {.n_layers = n_layers,
          .n_kv_heads = spec.n_kv_heads,
          .head_dim = spec.head_dim,
          .k_type = options.k_type,
          .v_type = spec.has_latent() ? options.k_type : options.v_type,
          .keys_are_values = spec.has_latent(),
          .by_layer = heads.empty() ? heads : heads.first(n_layers)};
}

StateShape state_shape(const ModelSpec& spec) noexcept {
  if (!spec.has_state()) return {};
  return {.n_layers = spec.n_state_layers(),
          .layer_size = (spec.conv_taps - 1) * spec.conv_channels() + spec.scan_values()};
}

}  // namespace qsf
