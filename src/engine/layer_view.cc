// SPDX-License-Identifier: MIT

#include "engine/layer_view.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/ranges.h"
#include "engine/engine_impl.h"

namespace qsf {

const ModelSpec& LayerView::spec() const noexcept {
  return engine_.reader->spec();
}

void LayerView::cancel() const noexcept {
  engine_.cancel.store(true, std::memory_order_relaxed);
}

std::span<const float> LayerView::hidden(std::uint32_t row) const noexcept {
  QSF_DCHECK(row < rows_.size());
  return engine_.decoder->read_hidden(row);
}

std::optional<std::uint32_t> LayerView::kv_layer() const noexcept {
  if (!spec().attends(layer_) || !spec().owns_kv(layer_)) return {};
  return engine_.decoder->kv_place(layer_);
}

std::optional<KvShape> LayerView::kv_shape() const noexcept {
  const auto layer = kv_layer();
  if (!layer.has_value()) return {};
  return engine_.kv->shape().of_layer(*layer);
}

std::uint64_t LayerView::kv_bytes() const noexcept {
  const std::optional<KvShape> shape = kv_shape();
  if (!shape.has_value()) return 0;
  std::uint64_t n_pages = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const SequenceId sequence = rows_[i].sequence;
    const auto before = rows_.first(i);
    // Rows of a sequence are neighbours.
    if (!before.empty() && before.back().sequence == sequence) continue;
    n_pages += engine_.kv->n_held_pages(sequence);
    if (engine_.h2o_eviction.empty()) continue;
    n_pages += kv_pages_for(engine_.h2o_eviction[sequence].n_members(*kv_layer()));
  }
  return n_pages * shape->layer_bytes();
}

ByteSpan LayerView::kv_block(std::uint32_t row, std::uint32_t kv_head, KvPart part,
                             std::uint32_t first_slot) const noexcept {
  QSF_DCHECK(row < rows_.size() && first_slot % kKvPageSlots == 0);
  const KvShape shape = kv_shape().value();
  QSF_DCHECK(kv_head < shape.n_kv_heads);
  const SequenceId sequence = rows_[row].sequence;
  if (engine_.spilled != nullptr || !shape.holds(part) ||
      first_slot >= engine_.kv->n_slots(sequence) ||
      !engine_.kv->holds(sequence, first_slot, first_slot + 1)) {
    return {};
  }
  const KvLayerPages pages = engine_.kv_store->acquire_layer(*kv_layer());
  return {pages.page(engine_.kv->page_of(sequence, first_slot)) + shape.block_offset(kv_head, part),
          static_cast<std::size_t>(shape.block_bytes(part))};
}

Status LayerView::attention(std::uint32_t row, std::uint32_t kv_head, std::span<float> mass) const {
  QSF_DCHECK(row < rows_.size());
  if (engine_.h2o_eviction.empty()) {
    return unsupported(
        "attention of layer %u: sums are kept by kv policy h2o alone; use it, with "
        "a window as long as the context to evict nothing",
        layer_);
  }
  const std::uint32_t layer = kv_layer().value();
  H2oEviction& eviction = engine_.h2o_eviction[rows_[row].sequence];
  const H2oEviction::Sums block = eviction.block_sums(layer, kv_head);
  const H2oEviction::Sums tile = eviction.tile_sums(layer, kv_head);
  ranges::fill(mass, std::numeric_limits<float>::quiet_NaN());
  const auto members = eviction.members(layer, kv_head);
  const auto totals = eviction.totals(layer, kv_head);
  for (std::uint32_t m = 0; m < eviction.n_members(layer); ++m) {
    const auto position = static_cast<std::size_t>(members[m]);
    if (position < mass.size()) mass[position] = totals[m] + block.heavy[m] + tile.heavy[m];
  }
  const auto recent = eviction.recent_totals(layer, kv_head);
  const std::uint32_t first = eviction.first_recent(layer);
  for (std::uint32_t p = first; p < std::min<std::size_t>(eviction.scored_end(layer), mass.size());
       ++p) {
    mass[p] = recent[p - first] + block.recent[p - first] + tile.recent[p - first];
  }
  return ok_status();
}

}  // namespace qsf
