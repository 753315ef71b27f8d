// SPDX-License-Identifier: MIT
//
// Slots, sums and the choice of heavy hitters, and their parts in session files.

#include "kv/h2o_eviction.h"

#include <functional>
#include <numeric>

#include "base/bit_cast.h"
#include "base/ranges.h"
#include "kv/h2o_common.h"
#include "kv/kv_block.h"

namespace qsf {
namespace {

// Candidates of a head when a block closes.
std::uint64_t most_candidates(const H2oEvictionShape& shape) noexcept {
  return std::uint64_t{shape.n_slots()} + kEvictionBlock;
}

}  // namespace

H2oEviction::Layout H2oEviction::layout_of(const H2oEvictionShape& shape) noexcept {
  const std::uint64_t n_pages = kv_pages_for(shape.n_slots());
  const std::uint64_t n_sums = std::uint64_t{shape.n_slots()} + shape.n_recent();
  Layout at{};
  at.values = offset_behind(0, n_pages, shape.kv.block_bytes(KvPart::kKeys), 1);
  at.positions = offset_behind(at.values, n_pages, shape.kv.block_bytes(KvPart::kValues), 1);
  at.totals = offset_behind(at.positions, n_pages, kKvPageSlots, sizeof(std::int32_t));
  at.recent_totals = offset_behind(at.totals, 1, shape.n_slots(), sizeof(float));
  at.block_sums = offset_behind(at.recent_totals, 1, shape.n_recent(), sizeof(float));
  at.tile_sums = offset_behind(at.block_sums, 1, n_sums, sizeof(float));
  at.head_bytes = offset_behind(at.tile_sums, 1, n_sums, sizeof(float));
  at.scored_ends =
      offset_behind(0, std::uint64_t{shape.kv.n_layers} * shape.kv.n_kv_heads, at.head_bytes, 1);
  at.work = offset_behind(at.scored_ends, 1, shape.kv.n_layers, sizeof(std::uint32_t));
  at.work_bytes =
      offset_behind(0, most_candidates(shape),
                    2 * sizeof(std::uint64_t) + sizeof(std::int32_t) + 2 * sizeof(float), 1);
  at.end = offset_behind(at.work, shape.kv.n_kv_heads, at.work_bytes, 1);
  return at;
}

std::uint64_t H2oEviction::region_bytes(const H2oEvictionShape& shape) noexcept {
  return layout_of(shape).end;
}

Result<H2oEviction> H2oEviction::create(const H2oEvictionShape& shape, MutableByteSpan region) {
  KvPolicyOptions options = shape.options;
  options.policy = KvPolicy::kH2o;
  QSF_RETURN_IF_ERROR(validate(options));
  const std::uint64_t n_bytes = region_bytes(shape);
  const KvShape& kv = shape.kv;
  if (kv.n_layers == 0 || kv.n_kv_heads == 0 || kv.head_dim == 0 || shape.kv_size == 0 ||
      shape.kv_size > kMaxPolicyPositions || n_bytes >= kMaxRegionBytes) {
    return invalid_argument(
        "h2o eviction: %u layers x %u heads x %u elements, %u positions: expected numbers above 0 "
        "whose products fit",
        kv.n_layers, kv.n_kv_heads, kv.head_dim, shape.kv_size);
  }
  QSF_CHECK(region.size() >= n_bytes);
  QSF_CHECK(bit_cast<std::uintptr_t>(region.data()) % 64 == 0);

  H2oEviction heavy;
  heavy.shape_ = shape;
  heavy.at_ = layout_of(shape);
  heavy.region_ = region.first(static_cast<std::size_t>(n_bytes));
  heavy.scored_ends_ = {reinterpret_cast<std::uint32_t*>(region.data() + heavy.at_.scored_ends),
                        kv.n_layers};
  heavy.clear_all();
  return heavy;
}

// No position: zeros everywhere except in the positions of slots.
void H2oEviction::clear_all() noexcept {
  std::fill(region_.begin(), region_.end(), std::byte{0});
  const std::size_t n = std::size_t{kv_pages_for(shape_.n_slots())} * kKvPageSlots;
  for (std::uint32_t layer = 0; layer < shape_.kv.n_layers; ++layer) {
    for (std::uint32_t kv_head = 0; kv_head < shape_.kv.n_kv_heads; ++kv_head) {
      ranges::fill(head_array<std::int32_t>(layer, kv_head, at_.positions, n), -1);
    }
  }
}

std::span<const std::int32_t> H2oEviction::members(std::uint32_t layer,
                                                   std::uint32_t kv_head) const noexcept {
  return head_array<const std::int32_t>(layer, kv_head, at_.positions, shape_.n_slots());
}
std::span<const float> H2oEviction::totals(std::uint32_t layer,
                                           std::uint32_t kv_head) const noexcept {
  return head_array<const float>(layer, kv_head, at_.totals, shape_.n_slots());
}
std::span<const float> H2oEviction::recent_totals(std::uint32_t layer,
                                                  std::uint32_t kv_head) const noexcept {
  return head_array<const float>(layer, kv_head, at_.recent_totals, shape_.n_recent());
}

std::byte* H2oEviction::slot_block(std::uint32_t layer, std::uint32_t kv_head, KvPart part,
                                   std::uint32_t i) const noexcept {
  QSF_DCHECK(i < kv_pages_for(shape_.n_slots()));
  const std::uint64_t of_part = part == KvPart::kKeys ? 0 : at_.values;
  return head_array<std::byte>(layer, kv_head, of_part + i * shape_.kv.block_bytes(part), 1).data();
}
const std::byte* H2oEviction::kv_block(std::uint32_t layer, std::uint32_t kv_head, KvPart part,
                                       std::uint32_t i) const noexcept {
  return slot_block(layer, kv_head, part, i);
}

H2oEviction::Sums H2oEviction::sums_at(std::uint32_t layer, std::uint32_t kv_head,
                                       std::uint64_t offset) const noexcept {
  const std::size_t n_slots = shape_.n_slots();
  const auto sums = head_array<float>(layer, kv_head, offset, n_slots + shape_.n_recent());
  return {sums.first(n_slots), sums.subspan(n_slots)};
}
H2oEviction::Sums H2oEviction::block_sums(std::uint32_t layer, std::uint32_t kv_head) noexcept {
  return sums_at(layer, kv_head, at_.block_sums);
}
H2oEviction::Sums H2oEviction::tile_sums(std::uint32_t layer, std::uint32_t kv_head) noexcept {
  return sums_at(layer, kv_head, at_.tile_sums);
}

H2oEviction::Work H2oEviction::work_of(std::uint32_t kv_head) const noexcept {
  const auto n = static_cast<std::size_t>(most_candidates(shape_));
  auto* keys =
      reinterpret_cast<std::uint64_t*>(region_.data() + at_.work + kv_head * at_.work_bytes);
  auto* positions = reinterpret_cast<std::int32_t*>(keys + 2 * n);
  auto* sums = reinterpret_cast<float*>(positions + n);
  return {{keys, n}, {keys + n, n}, {positions, n}, {sums, n}, {sums + n, n}};
}

// Of the current block.
void H2oEviction::clear_sums(std::uint32_t layer, std::uint32_t kv_head) noexcept {
  for (const std::uint64_t offset : {at_.block_sums, at_.tile_sums}) {
    const Sums sums = sums_at(layer, kv_head, offset);
    ranges::fill(sums.heavy, 0.0F);
    ranges::fill(sums.recent, 0.0F);
  }
}

// Writes the keys of all candidates: members by slot, then the positions that leave the window.
// Returns the smallest key that is kept; 0, and writes none, where all are.
std::uint64_t H2oEviction::rank_candidates(std::uint32_t layer, std::uint32_t kv_head,
                                           std::uint32_t next_recent) noexcept {
  const std::uint32_t n_old = n_members(layer);
  const std::uint32_t first = first_recent(layer);
  const std::size_t n = n_old + std::size_t{next_recent - first};
  if (n <= shape_.n_slots()) return 0;
  const Work work = work_of(kv_head);
  const auto positions = work.positions.first(n);
  const auto sums = work.sums.first(n);
  const auto ranks = work.ranks.first(n);
  ranges::copy(members(layer, kv_head).first(n_old), positions.begin());
  std::iota(positions.begin() + n_old, positions.end(), static_cast<std::int32_t>(first));
  ranges::copy(totals(layer, kv_head).first(n_old), sums.begin());
  ranges::copy(recent_totals(layer, kv_head).first(n - n_old), sums.begin() + n_old);
  const std::uint32_t end = block_start(layer) + kEvictionBlock;
  for (std::size_t i = 0; i < n; ++i) {
    ranks[i] = h2o_rank(H2oRanking::kMean, sums[i], static_cast<std::uint32_t>(positions[i]), end);
  }
  if (const H2oRanker& ranker = shape_.ranker; ranker.rank != nullptr) {
    ranker.rank({layer, kv_head, shape_.n_slots(), end, positions, sums}, ranks, ranker.user);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const auto position = static_cast<std::uint32_t>(positions[i]);
    work.keys[i] =
        position < shape_.options.sinks ? h2o_sink_key(position) : h2o_rank_key(ranks[i], position);
  }
  const auto ordered = work.ordered.first(n);
  std::copy_n(work.keys.begin(), n, ordered.begin());
  const auto last = ordered.begin() + (shape_.n_slots() - 1);
  std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
  return *last;
}

void H2oEviction::close_head(std::uint32_t layer, std::uint32_t kv_head, const KvCache& kv,
                             SequenceId sequence, const KvLayerPages& pages) noexcept {
  const auto positions = head_array<std::int32_t>(layer, kv_head, at_.positions, shape_.n_slots());
  const auto heavy_totals = head_array<float>(layer, kv_head, at_.totals, shape_.n_slots());
  const auto near_totals = head_array<float>(layer, kv_head, at_.recent_totals, shape_.n_recent());
  const Sums sums = block_sums(layer, kv_head);
  for (std::size_t i = 0; i < sums.heavy.size(); ++i) heavy_totals[i] += sums.heavy[i];
  for (std::size_t i = 0; i < sums.recent.size(); ++i) near_totals[i] += sums.recent[i];
  clear_sums(layer, kv_head);

  const std::uint32_t first = first_recent(layer);
  const std::uint32_t next_recent =
      first_recent_position(block_start(layer) + kEvictionBlock, shape_.options.window);
  const std::uint32_t n_leaving = next_recent - first;
  if (n_leaving == 0) return;
  if (shape_.n_slots() != 0) {
    const std::uint64_t least = rank_candidates(layer, kv_head, next_recent);
    const auto keys = work_of(kv_head).keys;
    const std::uint32_t n_old = n_members(layer);
    std::uint32_t slot = 0;  // the next that may be free
    for (std::uint32_t i = 0; i < n_leaving; ++i) {
      if (keys[n_old + i] < least) continue;
      while (slot < n_old && keys[slot] >= least) ++slot;
      QSF_DCHECK(slot < shape_.n_slots());
      positions[slot] = static_cast<std::int32_t>(first + i);
      heavy_totals[slot] = near_totals[i];
      const std::byte* page = pages.page(kv.page_of(sequence, first + i));
      for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
        copy_slot(shape_.kv, part,
                  {page + shape_.kv.block_offset(kv_head, part), (first + i) % kKvPageSlots},
                  {slot_block(layer, kv_head, part, slot / kKvPageSlots), slot % kKvPageSlots});
      }
      ++slot;
    }
  }
  std::copy(near_totals.begin() + n_leaving, near_totals.end(), near_totals.begin());
  ranges::fill(near_totals.last(n_leaving), 0.0F);
}

