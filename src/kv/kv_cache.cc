// SPDX-License-Identifier: MIT
//
// Page tables, reference counts and positions in one planned region.

#include "kv/kv_cache.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/bit_cast.h"

namespace qsf {
namespace {

constexpr std::uint32_t kNoSequence = 0xFFFFFFFFU;

// Byte offsets of the tables in the region, each at a multiple of 64.
struct TableOffsets {
  std::uint64_t sequence_slots;
  std::uint64_t first_recent;
  std::uint64_t reserved_slots;
  std::uint64_t page_table;
  std::uint64_t references;
  std::uint64_t retained;
  std::uint64_t free;
  std::uint64_t positions;
  std::uint64_t end;
};

constexpr std::uint64_t after(std::uint64_t offset, std::uint64_t n_words) noexcept {
  return align_up(offset + 4 * n_words, 64);
}

constexpr TableOffsets table_offsets(const KvLimits& limits) noexcept {
  TableOffsets at{};
  at.first_recent = after(at.sequence_slots, limits.max_sequences);
  at.reserved_slots = after(at.first_recent, limits.max_sequences);
  at.page_table = after(at.reserved_slots, limits.max_sequences);
  at.references = after(at.page_table, static_cast<std::uint64_t>(limits.max_sequences) *
                                           kv_pages_per_sequence(limits));
  at.retained = after(at.references, limits.n_pages);
  at.free = after(at.retained, limits.n_pages);
  at.positions = after(at.free, limits.n_pages);
  at.end = after(at.positions, static_cast<std::uint64_t>(limits.n_pages) * kKvPageSlots);
  return at;
}

// Returns at least the bytes of `n_pages` pages, or nothing when a factor is 0 or 64 bits do not
// hold them.
std::optional<std::uint64_t> cache_bytes(const KvShape& shape, std::uint32_t n_pages) noexcept {
  if (!shape.by_layer.empty() && shape.by_layer.size() != shape.n_layers) return std::nullopt;
  for (const KvHeads& heads : shape.by_layer) {
    if (heads.n_kv_heads == 0 || heads.head_dim == 0) return std::nullopt;
    if (heads.n_kv_heads > shape.n_kv_heads || heads.head_dim > shape.head_dim) {
      return std::nullopt;
    }
  }
  const std::uint64_t pair = shape.block_bytes(KvPart::kKeys) + shape.block_bytes(KvPart::kValues);
  const std::uint64_t n_blocks = static_cast<std::uint64_t>(shape.n_layers) * shape.n_kv_heads;
  const auto page = checked_mul(n_blocks, pair);
  const auto all = page ? checked_mul(*page, n_pages) : std::nullopt;
  if (!all || *all == 0) return std::nullopt;
  return all;
}

template <typename T>
std::span<T> words_at(MutableByteSpan region, std::uint64_t offset, std::uint64_t n) noexcept {
  static_assert(sizeof(T) == 4);
  return {reinterpret_cast<T*>(region.data() + offset), static_cast<std::size_t>(n)};
}

}  // namespace

std::uint64_t KvCache::region_bytes(const KvLimits& limits) noexcept {
  return table_offsets(limits).end;
}

Result<KvCache> KvCache::create(const KvShape& shape, const KvLimits& limits,
                                MutableByteSpan region) {
  if (limits.max_sequences == 0 || limits.max_slots == 0 ||
      limits.max_slots > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()) ||
      !cache_bytes(shape, limits.n_pages)) {
    return invalid_argument(
        "kv cache: %u pages, %u sequences of %u slots, %u layers x %u heads x %u elements: "
        "expected numbers above 0 whose products fit",
        limits.n_pages, limits.max_sequences, limits.max_slots, shape.n_layers, shape.n_kv_heads,
        shape.head_dim);
  }
  QSF_CHECK(region.size() >= region_bytes(limits));
  QSF_CHECK(bit_cast<std::uintptr_t>(region.data()) % 64 == 0);

