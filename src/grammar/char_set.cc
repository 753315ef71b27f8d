// SPDX-License-Identifier: MIT

#include "grammar/char_set.h"

#include <algorithm>

namespace qsf {

namespace {
constexpr std::uint32_t kFirstSurrogate = 0xD800;
constexpr std::uint32_t kLastSurrogate = 0xDFFF;
}  // namespace

CharSet::CharSet(std::initializer_list<CharRange> ranges) {
  for (const CharRange& range : ranges) add(range.first, range.last);
}

void CharSet::add(std::uint32_t first, std::uint32_t last) {
  if (first < kFirstSurrogate && last >= kFirstSurrogate) {
    ranges_.push_back({first, kFirstSurrogate - 1});
    first = kFirstSurrogate;
  }
  if (first >= kFirstSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (first <= last) ranges_.push_back({first, last});
  sorted_ = false;
}

void CharSet::add(const CharSet& other) {
  for (const CharRange& range : other.ranges()) add(range.first, range.last);
}

std::span<const CharRange> CharSet::ranges() const {
  if (!sorted_) {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
    std::size_t n = 0;
    for (const CharRange& range : ranges_) {
      if (n > 0 && range.first <= ranges_[n - 1].last + 1) {
        ranges_[n - 1].last = std::max(ranges_[n - 1].last, range.last);
      } else {
        ranges_[n++] = range;
      }
    }
    ranges_.resize(n);
    sorted_ = true;
  }
  return ranges_;
}

CharSet CharSet::complement() const {
  CharSet out;
  std::uint32_t next = 0;
  for (const CharRange& range : ranges()) {
    if (range.first > next) out.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.add(next, kLastCodePoint);
  return out;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet rest = complement();
  rest.add(other);
  return rest.complement();
}

bool CharSet::contains(std::uint32_t code_point) const {
  const std::span<const CharRange> all_ranges = ranges();
  const auto after = std::upper_bound(
      all_ranges.begin(), all_ranges.end(), code_point,
      [](std::uint32_t value, const CharRange& range) { return value < range.first; });
  return after != all_ranges.begin() && code_point <= std::prev(after)->last;
}

}  // namespace qsf