void H2oEviction::mark_scored(std::uint32_t layer, std::uint32_t end) noexcept {
  QSF_CHECK(layer < scored_ends_.size() && end <= shape_.kv_size);
  QSF_CHECK(end >= scored_end(layer) && end - block_start(layer) <= kEvictionBlock);
  scored_ends_[layer] = end;
}

std::uint32_t H2oEviction::truncate(std::uint32_t n_positions) noexcept {
  const auto [least, most] = ranges::minmax_element(scored_ends_);
  // After an incomplete pass the layers differ; the smallest end is common to all.
  std::uint32_t keep = *least == *most ? n_positions : std::min(n_positions, *least);
  if (*most > keep) {
    const std::uint32_t start = keep / kEvictionBlock * kEvictionBlock;
    keep = *most - start < kEvictionBlock ? start : 0;
  }
  if (keep == 0) {
    clear_all();
    return 0;
  }
  for (std::uint32_t layer = 0; layer < shape_.kv.n_layers; ++layer) {
    if (scored_end(layer) <= keep) continue;
    for (std::uint32_t kv_head = 0; kv_head < shape_.kv.n_kv_heads; ++kv_head) {
      clear_sums(layer, kv_head);
    }
    scored_ends_[layer] = keep;
  }
  return keep;
}