  KvCache cache;
  cache.shape_ = shape;
  cache.limits_ = limits;
  cache.pages_per_sequence_ = kv_pages_per_sequence(limits);
  cache.n_sink_pages_ = kv_sink_pages(limits);
  const TableOffsets at = table_offsets(limits);
  const std::uint64_t n_table =
      static_cast<std::uint64_t>(limits.max_sequences) * cache.pages_per_sequence_;
  const std::uint64_t n_positions = static_cast<std::uint64_t>(limits.n_pages) * kKvPageSlots;
  cache.sequence_slots_ = words_at<std::uint32_t>(region, at.sequence_slots, limits.max_sequences);
  cache.first_recent_ = words_at<std::uint32_t>(region, at.first_recent, limits.max_sequences);
  cache.reserved_slots_ = words_at<std::uint32_t>(region, at.reserved_slots, limits.max_sequences);
  cache.page_table_ = words_at<std::uint32_t>(region, at.page_table, n_table);
  cache.references_ = words_at<std::uint32_t>(region, at.references, limits.n_pages);
  cache.retained_ = words_at<std::uint32_t>(region, at.retained, limits.n_pages);
  cache.free_ = words_at<std::uint32_t>(region, at.free, limits.n_pages);
  cache.positions_ = words_at<std::int32_t>(region, at.positions, n_positions);

  std::fill(cache.sequence_slots_.begin(), cache.sequence_slots_.end(), kNoSequence);
  std::fill(cache.reserved_slots_.begin(), cache.reserved_slots_.end(), 0U);
  std::fill(cache.references_.begin(), cache.references_.end(), 0U);
  std::fill(cache.retained_.begin(), cache.retained_.end(), 0U);
  std::fill(cache.positions_.begin(), cache.positions_.end(), 0);
  // A stack whose top is its end: pages are taken in ascending order from a new cache.
  for (std::uint32_t i = 0; i < limits.n_pages; ++i) cache.free_[i] = limits.n_pages - 1 - i;
  cache.n_free_ = limits.n_pages;
  return cache;
}

bool KvCache::exists(SequenceId sequence) const noexcept {
  return sequence < sequence_slots_.size() && sequence_slots_[sequence] != kNoSequence;
}

// What is missing are the pages between those of the sinks and the first recent one.
bool KvCache::holds(SequenceId sequence, std::uint32_t first, std::uint32_t last) const noexcept {
  QSF_DCHECK(exists(sequence) && first <= last && last <= sequence_slots_[sequence]);
  const std::uint32_t first_recent = first_recent_[sequence];
  return first == last || first_recent == n_sink_pages_ || first / kKvPageSlots >= first_recent ||
         (last - 1) / kKvPageSlots < n_sink_pages_;
}

std::int32_t& KvCache::position_at(SequenceId sequence, std::uint32_t slot) noexcept {
  const std::uint32_t page = page_table_[entry_of(sequence, slot / kKvPageSlots)];
  return positions_[static_cast<std::size_t>(page) * kKvPageSlots + slot % kKvPageSlots];
}

std::uint32_t KvCache::take_page() noexcept {
  if (n_free_ == 0 && n_idle_ > 0) retainer_->release_one();
  QSF_CHECK(n_free_ > 0);
  const std::uint32_t page = free_[--n_free_];
  QSF_CHECK(references_[page] == 0);
  references_[page] = 1;
  return page;
}

void KvCache::drop_page(std::uint32_t page) noexcept {
  QSF_CHECK(references_[page] > 0);
  if (--references_[page] == 0) free_[n_free_++] = page;
  if (references_[page] == 1 && retained_[page] != 0) ++n_idle_;
}

void KvCache::retain_page(std::uint32_t page) noexcept {
  QSF_CHECK(limits_.recent_slots == 0 && references_[page] > 0 && retained_[page] == 0);
  retained_[page] = 1;
  ++references_[page];
}

void KvCache::release_page(std::uint32_t page) noexcept {
  QSF_CHECK(retained_[page] != 0);
  if (references_[page] == 1) --n_idle_;
  retained_[page] = 0;
  drop_page(page);
}

bool KvCache::adopt_page(SequenceId sequence, std::uint32_t page) {
  QSF_CHECK(exists(sequence) && retained_[page] != 0 && reserved_slots_[sequence] == 0);
  const std::uint32_t n_slots = sequence_slots_[sequence];
  QSF_CHECK(n_slots % kKvPageSlots == 0 && kKvPageSlots <= limits_.max_slots - n_slots);
  if (references_[page] == 1) {
    if (n_unreserved_pages() == 0) return false;
    --n_idle_;
  }
  ++references_[page];
  page_table_[entry_of(sequence, n_slots / kKvPageSlots)] = page;
  sequence_slots_[sequence] = n_slots + kKvPageSlots;
  return true;
}

void KvCache::exchange_page(SequenceId sequence, std::uint32_t number, std::uint32_t retained) {
  QSF_CHECK(exists(sequence) && number < sequence_slots_[sequence] / kKvPageSlots);
  std::uint32_t& held = page_table_[entry_of(sequence, number)];
  QSF_CHECK(held != retained && references_[held] == 1 && retained_[retained] != 0);
  drop_page(held);
  if (references_[retained] == 1) --n_idle_;
  ++references_[retained];
  held = retained;
}

