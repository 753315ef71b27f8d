// SPDX-License-Identifier: MIT
//
// KvCache: the page tables of sequences, and the position of every slot.
//
// It holds indices; the bytes of keys and values belong to a KvPageStore (kv_page_store.h), in
// memory or in a file. A sequence is a list of slots 0, 1, 2 ... in pages of kKvPageSlots. Page ids
// come from a fixed pool and are reference-counted: a forked sequence shares the pages of its
// origin until one of the two appends to a shared page, which is then copied (append returns the
// copy to be made, and the backend makes it).
//
// A sequence may be limited to its first slots, the sinks, and its most recent ones. Pages with
// neither are evicted as it grows: behind the sinks its table is a ring of pages, slots keep their
// numbers, and an evicted page is reused.
//
// Free pages may be reserved: a sequence then grows to a promised length whatever the others take.
//
// Pages may be retained for texts to come (prefix_tree.h). One that no sequence holds any more is
// idle: it counts as free, and whoever retained it gives it back when a page is taken.
//
// One layer of a page has for each head a K block and a V block (quant/kv_type.h), multiples of 64
// bytes, at the offsets of KvShape; where keys are values, the K block alone.
//
// All tables lie in a region that the caller plans; nothing is allocated after creation.

#ifndef QSF_KV_KV_CACHE_H_
#define QSF_KV_KV_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "base/result.h"
#include "base/status.h"
#include "kv/row.h"
#include "quant/kv_heads.h"
#include "quant/kv_type.h"

namespace qsf {

enum class KvPart : std::uint8_t { kKeys, kValues };

// Layers that are all alike, or one after the other by `by_layer`.
struct KvShape {
  std::uint32_t n_layers = 1;
  std::uint32_t n_kv_heads = 1;  // with by_layer the most of any layer, as is head_dim
  std::uint32_t head_dim = 1;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  bool keys_are_values = false;            // no values are stored: a row's key is its value
  std::span<const KvHeads> by_layer = {};  // [n_layers] or empty; outlives the shape

  // Whether rows of that part are stored.
  constexpr bool holds(KvPart part) const noexcept {
    return part == KvPart::kKeys || !keys_are_values;
  }
  // Whether what is read as values is rotated.
  constexpr bool rotates_values() const noexcept {
    return keys_are_values ? kv_is_quantised(k_type) : kv_rotates_values(v_type);
  }
  // Returns the shape of one layer alone. Requires  layer < n_layers
  constexpr KvShape of_layer(std::uint32_t layer) const noexcept {
    KvShape one = *this;
    one.n_layers = 1;
    if (by_layer.empty()) return one;
    one.n_kv_heads = by_layer[layer].n_kv_heads;
    one.head_dim = by_layer[layer].head_dim;
    one.by_layer = {};
    return one;
  }
  // Bytes of the K (V) block of one layer and head in a page. Requires  no by_layer
  constexpr std::uint64_t block_bytes(KvPart part) const noexcept {
    if (!holds(part)) return 0;
    return kv_block_bytes(part == KvPart::kKeys ? k_type : v_type, head_dim);
  }
  // Bytes of one layer in a page: every head, K and V; by_layer: of the largest.
  constexpr std::uint64_t layer_bytes() const noexcept {
    std::uint64_t most = 0;
    for (std::uint32_t i = 0; i < by_layer.size(); ++i) {
      most = std::max(most, of_layer(i).layer_bytes());
    }
    if (!by_layer.empty()) return most;
    return n_kv_heads * (block_bytes(KvPart::kKeys) + block_bytes(KvPart::kValues));
  }
  // Byte offset of a layer in a page. Requires  layer <= n_layers
  constexpr std::uint64_t layer_offset(std::uint32_t layer) const noexcept {
    if (by_layer.empty()) return layer * layer_bytes();
    std::uint64_t n_bytes = 0;
    for (std::uint32_t i = 0; i < layer; ++i) n_bytes += of_layer(i).layer_bytes();
    return n_bytes;
  }
  // Bytes of one page, every layer.
  constexpr std::uint64_t page_bytes() const noexcept { return layer_offset(n_layers); }
  // Byte offset of a block in its layer's part of a page; slot s of a sequence is number
  // s % kKvPageSlots of its page. Requires  no by_layer
  constexpr std::uint64_t block_offset(std::uint32_t kv_head, KvPart part) const noexcept {
    const std::uint64_t pair = block_bytes(KvPart::kKeys) + block_bytes(KvPart::kValues);
    return kv_head * pair + (part == KvPart::kKeys ? 0 : block_bytes(KvPart::kKeys));
  }
};

// What a cache can hold.
struct KvLimits {
  std::uint32_t n_pages = 1;
  std::uint32_t max_sequences = 1;
  std::uint32_t max_slots = kKvPageSlots;  // of one sequence, evicted ones included
  // The most recent slots that a sequence always holds, those of one append included; 0: all slots.
  std::uint32_t recent_slots = 0;
  std::uint32_t sinks = 0;  // the first slots, always held; ignored without recent_slots
};

// Pages of sequences of `n_slots` slots each.
constexpr std::uint32_t kv_pages_for(std::uint32_t n_slots) noexcept {
  return n_slots / kKvPageSlots + (n_slots % kKvPageSlots != 0 ? 1 : 0);
}

// Pages of a sequence's sinks.
constexpr std::uint32_t kv_sink_pages(const KvLimits& limits) noexcept {
  return limits.recent_slots == 0
             ? 0
             : std::min(kv_pages_for(limits.sinks), kv_pages_for(limits.max_slots));
}
// Most pages of one sequence. The recent slots may touch one page more than they fill.
constexpr std::uint32_t kv_pages_per_sequence(const KvLimits& limits) noexcept {
  const std::uint32_t all = kv_pages_for(limits.max_slots);
  if (limits.recent_slots == 0) return all;
  const std::uint64_t kept =
      std::uint64_t{kv_sink_pages(limits)} + kv_pages_for(limits.recent_slots - 1) + 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(all, kept));
}

