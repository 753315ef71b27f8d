// SPDX-License-Identifier: MIT
//
// Which earlier positions a session still attends to, for those who draw or judge what was kept.

#include <algorithm>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace qsf {

void Engine::Impl::add_visible(SequenceId sequence, std::uint32_t layer, std::uint32_t kv_head,
                               std::vector<std::uint32_t>& positions) const {
  const std::uint32_t next = kv->n_slots(sequence);
  if (!h2o.empty()) {
    for (const std::int32_t member : h2o[sequence].members(layer, kv_head)) {
      positions.push_back(static_cast<std::uint32_t>(member));
    }
    for (std::uint32_t slot = h2o[sequence].chunk_start(layer); slot < next; ++slot) {
      positions.push_back(slot);
    }
    return;
  }
  if (!heavy.empty()) {
    const auto members = heavy[sequence].members(layer, kv_head);
    for (const std::int32_t member : members.first(heavy[sequence].n_members(layer))) {
      positions.push_back(static_cast<std::uint32_t>(member));
    }
    std::sort(positions.begin(), positions.end());
  }
  const VisibleSet visible = visible_at(next);
  const std::uint32_t window = reader->spec().window_of(layer);
  const KvPolicyOptions& policy = options.kv_policy;
  const bool by_place = policy.rope_reindex && visible.first > visible.sinks;
  const std::uint32_t behind_sinks = by_place ? policy.sinks + policy.window - 1 : next;
  const auto add = [&](std::uint32_t first, std::uint32_t last, std::uint32_t met_at) {
    for (std::uint32_t slot = first; slot < last; ++slot) {
      if (window == 0 || met_at - slot < window) positions.push_back(slot);
    }
  };
  add(0, std::min(visible.sinks, visible.first), behind_sinks);
  add(visible.first, next, next);
}

Status Session::visible_positions(std::uint32_t layer, std::uint32_t kv_head,
                                  std::vector<std::uint32_t>& positions) {
  QSF_DCHECK(layer < engine_.reader->spec().n_layers);
  QSF_DCHECK(kv_head < engine_.reader->spec().n_kv_heads);
  QSF_RETURN_IF_ERROR(compute_lost_rows());
  positions.clear();
  engine_.add_visible(sequence_, layer, kv_head, positions);
  return ok_status();
}

}  // namespace qsf
