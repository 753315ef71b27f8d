// SPDX-License-Identifier: MIT

#include "stream/tile_ring.h"

#include "base/check.h"

namespace qsf {

TileRing::TileRing(std::uint64_t bytes, std::uint32_t max_slots)
    : size_bytes_(bytes), slots_(max_slots) {
  QSF_CHECK(max_slots < kNoSlot);
}

void TileRing::resize(std::uint64_t bytes) {
  QSF_CHECK(empty());
  size_bytes_ = bytes;
  end_ = 0;
}

std::uint64_t TileRing::place(std::uint64_t bytes) const noexcept {
  if (n_slots_ == slots_.size() || bytes > size_bytes_) return size_bytes_;
  const bool fits_behind = bytes <= size_bytes_ - end_;
  if (n_slots_ == 0) return fits_behind ? end_ : 0;
  const std::uint64_t oldest = slots_[first_].offset;
  const std::uint64_t newest = slots_[slot(n_slots_ - 1)].offset;
  if (newest < oldest) return bytes <= oldest - end_ ? end_ : size_bytes_;
  if (fits_behind) return end_;
  return bytes <= oldest ? 0 : size_bytes_;
}

bool TileRing::has_room(std::uint64_t bytes) const noexcept {
  return place(bytes) != size_bytes_;
}

RingSlot TileRing::take(std::uint32_t tile, std::uint64_t bytes) {
  const std::uint64_t at = place(bytes);
  QSF_CHECK(bytes > 0 && at != size_bytes_);
  if (at == 0 && end_ != 0) ++wraps_;
  const RingSlot taken = slot(n_slots_++);
  slots_[taken] = {.offset = at, .bytes = bytes, .tile = tile, .taken = true};
  end_ = at + bytes;
  return taken;
}

void TileRing::give_back(RingSlot given) {
  QSF_CHECK(given < slots_.size() && slots_[given].taken);
  slots_[given].taken = false;
  while (n_slots_ > 0 && !slots_[first_].taken) {
    first_ = slot(1);
    --n_slots_;
  }
  if (n_slots_ == 0) return;  // the next one goes on where this one ended
  while (!slots_[slot(n_slots_ - 1)].taken) --n_slots_;
  const Slot& newest = slots_[slot(n_slots_ - 1)];
  end_ = newest.offset + newest.bytes;
}

}  // namespace qsf