// A copy of a page, of every layer and head, to be made by the backend before rows are stored.
struct PageCopy {
  std::uint32_t from_page = 0;
  std::uint32_t to_page = 0;
  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

// One row of K and V of every layer and head, to be moved by the backend. Slots count in their
// page.
struct RowMove {
  std::uint32_t from_page = 0;
  std::uint32_t from_slot = 0;
  std::uint32_t to_page = 0;
  std::uint32_t to_slot = 0;
  friend bool operator==(const RowMove&, const RowMove&) = default;
};

// A page of a sequence, and the first of the slots in it.
struct HeldPage {
  std::uint32_t page = 0;
  std::uint32_t first_slot = 0;
};

struct Appended {
  std::uint32_t first_slot = 0;
  std::optional<PageCopy> copy;  // of a page that was shared
};

// Whoever retains pages.
class PageRetainer {
 public:
  // Releases one idle page. Requires  there is one
  virtual void release_one() noexcept = 0;

 protected:
  ~PageRetainer() = default;
};

// Threads  any number may read while none writes
class KvCache {
 public:
  // Bytes of the region that create() wants.
  static std::uint64_t region_bytes(const KvLimits& limits) noexcept;

  // Requires  region.size() >= region_bytes(limits), 64-byte aligned, outliving the cache
  // Fails     kInvalidArgument when a number of shape or limits is 0, their products overflow, or a
  //           layer has more than the shape's heads or columns
  static Result<KvCache> create(const KvShape& shape, const KvLimits& limits,
                                MutableByteSpan region);

  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) noexcept = default;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvShape& shape() const noexcept { return shape_; }
  const KvLimits& limits() const noexcept { return limits_; }
  // Idle pages included.
  std::uint32_t n_free_pages() const noexcept { return n_free_ + n_idle_; }
  std::uint32_t n_idle_pages() const noexcept { return n_idle_; }
  // Free pages that no sequence has reserved.
  std::uint32_t n_unreserved_pages() const noexcept;
  std::uint32_t n_sequences() const noexcept { return n_sequences_; }
  bool exists(SequenceId sequence) const noexcept;

  // Starts an empty sequence.
  // Fails  kOutOfBudget when max_sequences exist
  Result<SequenceId> create_sequence();
  // Ends a sequence and frees its pages that no other sequence holds. Requires  it exists
  void free_sequence(SequenceId sequence);

  // Reserves the pages that a sequence takes to grow to `n_slots`, in place of its old reservation;
  // 0 ends that. A truncated sequence has its pages reserved again, up to `n_slots`, unless forks
  // hold too many of them: its reservation ends then.
  // Fails  kOutOfBudget, with the numbers, when too few pages are free; nothing has changed then
  Status reserve(SequenceId sequence, std::uint32_t n_slots);
  // Returns how many pages are missing to append `n` slots; 0: append() will find its pages.
  // Requires  as append
  std::uint32_t n_missing_pages(SequenceId sequence, std::uint32_t n) const noexcept;