Result<SequenceId> KvCache::create_sequence() {
  const auto unused = std::find(sequence_slots_.begin(), sequence_slots_.end(), kNoSequence);
  if (unused == sequence_slots_.end()) {
    return out_of_budget("kv cache: all %u sequences are in use; end one or plan for more",
                         limits_.max_sequences);
  }
  *unused = 0;
  ++n_sequences_;
  const auto sequence = static_cast<SequenceId>(unused - sequence_slots_.begin());
  first_recent_[sequence] = n_sink_pages_;
  return sequence;
}

void KvCache::free_sequence(SequenceId sequence) {
  truncate(sequence, 0);
  sequence_slots_[sequence] = kNoSequence;
  reserved_slots_[sequence] = 0;
  --n_sequences_;
}

std::uint32_t KvCache::first_recent_of(SequenceId sequence, std::uint32_t n_pages) const noexcept {
  const std::uint32_t n_ring = pages_per_sequence_ - n_sink_pages_;
  const std::uint32_t first = n_pages > pages_per_sequence_ ? n_pages - n_ring : n_sink_pages_;
  return std::max(first_recent_[sequence], first);
}

bool KvCache::copies_last_page(SequenceId sequence) const noexcept {
  const std::uint32_t n_slots = sequence_slots_[sequence];
  return n_slots % kKvPageSlots != 0 && references_[page_of(sequence, n_slots - 1)] > 1;
}

std::uint32_t KvCache::pages_to_reach(SequenceId sequence, std::uint32_t n_slots) const noexcept {
  const std::uint32_t n_now = sequence_slots_[sequence];
  if (n_slots <= n_now) return 0;
  if (limits_.recent_slots == 0) {
    return kv_pages_for(n_slots) - kv_pages_for(n_now) + (copies_last_page(sequence) ? 1 : 0);
  }
  // A ring reuses the pages that it alone holds.
  std::uint32_t n_own = 0;
  for (std::uint32_t i = 0; i < n_held_pages(sequence); ++i) {
    n_own += references_[held_page(sequence, i).page] == 1 ? 1 : 0;
  }
  return std::min(kv_pages_for(n_slots), pages_per_sequence_) - n_own;
}

std::uint32_t KvCache::reserved_by_others(SequenceId sequence) const noexcept {
  std::uint32_t n = 0;
  for (SequenceId other = 0; other < limits_.max_sequences; ++other) {
    if (other != sequence && exists(other)) n += pages_to_reach(other, reserved_slots_[other]);
  }
  return n;
}

std::uint32_t KvCache::n_unreserved_pages() const noexcept {
  return n_free_pages() - reserved_by_others(kNoSequence);
}

Status KvCache::reserve(SequenceId sequence, std::uint32_t n_slots) {
  QSF_CHECK(exists(sequence) && n_slots <= limits_.max_slots);
  const std::uint32_t n_wanted = pages_to_reach(sequence, n_slots);
  const std::uint32_t n_free = n_free_pages() - reserved_by_others(sequence);
  if (n_wanted > n_free) {
    return out_of_budget(
        "kv cache: %u pages of %u positions to be reserved, %u of %u are free and not reserved; "
        "end "
        "a sequence or plan for more",
        n_wanted, kKvPageSlots, n_free, limits_.n_pages);
  }
  reserved_slots_[sequence] = n_slots;
  return ok_status();
}

KvCache::Growth KvCache::growth_of(SequenceId sequence, std::uint32_t n) const noexcept {
  Growth growth;
  const std::uint32_t n_slots = sequence_slots_[sequence];
  growth.n_old_pages = kv_pages_for(n_slots);
  growth.n_pages = kv_pages_for(n_slots + n);
  growth.copies_last_page = copies_last_page(sequence);
  growth.first_recent = first_recent_of(sequence, growth.n_pages);
  growth.n_free = n_free_pages() - reserved_by_others(sequence);
  for (std::uint32_t i = first_recent_[sequence]; i < growth.first_recent; ++i) {
    if (references_[page_table_[entry_of(sequence, i)]] == 1) ++growth.n_free;  // given back
  }
  growth.n_wanted = growth.n_pages - growth.n_old_pages + (growth.copies_last_page ? 1 : 0);
  return growth;
}

std::uint32_t KvCache::n_missing_pages(SequenceId sequence, std::uint32_t n) const noexcept {
  QSF_DCHECK(exists(sequence) && n <= limits_.max_slots - sequence_slots_[sequence]);
  if (n == 0) return 0;
  const Growth growth = growth_of(sequence, n);
  return growth.n_wanted > growth.n_free ? growth.n_wanted - growth.n_free : 0;
}

