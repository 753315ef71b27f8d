// SPDX-License-Identifier: MIT
//
// H2oEviction: the heavy hitters of a sequence, their keys and values, by layer and KV head (H2O
// eviction, Zhang et al. 2023).
//
// Under KvPolicy::kH2o a sequence is cut into blocks of 64 positions that begin at 0, 64, 128 ...
// A row of the block that begins at c attends, in one softmax, to
//
//   heavy   at most H positions before c - W, chosen for its layer and KV head, sinks among them
//   recent  the positions max(0, c - W) .. its own
//
// These are W + 1 to W + 64 recent positions, and the number depends on the row's position alone.
// Recent positions lie in the pages of the sequence (kv/kv_cache.h). Heavy ones are copied from
// there, codes unchanged, into slots of this store before their pages are evicted.
//
//   current block  rows add their attention probabilities to f32 sums: first to those of their
//   query
//                  tile; complete tiles are added to those of the block
//   close_head     adds the block's sums to the totals of heavy and recent positions. Then the 64
//                  positions that leave the window compete with the heavy ones by the mean
//                  attention received (kv/h2o_common.h), or by what a ranker of the caller finds;
//                  sinks rank first. A new heavy hitter reuses the slot of an evicted one,
//                  positions and slots both ascending.
//
// An evicted position never comes back. Layers are independent: layer 0 may complete all blocks of
// a pass before layer 1 begins.
//
// All memory lies in a region that the caller plans; nothing is allocated after creation.

#ifndef QSF_KV_H2O_EVICTION_H_
#define QSF_KV_H2O_EVICTION_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "base/result.h"
#include "base/status.h"
#include "kv/h2o_ranker.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/kv_policy.h"
#include "kv/row.h"

namespace qsf {

// Positions of a block, after which heavy hitters are chosen anew.
inline constexpr std::uint32_t kEvictionBlock = kKvPageSlots;

// The first position that a row at `position` sees as recent.
constexpr std::uint32_t first_recent_position(std::uint32_t position,
                                              std::uint32_t window) noexcept {
  const std::uint32_t block_start = position / kEvictionBlock * kEvictionBlock;
  return block_start - std::min(block_start, window);
}

// Rows of a query tile: as many as make 64 queries of a KV head. The sums of an incomplete tile are
// stored in session files, so this number is part of the file format.
constexpr std::uint32_t eviction_tile_rows(std::uint32_t query_heads_per_kv_head) noexcept {
  return std::max(1U, 64 / query_heads_per_kv_head);
}

struct H2oEvictionShape {
  KvShape kv;
  std::uint32_t kv_size = 1;  // positions that a sequence can have
  KvPolicyOptions options;    // window, sinks and heavy
  H2oRanker ranker;           // null: the mean attention

  // Most heavy positions: those before the window.
  constexpr std::uint32_t n_slots() const noexcept {
    return std::min(options.heavy, kv_size - std::min(kv_size, options.window));
  }
  // Most recent positions, those of the current block included.
  constexpr std::uint32_t n_recent() const noexcept {
    return std::min(options.window, kv_size) + kEvictionBlock;
  }
};

// Threads  one at a time; different heads may be worked on by different threads
class H2oEviction {
 public:
  // Attention received by positions.
  struct Sums {
    std::span<float> heavy;   // [n_slots()], by slot
    std::span<float> recent;  // [n_recent()], from first_recent() on
  };

  // Bytes of the region that create() wants, saturated.
  static std::uint64_t region_bytes(const H2oEvictionShape& shape) noexcept;

  // Zeroes the region and starts with no position.
  // Requires  region.size() >= region_bytes(shape), 64-byte aligned, outliving the store
  // Fails     kInvalidArgument when a number of the shape is 0 or too large, or as validate()
  static Result<H2oEviction> create(const H2oEvictionShape& shape, MutableByteSpan region);

  H2oEviction(H2oEviction&&) noexcept = default;
  H2oEviction& operator=(H2oEviction&&) noexcept = default;
  H2oEviction(const H2oEviction&) = delete;
  H2oEviction& operator=(const H2oEviction&) = delete;

  const H2oEvictionShape& shape() const noexcept { return shape_; }

  // The end of the positions whose rows are in a layer's sums. From it follow the start of the
  // current block, the first recent position of the block's rows, and the number of used slots,
  // which are the first ones. Requires  layer < n_layers, here and below
  std::uint32_t scored_end(std::uint32_t layer) const noexcept {
    QSF_DCHECK(layer < scored_ends_.size());
    return scored_ends_[layer];
  }
  std::uint32_t block_start(std::uint32_t layer) const noexcept {
    return scored_end(layer) / kEvictionBlock * kEvictionBlock;
  }
  std::uint32_t first_recent(std::uint32_t layer) const noexcept {
    return first_recent_position(block_start(layer), shape_.options.window);
  }
  std::uint32_t n_members(std::uint32_t layer) const noexcept {
    return std::min(first_recent(layer), shape_.n_slots());
  }

  // The positions of a head's slots, [n_slots()]; -1 for unused ones. Behind them positions can be
  // read to the end of a page. Requires  kv_head < n_kv_heads, here and below
  std::span<const std::int32_t> members(std::uint32_t layer, std::uint32_t kv_head) const noexcept;
  // The attention they received in completed blocks, [n_slots()]; 0 for unused ones.
  std::span<const float> totals(std::uint32_t layer, std::uint32_t kv_head) const noexcept;
  // The same for the positions from first_recent() to block_start(), [n_recent()]; then zeros.
  std::span<const float> recent_totals(std::uint32_t layer, std::uint32_t kv_head) const noexcept;
  // Keys (values) of slots 64 i and following, as a block of a page (quant/kv_type.h); those of
  // unused slots are zeros. Requires  i < kv_pages_for(n_slots())
  const std::byte* kv_block(std::uint32_t layer, std::uint32_t kv_head, KvPart part,
                            std::uint32_t i) const noexcept;

