// SPDX-License-Identifier: MIT
//
// AccessPlan: the tiles that a pass will use, in order, so that they are read ahead and no others.
//
// Tiles are named by position (TileTable::order), which ascends as a pass goes: layer by layer,
// then the output head. A plan is a list of ranges: all layers with or without the head, a window
// of layers, or the parts of a layer that every row needs and those of the experts that were
// chosen.

#ifndef QSF_STREAM_ACCESS_PLAN_H_
#define QSF_STREAM_ACCESS_PLAN_H_

#include <array>
#include <cstdint>
#include <span>

namespace qsf {

inline constexpr std::uint32_t kNoPosition = 0xFFFFFFFFU;

// The positions from `first` to before `last`.
struct TileRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  friend bool operator==(const TileRange&, const TileRange&) = default;
};

class AccessPlan {
 public:
  static constexpr std::uint32_t kMaxRanges = 128;

  // Appends a range; an empty one is ignored, one that continues the last is joined to it.
  // Requires  it begins where the last range ends, or behind; ranges() has room (both checked)
  void add(TileRange range);

  std::span<const TileRange> ranges() const noexcept { return {ranges_.data(), n_ranges_}; }
  std::uint32_t n_tiles() const noexcept { return n_tiles_; }
  bool contains(std::uint32_t position) const noexcept;
  // Returns the first position of the plan behind `position`, which may lie outside of it; after
  // the last the first of all, where the next pass begins; kNoPosition for an empty plan.
  std::uint32_t next(std::uint32_t position) const noexcept;
  std::uint32_t first() const noexcept { return n_ranges_ == 0 ? kNoPosition : ranges_[0].first; }

 private:
  // Returns the first range that ends behind `position`.
  std::uint32_t range_behind(std::uint32_t position) const noexcept;

  std::array<TileRange, kMaxRanges> ranges_{};
  std::uint32_t n_ranges_ = 0;
  std::uint32_t n_tiles_ = 0;
};

}  // namespace qsf

#endif  // QSF_STREAM_ACCESS_PLAN_H_