// Adds slots whose positions the caller fills in.
Result<Appended> KvCache::grow(SequenceId sequence, std::uint32_t n) {
  QSF_CHECK(exists(sequence));
  QSF_CHECK(limits_.recent_slots == 0 || n < limits_.recent_slots);
  const std::uint32_t old_slots = sequence_slots_[sequence];
  if (n > limits_.max_slots - old_slots) {
    return out_of_budget(
        "kv cache: %u more positions after %u exceed the context of %u; ask for a "
        "larger context",
        n, old_slots, limits_.max_slots);
  }
  Appended appended{old_slots, std::nullopt};
  if (n == 0) return appended;

  const Growth growth = growth_of(sequence, n);
  if (growth.n_wanted > growth.n_free) {
    return out_of_budget(
        "kv cache: %u pages of %u positions wanted, %u of %u are free and not reserved; end a "
        "sequence or plan for more",
        growth.n_wanted, kKvPageSlots, growth.n_free, limits_.n_pages);
  }
  for (std::uint32_t i = first_recent_[sequence]; i < growth.first_recent; ++i) {
    drop_page(page_table_[entry_of(sequence, i)]);
  }
  first_recent_[sequence] = growth.first_recent;
  if (growth.copies_last_page) {
    std::uint32_t& last = page_table_[entry_of(sequence, growth.n_old_pages - 1)];
    const PageCopy copy{last, take_page()};
    std::copy_n(positions_.begin() + static_cast<std::ptrdiff_t>(copy.from_page) * kKvPageSlots,
                old_slots % kKvPageSlots,
                positions_.begin() + static_cast<std::ptrdiff_t>(copy.to_page) * kKvPageSlots);
    drop_page(last);
    last = copy.to_page;
    appended.copy = copy;
  }
  for (std::uint32_t i = growth.n_old_pages; i < growth.n_pages; ++i) {
    page_table_[entry_of(sequence, i)] = take_page();
  }
  sequence_slots_[sequence] = old_slots + n;
  return appended;
}

Result<Appended> KvCache::append(SequenceId sequence, std::uint32_t n) {
  QSF_ASSIGN_OR_RETURN(const Appended appended, grow(sequence, n));
  const std::uint32_t first = appended.first_slot;
  std::int32_t next = first == 0 ? 0 : position_at(sequence, first - 1) + 1;
  for (std::uint32_t i = 0; i < n; ++i) position_at(sequence, first + i) = next++;
  return appended;
}

Result<Appended> KvCache::append_at(SequenceId sequence, std::span<const std::int32_t> positions) {
  const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(positions.size(), 0xFFFFFFFFU));
  QSF_ASSIGN_OR_RETURN(const Appended appended, grow(sequence, n));
  for (std::uint32_t i = 0; i < n; ++i) {
    position_at(sequence, appended.first_slot + i) = positions[i];
  }
  return appended;
}

void KvCache::truncate(SequenceId sequence, std::uint32_t n_slots) {
  QSF_CHECK(exists(sequence) && n_slots <= sequence_slots_[sequence]);
  QSF_CHECK(n_slots == 0 || holds(sequence, n_slots - 1, n_slots));
  // Last page first, so that the next append takes them back in the same order.
  const std::uint32_t n_pages = kv_pages_for(n_slots);
  for (std::uint32_t i = n_held_pages(sequence); i > 0; --i) {
    const HeldPage held = held_page(sequence, i - 1);
    if (held.first_slot < n_slots) break;
    drop_page(held.page);
  }
  sequence_slots_[sequence] = n_slots;
  if (n_pages <= n_sink_pages_) first_recent_[sequence] = n_sink_pages_;
  // Forks may hold pages that would have to be reserved again.
  if (reserved_by_others(kNoSequence) > n_free_pages()) reserved_slots_[sequence] = 0;
}

void KvCache::evict(SequenceId sequence, std::uint32_t n_pages) {
  QSF_CHECK(n_pages == 0 || (limits_.recent_slots != 0 &&
                             std::uint64_t{n_sink_pages_} + n_pages < n_held_pages(sequence)));
  for (std::uint32_t i = 0; i < n_pages; ++i) {
    drop_page(page_table_[entry_of(sequence, first_recent_[sequence]++)]);
  }
}