  // Adds `n` slots with the positions that follow the last slot's (0, 1, 2 ... from empty). With
  // recent_slots, pages of neither the sinks nor the recent slots (the new ones included) may be
  // evicted.
  // Requires  n < recent_slots, or recent_slots is 0
  // Fails     kOutOfBudget, with the numbers, when the sequence would pass max_slots or the pages
  //           that others have not reserved run out; nothing has changed then
  Result<Appended> append(SequenceId sequence, std::uint32_t n);
  // Adds one slot for each position: draft trees, where several slots share a position.
  // Fails  as above
  Result<Appended> append_at(SequenceId sequence, std::span<const std::int32_t> positions);

  // Drops the slots from n_slots on, and frees pages no longer used.
  // Requires  n_slots <= n_slots(sequence); n_slots is 0 or the slot before it is held
  void truncate(SequenceId sequence, std::uint32_t n_slots);

  // Evicts the first n_pages pages behind the sinks' pages.
  // Requires  recent_slots is not 0; a page behind the sinks' pages is left
  void evict(SequenceId sequence, std::uint32_t n_pages);

  // Starts a sequence with the same slots. All pages are shared; whichever of the two appends first
  // to a partly filled shared page gets a PageCopy from append. Reservations are not inherited.
  // Fails  kOutOfBudget when max_sequences exist, or the copy finds no page beside reserved ones
  Result<SequenceId> fork(SequenceId sequence);

  // Gives `to`, which fills its pages, the slots of `from` from there up to n_slots: full pages are
  // shared, a part of one is copied at once, so that neither of the two has to copy it later.
  // Requires  recent_slots is 0; n_slots(to) <= n_slots <= n_slots(from); up to n_slots(to) both
  //           have the same rows
  // Fails     kOutOfBudget when the copy finds no page beside those that others have reserved;
  //           nothing has changed then
  Result<std::optional<PageCopy>> share_slots(SequenceId from, SequenceId to,
                                              std::uint32_t n_slots);

  // Keeps the accepted path of a draft tree: the slots `accepted`, ascending and all >= first_slot,
  // become first_slot, first_slot + 1 ...; later slots are dropped. Writes the moves for the
  // backend, in this order, and returns their number.
  // Shapes    moves [at least accepted.size()]
  // Requires  first_slot <= every accepted slot < n_slots(sequence); no fork of the sequence since
  //           the slots from first_slot on were appended
  std::uint32_t commit_path(SequenceId sequence, std::uint32_t first_slot,
                            std::span<const std::uint32_t> accepted, std::span<RowMove> moves);

  // Null without one, while no page is retained.
  void set_retainer(PageRetainer* retainer) noexcept { retainer_ = retainer; }
  // Retains a page beyond the sequences that hold it.
  // Requires  a sequence holds it, with all its slots; it is not retained; recent_slots is 0
  void retain_page(std::uint32_t page) noexcept;
  // Requires  it is retained
  void release_page(std::uint32_t page) noexcept;
  bool is_retained(std::uint32_t page) const noexcept {
    QSF_DCHECK(page < limits_.n_pages);
    return retained_[page] != 0;
  }
  // Adds the slots of a retained page to a sequence that fills its pages. Returns false, and
  // changes nothing, when the page is idle and reserved as a free one.
  // Requires  the page's rows continue the sequence, which has no reservation
  bool adopt_page(SequenceId sequence, std::uint32_t page);
  // Puts a retained page in the place of a page of the sequence.
  // Requires  both have the same rows; the sequence alone holds the old one, and all its slots
  void exchange_page(SequenceId sequence, std::uint32_t number, std::uint32_t retained);

