// SPDX-License-Identifier: MIT
//
// TileRing: the memory of streamed tiles, a first-in-first-out queue of slots in one span.
//
// A slot holds one tile and is never split at the end of the span. Slots are taken in the order of
// reads and may be freed in any order; their space is reused when all older slots are free. Twice
// the largest tile is enough to make progress; three times are enough to read a tile while another
// one is in use, wherever that lies.
//
// Pure bookkeeping: no bytes, no threads, no allocation after construction.

#ifndef QSF_STREAM_TILE_RING_H_
#define QSF_STREAM_TILE_RING_H_

#include <cstdint>
#include <vector>

namespace qsf {

using RingSlot = std::uint32_t;
inline constexpr RingSlot kNoSlot = 0xFFFFFFFFU;
// Of the largest size: one in use and one being read, wherever they lie.
inline constexpr std::uint64_t kLeastRingTiles = 3;

class TileRing {
 public:
  TileRing() = default;
  // Requires  max_slots < kNoSlot
  TileRing(std::uint64_t bytes, std::uint32_t max_slots);

  static std::uint64_t heap_bytes(std::uint32_t max_slots) noexcept {
    return std::uint64_t{max_slots} * sizeof(Slot);
  }

  // Changes the span. Requires  the ring is empty (checked)
  void resize(std::uint64_t bytes);

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  bool empty() const noexcept { return n_slots_ == 0; }
  // Returns how often the ring continued at its first byte.
  std::uint64_t wraps() const noexcept { return wraps_; }

  bool has_room(std::uint64_t bytes) const noexcept;
  // Requires  has_room(bytes), bytes > 0
  RingSlot take(std::uint32_t tile, std::uint64_t bytes);
  // Requires  the slot is taken (checked)
  void give_back(RingSlot slot);

  std::uint64_t offset(RingSlot slot) const noexcept { return slots_[slot].offset; }
  std::uint64_t bytes(RingSlot slot) const noexcept { return slots_[slot].bytes; }
  std::uint32_t tile(RingSlot slot) const noexcept { return slots_[slot].tile; }

  // The slots from the oldest to the newest, freed ones with older slots in use included:
  // for (i = 0; i < n_slots(); ++i) if (is_taken(slot(i))) ...
  std::uint32_t n_slots() const noexcept { return n_slots_; }
  RingSlot slot(std::uint32_t age) const noexcept {
    return static_cast<RingSlot>((std::uint64_t{first_} + age) % slots_.size());
  }
  bool is_taken(RingSlot slot) const noexcept { return slots_[slot].taken; }

 private:
  struct Slot {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint32_t tile = 0;
    bool taken = false;
  };
  // Returns where `bytes` would go, or size_bytes_.
  std::uint64_t place(std::uint64_t bytes) const noexcept;

  std::uint64_t size_bytes_ = 0;
  std::uint64_t end_ = 0;  // behind the newest slot
  std::uint64_t wraps_ = 0;
  std::vector<Slot> slots_;
  std::uint32_t first_ = 0;  // the oldest
  std::uint32_t n_slots_ = 0;
};

}  // namespace qsf

#endif  // QSF_STREAM_TILE_RING_H_
