// SPDX-License-Identifier: MIT

#include "stream/access_plan.h"

#include <algorithm>

#include "base/check.h"

namespace qsf {

void AccessPlan::add(TileRange range) {
  const std::uint32_t end = n_ranges_ == 0 ? 0 : ranges_[n_ranges_ - 1].last;
  QSF_CHECK(range.first <= range.last && range.first >= end);
  if (range.first == range.last) return;
  n_tiles_ += range.last - range.first;
  if (n_ranges_ > 0 && range.first == end) {
    ranges_[n_ranges_ - 1].last = range.last;
    return;
  }
  QSF_CHECK(n_ranges_ < kMaxRanges);
  ranges_[n_ranges_++] = range;
}

std::uint32_t AccessPlan::range_behind(std::uint32_t position) const noexcept {
  const auto at =
      std::partition_point(ranges_.begin(), ranges_.begin() + n_ranges_,
                           [position](const TileRange& range) { return range.last <= position; });
  return static_cast<std::uint32_t>(at - ranges_.begin());
}

bool AccessPlan::contains(std::uint32_t position) const noexcept {
  const std::uint32_t at = range_behind(position);
  return at < n_ranges_ && ranges_[at].first <= position;
}

std::uint32_t AccessPlan::next(std::uint32_t position) const noexcept {
  if (position == kNoPosition) return first();
  const std::uint32_t at = range_behind(position + 1);
  return at == n_ranges_ ? first() : std::max(ranges_[at].first, position + 1);
}

}  // namespace qsf
