// SPDX-License-Identifier: MIT
//
// VisibleRanges: the slots that a row attends to, as ranges in ascending order of position; and the
// spans in which attention visits them.
//
// There is one range, or two where slots between sinks and window were evicted. Ranges are always
// cut at the same slots, so a row's sums do not depend on where its keys and values lie.

#ifndef QSF_OPS_VISIBLE_RANGES_H_
#define QSF_OPS_VISIBLE_RANGES_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "kernels/attend/attend.h"
#include "quant/kv_type.h"

namespace qsf {

using SlotRange = kernels::AttendRange;  // [first, last); empty where they are equal

inline constexpr std::uint32_t kMaxVisibleRanges = 2;

// Disjoint and ascending. Ranges that touch are one, the last.
using VisibleRanges = std::array<SlotRange, kMaxVisibleRanges>;

// Slots of one online softmax; those of several spans are merged.
inline constexpr std::uint32_t kSpanSlots = 512;
static_assert(kSpanSlots % kKvPageSlots == 0);

constexpr std::uint32_t n_spans(std::uint32_t n_slots) noexcept {
  return n_slots / kSpanSlots + (n_slots % kSpanSlots != 0 ? 1 : 0);
}
// Most spans that n_slots consecutive slots touch.
constexpr std::uint32_t most_spans(std::uint32_t n_slots) noexcept {
  return n_slots == 0 ? 0 : n_spans(n_slots - 1) + 1;
}
constexpr SlotRange span_slots(std::uint32_t span) noexcept {
  return {span * kSpanSlots, (span + 1) * kSpanSlots};
}

constexpr bool is_empty(SlotRange range) noexcept {
  return range.first == range.last;
}
// Returns the slots of both; an empty range where there are none.
constexpr SlotRange intersect(SlotRange a, SlotRange b) noexcept {
  const std::uint32_t first = std::max(a.first, b.first);
  return {first, std::max(first, std::min(a.last, b.last))};
}
constexpr VisibleRanges intersect(const VisibleRanges& seen, SlotRange slots) noexcept {
  return {intersect(seen[0], slots), intersect(seen[1], slots)};
}
// Returns the smallest range that holds both.
constexpr SlotRange hull(SlotRange a, SlotRange b) noexcept {
  if (is_empty(a)) return b;
  if (is_empty(b)) return a;
  return {std::min(a.first, b.first), std::max(a.last, b.last)};
}

constexpr std::uint32_t count(const VisibleRanges& seen) noexcept {
  return seen[0].last - seen[0].first + (seen[1].last - seen[1].first);
}

// The spans that ranges touch, ascending, each once.
class VisibleSpans {
 public:
  // Requires  ranges ascending where they are not empty; those of many rows may overlap
  constexpr explicit VisibleSpans(const VisibleRanges& seen) noexcept {
    std::uint32_t end = 0;  // of the spans so far
    for (std::uint32_t i = 0; i < kMaxVisibleRanges; ++i) {
      if (is_empty(seen[i])) continue;
      first_[i] = std::max(end, seen[i].first / kSpanSlots);
      end = std::max(first_[i], n_spans(seen[i].last));
      n_[i] = end - first_[i];
    }
  }
  constexpr std::uint32_t n() const noexcept { return n_[0] + n_[1]; }
  // Returns a span by its number in this list. Requires  i < n()
  constexpr std::uint32_t span(std::uint32_t i) const noexcept {
    return i < n_[0] ? first_[0] + i : first_[1] + (i - n_[0]);
  }

 private:
  std::array<std::uint32_t, kMaxVisibleRanges> first_{};
  std::array<std::uint32_t, kMaxVisibleRanges> n_{};
};

}  // namespace qsf

#endif  // QSF_OPS_VISIBLE_RANGES_H_