// Session files. Where a layer stands follows from the number of positions, so no file holds it.

std::array<MutableByteSpan, H2oEviction::kSavedParts> H2oEviction::saved_parts(
    std::uint32_t layer, std::uint32_t kv_head) noexcept {
  const std::uint32_t n_used = n_members(layer);
  const std::uint32_t first = first_recent(layer);
  const bool is_open = scored_end(layer) != block_start(layer);
  const std::uint32_t n_paid = is_open ? n_used : 0;
  const std::uint32_t n_recent_paid = is_open ? scored_end(layer) - first : 0;
  const Sums block = block_sums(layer, kv_head);
  const Sums tile = tile_sums(layer, kv_head);
  const auto blocks = [&](KvPart part) {
    return MutableByteSpan(slot_block(layer, kv_head, part, 0),
                           static_cast<std::size_t>(kv_pages_for(n_used)) *
                               static_cast<std::size_t>(shape_.kv.block_bytes(part)));
  };
  const auto bytes = [](auto span, std::size_t n) { return std::as_writable_bytes(span.first(n)); };
  return {n_used == 0 ? MutableByteSpan() : blocks(KvPart::kKeys),
          n_used == 0 ? MutableByteSpan() : blocks(KvPart::kValues),
          std::as_writable_bytes(head_array<std::int32_t>(layer, kv_head, at_.positions, n_used)),
          std::as_writable_bytes(head_array<float>(layer, kv_head, at_.totals, n_used)),
          std::as_writable_bytes(
              head_array<float>(layer, kv_head, at_.recent_totals, block_start(layer) - first)),
          bytes(block.heavy, n_paid),
          bytes(block.recent, n_recent_paid),
          bytes(tile.heavy, n_paid),
          bytes(tile.recent, n_recent_paid)};
}