  std::uint32_t n_slots(SequenceId sequence) const noexcept {
    QSF_DCHECK(exists(sequence));
    return sequence_slots_[sequence];
  }
  // Returns whether the sequence holds all slots from `first` to before `last`.
  // Requires  first <= last <= n_slots(sequence)
  bool holds(SequenceId sequence, std::uint32_t first, std::uint32_t last) const noexcept;
  // The pages that a sequence holds, in ascending order of their slots.
  std::uint32_t n_held_pages(SequenceId sequence) const noexcept {
    QSF_DCHECK(exists(sequence));
    const std::uint32_t n_pages = kv_pages_for(sequence_slots_[sequence]);
    return n_pages <= n_sink_pages_ ? n_pages : n_pages - first_recent_[sequence] + n_sink_pages_;
  }
  // All pages, where no slot was evicted: slot s is in page number s / kKvPageSlots.
  std::span<const std::uint32_t> whole_pages(SequenceId sequence) const noexcept {
    const std::uint32_t n_pages = kv_pages_for(n_slots(sequence));
    QSF_DCHECK(n_held_pages(sequence) == n_pages);
    return {page_table_.data() + entry_of(sequence, 0), n_pages};
  }
  // Requires  i < n_held_pages(sequence)
  HeldPage held_page(SequenceId sequence, std::uint32_t i) const noexcept {
    QSF_DCHECK(i < n_held_pages(sequence));
    const std::uint32_t number =
        i < n_sink_pages_ ? i : first_recent_[sequence] + (i - n_sink_pages_);
    return {page_table_[entry_of(sequence, number)], number * kKvPageSlots};
  }
  // Requires  slot < n_slots(sequence) and the sequence holds it
  std::uint32_t page_of(SequenceId sequence, std::uint32_t slot) const noexcept {
    QSF_DCHECK(slot < n_slots(sequence) && holds(sequence, slot, slot + 1));
    return page_table_[entry_of(sequence, slot / kKvPageSlots)];
  }
  // The position of a slot, in every layer and head. Requires  as page_of
  std::int32_t position(SequenceId sequence, std::uint32_t slot) const noexcept {
    return page_positions(page_of(sequence, slot))[slot % kKvPageSlots];
  }
  // Positions of the slots of one page; meaningful for slots in use.
  std::span<const std::int32_t> page_positions(std::uint32_t page) const noexcept {
    QSF_DCHECK(page < limits_.n_pages);
    return positions_.subspan(static_cast<std::size_t>(page) * kKvPageSlots, kKvPageSlots);
  }
  // How many sequences hold a page, and one more when it is retained; 0 when it is free.
  std::uint32_t page_references(std::uint32_t page) const noexcept {
    QSF_DCHECK(page < limits_.n_pages);
    return references_[page];
  }
  // Counts every page anew: whether each is free or has as many holders as its references say, and
  // enough are free for all reservations. For tests and debug builds.
  bool is_consistent() const noexcept;

 private:
  // What appending takes and gives back.
  struct Growth {
    std::uint32_t n_old_pages = 0;
    std::uint32_t n_pages = 0;
    bool copies_last_page = false;
    std::uint32_t first_recent = 0;
    std::uint32_t n_wanted = 0;
    std::uint32_t n_free = 0;  // for it: neither held nor reserved by others
  };
  KvCache() = default;
  // Index in the table of a sequence's page number: a ring behind the sinks' pages.
  std::size_t entry_of(SequenceId sequence, std::uint32_t number) const noexcept {
    const std::uint32_t n_ring = pages_per_sequence_ - n_sink_pages_;
    const std::uint32_t at =
        number < n_sink_pages_ ? number : n_sink_pages_ + (number - n_sink_pages_) % n_ring;
    return static_cast<std::size_t>(sequence) * pages_per_sequence_ + at;
  }
  std::int32_t& position_at(SequenceId sequence, std::uint32_t slot) noexcept;
  Result<Appended> grow(SequenceId sequence, std::uint32_t n);
  Growth growth_of(SequenceId sequence, std::uint32_t n) const noexcept;
  bool copies_last_page(SequenceId sequence) const noexcept;
  // Pages that a sequence takes at most to grow to n_slots.
  std::uint32_t pages_to_reach(SequenceId sequence, std::uint32_t n_slots) const noexcept;
  // Pages still to be taken for all reservations but that of `sequence`.
  std::uint32_t reserved_by_others(SequenceId sequence) const noexcept;
  // The number of the first page behind the sinks' that a sequence of n_pages pages holds.
  std::uint32_t first_recent_of(SequenceId sequence, std::uint32_t n_pages) const noexcept;
  std::uint32_t take_page() noexcept;
  void drop_page(std::uint32_t page) noexcept;

  KvShape shape_;
  KvLimits limits_;
  std::uint32_t pages_per_sequence_ = 0;
  std::uint32_t n_sink_pages_ = 0;
  std::uint32_t n_free_ = 0;  // without idle ones
  std::uint32_t n_idle_ = 0;
  PageRetainer* retainer_ = nullptr;
  std::uint32_t n_sequences_ = 0;
  std::span<std::uint32_t> sequence_slots_;  // [max_sequences]; kNoSequence: does not exist
  // [max_sequences]; number of the first page held behind the sinks', at least n_sink_pages_
  std::span<std::uint32_t> first_recent_;
  std::span<std::uint32_t> reserved_slots_;  // [max_sequences]; 0: none
  std::span<std::uint32_t> page_table_;      // [max_sequences][pages_per_sequence_]
  std::span<std::uint32_t> references_;      // [n_pages]
  std::span<std::uint32_t> retained_;        // [n_pages]; 1: one of the references is that of the
                                             // retainer
  std::span<std::uint32_t> free_;            // [n_pages]; the first n_free_ are free page ids
  std::span<std::int32_t> positions_;        // [n_pages][kKvPageSlots]
};

}  // namespace qsf

#endif  // QSF_KV_KV_CACHE_H_
