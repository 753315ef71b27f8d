// SPDX-License-Identifier: MIT
//
// H2oEviction in files: which of their bytes are kept, and whether bytes from a file can be
// believed.
//
// Where a layer stands follows from the number of positions, so no file says it.

#include <algorithm>

#include "kv/h2o_eviction.h"
#include "kv/h2o_ranking.h"
#include "kv/kv_block.h"

namespace qsf {

std::array<MutableByteSpan, H2oEviction::kSavedParts> H2oEviction::saved_parts(
    std::uint32_t layer, std::uint32_t kv_head) noexcept {
  const std::uint32_t n_used = n_members(layer);
  const std::uint32_t first = first_recent(layer);
  const bool is_open = scored_end(layer) != block_start(layer);
  const std::uint32_t n_paid = is_open ? n_used : 0;
  const std::uint32_t n_recent_paid = is_open ? scored_end(layer) - first : 0;
  const Sums block = block_sums(layer, kv_head);
  const Sums strip = strip_sums(layer, kv_head);
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
          bytes(strip.heavy, n_paid),
          bytes(strip.recent, n_recent_paid)};
}

bool H2oEviction::stands_at(std::uint32_t n_positions) const noexcept {
  return std::ranges::all_of(scored_ends_, [=](std::uint32_t end) { return end == n_positions; });
}

void H2oEviction::resume_at(std::uint32_t n_positions) noexcept {
  QSF_CHECK(stands_at(0) && n_positions <= shape_.kv_size);
  std::ranges::fill(scored_ends_, n_positions);
}

Status H2oEviction::check(std::uint32_t n_positions) const {
  if (n_positions > shape_.kv_size) {
    return corrupt("heavy hitters: %u positions: expected at most %u", n_positions, shape_.kv_size);
  }
  for (std::uint32_t layer = 0; layer < shape_.kv.n_layers; ++layer) {
    if (scored_end(layer) != n_positions) {
      return corrupt("heavy hitters: layer %u is at position %u: expected %u", layer,
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
      return corrupt("heavy hitters: layer %u, head %u: slot %zu holds position %d: expected %s %u",
                     layer, kv_head, m, position, used ? "one below" : "-1 from slot",
                     used ? first_recent(layer) : n_members(layer));
    }
    if (used) sorted[m] = static_cast<std::uint64_t>(position);
  }
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) {
    return corrupt("heavy hitters: layer %u, head %u: position %u is there twice", layer, kv_head,
                   static_cast<unsigned>(*twice));
  }
  for (std::uint32_t p = 0; p < std::min(shape_.options.sinks, first_recent(layer)); ++p) {
    if (sorted[p] == p) continue;
    return corrupt("heavy hitters: layer %u, head %u: position %u, a sink, is missing", layer,
                   kv_head, p);
  }
  for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
    for (std::uint32_t i = 0; i < kv_pages_for(shape_.n_slots()); ++i) {
      const ByteSpan bytes(kv_block(layer, kv_head, part, i),
                           static_cast<std::size_t>(shape_.kv.block_bytes(part)));
      if (kv_block_is_finite(shape_.kv, part, bytes)) continue;
      return corrupt("heavy hitters: layer %u, head %u: a number of its %s is not finite", layer,
                     kv_head, part == KvPart::kKeys ? "keys" : "values");
    }
  }
  return check_sums(layer, kv_head);
}

Status H2oEviction::check_sums(std::uint32_t layer, std::uint32_t kv_head) const {
  for (const std::span<const float> sums :
       {totals(layer, kv_head), recent_totals(layer, kv_head),
        head_array<const float>(layer, kv_head, at_.block_sums, n_sums()),
        head_array<const float>(layer, kv_head, at_.strip_sums, n_sums())}) {
    for (const float sum : sums) {
      if (is_attention_sum(sum)) continue;
      return corrupt(
          "heavy hitters: layer %u, head %u: %g as a sum of attention: expected 0 or more", layer,
          kv_head, static_cast<double>(sum));
    }
  }
  return ok_status();
}

}  // namespace qsf