bool H2oEviction::stands_at(std::uint32_t n_positions) const noexcept {
  return ranges::all_of(scored_ends_, [=](std::uint32_t end) { return end == n_positions; });
}

void H2oEviction::resume_at(std::uint32_t n_positions) noexcept {
  QSF_CHECK(stands_at(0) && n_positions <= shape_.kv_size);
  ranges::fill(scored_ends_, n_positions);
}

Status H2oEviction::check(std::uint32_t n_positions) const {
  if (n_positions > shape_.kv_size) {
    return corrupt("h2o eviction: %u positions: expected at most %u", n_positions, shape_.kv_size);
  }
  for (std::uint32_t layer = 0; layer < shape_.kv.n_layers; ++layer) {
    if (scored_end(layer) != n_positions) {
      return corrupt("h2o eviction: layer %u is at position %u: expected %u", layer,
                     scored_end(layer), n_positions);
    }
    for (std::uint32_t kv_head = 0; kv_head < shape_.kv.n_kv_heads; ++kv_head) {
      QSF_RETURN_IF_ERROR(check_head(layer, kv_head));
    }
  }
  return ok_status();
}

Status H2oEviction::check_head(std::uint32_t layer, std::uint32_t kv_head) const {
  const auto positions = members(layer, kv_head);
  const auto sorted = work_of(kv_head).keys.first(n_members(layer));
  for (std::size_t m = 0; m < positions.size(); ++m) {
    const bool used = m < sorted.size();
    const std::int32_t position = positions[m];
    if (used ? position < 0 || position >= static_cast<std::int32_t>(first_recent(layer))
             : position != -1) {
      return corrupt("h2o eviction: layer %u, head %u: slot %zu holds position %d: expected %s %u",
                     layer, kv_head, m, position, used ? "one below" : "-1 from slot",
                     used ? first_recent(layer) : n_members(layer));
    }
    if (used) sorted[m] = static_cast<std::uint64_t>(position);
  }
  ranges::sort(sorted);
  const auto twice = ranges::adjacent_find(sorted);
  if (twice != sorted.end()) {
    return corrupt("h2o eviction: layer %u, head %u: position %u appears twice", layer, kv_head,
                   static_cast<unsigned>(*twice));
  }
  for (std::uint32_t p = 0; p < std::min(shape_.options.sinks, first_recent(layer)); ++p) {
    if (sorted[p] == p) continue;
    return corrupt("h2o eviction: layer %u, head %u: position %u, a sink, is missing", layer,
                   kv_head, p);
  }
  for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
    for (std::uint32_t i = 0; i < kv_pages_for(shape_.n_slots()); ++i) {
      const ByteSpan bytes(kv_block(layer, kv_head, part, i),
                           static_cast<std::size_t>(shape_.kv.block_bytes(part)));
      if (kv_block_is_finite(shape_.kv, part, bytes)) continue;
      return corrupt("h2o eviction: layer %u, head %u: a number of its %s is not finite", layer,
                     kv_head, part == KvPart::kKeys ? "keys" : "values");
    }
  }
  return check_sums(layer, kv_head);
}

Status H2oEviction::check_sums(std::uint32_t layer, std::uint32_t kv_head) const {
  for (const std::span<const float> sums :
       {totals(layer, kv_head), recent_totals(layer, kv_head),
        head_array<const float>(layer, kv_head, at_.block_sums, n_sums()),
        head_array<const float>(layer, kv_head, at_.tile_sums, n_sums())}) {
    for (const float sum : sums) {
      if (is_attention_sum(sum)) continue;
      return corrupt(
          "h2o eviction: layer %u, head %u: %g as a sum of attention: expected 0 or more", layer,
          kv_head, static_cast<double>(sum));
    }
  }
  return ok_status();
}

}  // namespace qsf