  // Attention from rows of the current block: of complete tiles, and of the incomplete tile.
  Sums block_sums(std::uint32_t layer, std::uint32_t kv_head) noexcept;
  Sums tile_sums(std::uint32_t layer, std::uint32_t kv_head) noexcept;

  // Ends the current block of a head: adds block_sums to the totals, chooses the next heavy
  // positions and copies their keys and values.
  // Requires  every row of the block is in block_sums, and the sequence holds its recent positions
  //           in `pages` of the layer; slots of the sequence are positions
  void close_head(std::uint32_t layer, std::uint32_t kv_head, const KvCache& kv,
                  SequenceId sequence, const KvLayerPages& pages) noexcept;
  // Records that the sums of a layer hold the rows of all positions below `end`.
  // Requires  scored_end(layer) <= end <= block_start(layer) + 64 and kv_size; where `end` ends the
  //           block, every head was closed
  void mark_scored(std::uint32_t layer, std::uint32_t end) noexcept;

  // Drops the positions from `n_positions` on. Returns the position from which rows have to be
  // computed again: n_positions when no later row is in any sum; else the start of the current
  // block, since sums cannot be undone row by row; else 0, since evicted positions are gone.
  std::uint32_t truncate(std::uint32_t n_positions) noexcept;

  // The parts of a head in session files: K blocks and V blocks of the used slots, their positions
  // and totals, the totals of recent positions, then the sums of the current block for slots and
  // for recent positions: of complete tiles, and of the incomplete tile. All other elements are
  // zeros or -1. The sizes are the same for every head and follow from the shape and scored_end().
  static constexpr std::size_t kSavedParts = 9;
  std::array<MutableByteSpan, kSavedParts> saved_parts(std::uint32_t layer,
                                                       std::uint32_t kv_head) noexcept;
  // Returns whether exactly the rows of n positions are in the sums of every layer.
  bool stands_at(std::uint32_t n_positions) const noexcept;
  // Moves every layer to n_positions; the caller then fills saved_parts().
  // Requires  no position so far, n_positions <= kv_size
  void resume_at(std::uint32_t n_positions) noexcept;
  // Checks saved_parts() filled from a file, for a sequence of `n_positions`: the end of each
  // layer; and in each head positions in range, none twice, the sinks among them, unused slots
  // marked, finite keys and values, and sums that are finite and not negative. On failure the
  // caller drops the contents (truncate to 0).
  // Fails  kCorrupt
  Status check(std::uint32_t n_positions) const;

 private:
  // Byte offsets: of a head's arrays from its part of a layer; of a layer's heads; of the rest from
  // the region.
  struct Layout {
    std::uint64_t values;
    std::uint64_t positions;
    std::uint64_t totals;
    std::uint64_t recent_totals;
    std::uint64_t block_sums;  // of heavy positions, then of recent ones; tile_sums likewise
    std::uint64_t tile_sums;
    std::uint64_t head_bytes;
    std::uint64_t scored_ends;
    std::uint64_t work;  // of all heads, work_bytes each
    std::uint64_t work_bytes;
    std::uint64_t end;
  };
  // Working memory to choose a head's heavy hitters, [n_slots() + 64] each.
  struct Work {
    std::span<std::uint64_t> keys;
    std::span<std::uint64_t> ordered;
    std::span<std::int32_t> positions;
    std::span<float> sums;
    std::span<float> ranks;
  };

  H2oEviction() = default;
  static Layout layout_of(const H2oEvictionShape& shape) noexcept;
  template <typename T>
  std::span<T> head_array(std::uint32_t layer, std::uint32_t kv_head, std::uint64_t offset,
                          std::uint64_t n) const noexcept {
    QSF_DCHECK(layer < shape_.kv.n_layers && kv_head < shape_.kv.n_kv_heads);
    const std::uint64_t head = std::uint64_t{layer} * shape_.kv.n_kv_heads + kv_head;
    return {reinterpret_cast<T*>(region_.data() + head * at_.head_bytes + offset),
            static_cast<std::size_t>(n)};
  }
  std::byte* slot_block(std::uint32_t layer, std::uint32_t kv_head, KvPart part,
                        std::uint32_t i) const noexcept;
  Sums sums_at(std::uint32_t layer, std::uint32_t kv_head, std::uint64_t offset) const noexcept;
  Work work_of(std::uint32_t kv_head) const noexcept;
  void clear_sums(std::uint32_t layer, std::uint32_t kv_head) noexcept;
  std::uint64_t rank_candidates(std::uint32_t layer, std::uint32_t kv_head,
                                std::uint32_t next_recent) noexcept;
  std::uint64_t n_sums() const noexcept {
    return std::uint64_t{shape_.n_slots()} + shape_.n_recent();
  }
  void clear_all() noexcept;
  Status check_head(std::uint32_t layer, std::uint32_t kv_head) const;
  Status check_sums(std::uint32_t layer, std::uint32_t kv_head) const;

  H2oEvictionShape shape_;
  Layout at_{};
  MutableByteSpan region_;
  std::span<std::uint32_t> scored_ends_;  // [n_layers]
};

}  // namespace qsf

#endif  // QSF_KV_H2O_EVICTION_H_