Result<SequenceId> KvCache::fork(SequenceId sequence) {
  QSF_CHECK(exists(sequence));
  QSF_ASSIGN_OR_RETURN(const SequenceId child, create_sequence());
  sequence_slots_[child] = sequence_slots_[sequence];
  first_recent_[child] = first_recent_[sequence];
  const auto from = static_cast<std::ptrdiff_t>(entry_of(sequence, 0));
  std::copy_n(page_table_.begin() + from, pages_per_sequence_,
              page_table_.begin() + static_cast<std::ptrdiff_t>(entry_of(child, 0)));
  for (std::uint32_t i = 0; i < n_held_pages(child); ++i) ++references_[held_page(child, i).page];
  // Pages that were the origin's alone have to be copied or replaced as it grows.
  if (reserved_by_others(kNoSequence) > n_free_pages()) {
    free_sequence(child);
    return out_of_budget(
        "kv cache: a fork needs more pages than are free and not reserved, %u of %u; end a "
        "sequence or plan for more",
        n_unreserved_pages(), limits_.n_pages);
  }
  return child;
}

Result<std::optional<PageCopy>> KvCache::share_slots(SequenceId from, SequenceId to,
                                                     std::uint32_t n_slots) {
  QSF_CHECK(exists(from) && exists(to) && from != to && limits_.recent_slots == 0);
  const std::uint32_t n_before = sequence_slots_[to];
  QSF_CHECK(n_before % kKvPageSlots == 0 && n_before <= n_slots);
  QSF_CHECK(n_slots <= sequence_slots_[from]);
  const std::uint32_t n_full = n_slots / kKvPageSlots;
  std::optional<PageCopy> copy;
  if (n_slots % kKvPageSlots != 0) {
    if (n_free_pages() <= reserved_by_others(to)) {
      return out_of_budget(
          "kv cache: a page of %u positions wanted, 0 of %u are free and not "
          "reserved; end a sequence or plan for more",
          kKvPageSlots, limits_.n_pages);
    }
    copy = PageCopy{page_of(from, n_slots - 1), take_page()};
    std::copy_n(positions_.begin() + static_cast<std::ptrdiff_t>(copy->from_page) * kKvPageSlots,
                n_slots % kKvPageSlots,
                positions_.begin() + static_cast<std::ptrdiff_t>(copy->to_page) * kKvPageSlots);
    page_table_[entry_of(to, n_full)] = copy->to_page;
  }
  for (std::uint32_t i = n_before / kKvPageSlots; i < n_full; ++i) {
    const std::uint32_t page = page_table_[entry_of(from, i)];
    ++references_[page];
    page_table_[entry_of(to, i)] = page;
  }
  sequence_slots_[to] = n_slots;
  return copy;
}

std::uint32_t KvCache::commit_path(SequenceId sequence, std::uint32_t first_slot,
                                   std::span<const std::uint32_t> accepted,
                                   std::span<RowMove> moves) {
  QSF_CHECK(exists(sequence) && first_slot <= sequence_slots_[sequence]);
  QSF_CHECK(moves.size() >= accepted.size());
  std::uint32_t n_moves = 0;
  std::uint32_t to = first_slot;
  for (const std::uint32_t from : accepted) {
    // Ascending: the i-th accepted slot is never below first_slot + i, so moves only go down.
    QSF_CHECK(from >= to && from < sequence_slots_[sequence]);
    QSF_CHECK(n_moves == 0 || from > accepted[to - first_slot - 1]);
    if (from != to) {
      const RowMove move{page_of(sequence, from), from % kKvPageSlots, page_of(sequence, to),
                         to % kKvPageSlots};
      QSF_CHECK(references_[move.to_page] == 1);
      position_at(sequence, to) = position_at(sequence, from);
      moves[n_moves++] = move;
    }
    ++to;
  }
  truncate(sequence, to);
  return n_moves;
}

bool KvCache::is_consistent() const noexcept {
  std::uint32_t n_idle = 0;
  for (std::uint32_t page = 0; page < limits_.n_pages; ++page) {
    std::uint32_t n_holders = retained_[page];
    for (SequenceId sequence = 0; sequence < limits_.max_sequences; ++sequence) {
      if (!exists(sequence)) continue;
      for (std::uint32_t i = 0; i < n_held_pages(sequence); ++i) {
        n_holders += held_page(sequence, i).page == page ? 1 : 0;
      }
    }
    const auto end = free_.begin() + n_free_;
    const bool is_free = std::find(free_.begin(), end, page) != end;
    if (n_holders != references_[page] || is_free != (n_holders == 0)) return false;
    n_idle += retained_[page] != 0 && n_holders == 1 ? 1 : 0;
  }
  return n_idle == n_idle_ && reserved_by_others(kNoSequence) <= n_free_pages();
}

}  // namespace qsf
