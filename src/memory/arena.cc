// SPDX-License-Identifier: MIT
//
// Offsets of regions in one mapping.

#include "memory/arena.h"

#include <utility>

#include "base/check.h"
#include "platform/memory.h"

namespace qsf {

Result<Arena> Arena::create(const MemoryPlan& plan) {
  if (plan.arena_bytes() >= kPlanLimitBytes) {
    return out_of_budget("memory: the plan needs 2^62 bytes or more, beyond any address space");
  }
  Arena arena;
  std::uint64_t offset = 0;
  for (const Region& region : plan.regions()) {
    arena.slots_.push_back({region.name, region.bytes, offset, region.external, /*carved=*/false});
    if (!region.external) offset += align_up(region.bytes, kRegionAlign);
  }
  QSF_CHECK(offset == plan.arena_bytes());
  if (offset != 0) {
    // Nearly all of it is weights and KV pages that are touched throughout: huge pages pay.
    QSF_ASSIGN_OR_RETURN(arena.memory_, map_pages(offset, HugePages::kAllow));
  }
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : memory_(std::exchange(other.memory_, {})),
      slots_(std::exchange(other.slots_, {})),
      used_bytes_(std::exchange(other.used_bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    unmap_pages(memory_);
    memory_ = std::exchange(other.memory_, {});
    slots_ = std::exchange(other.slots_, {});
    used_bytes_ = std::exchange(other.used_bytes_, 0);
  }
  return *this;
}

Arena::~Arena() {
  unmap_pages(memory_);
}

MutableByteSpan Arena::carve(RegionId id) {
  QSF_CHECK(id.index < slots_.size());
  Slot& slot = slots_[id.index];
  QSF_CHECK(!slot.external && !slot.carved);
  slot.carved = true;
  used_bytes_ += align_up(slot.bytes, kRegionAlign);
  QSF_CHECK(slot.offset + slot.bytes <= memory_.size() && used_bytes_ <= memory_.size());
  return memory_.subspan(static_cast<std::size_t>(slot.offset),
                         static_cast<std::size_t>(slot.bytes));
}

std::vector<RegionUse> Arena::uses() const {
  std::vector<RegionUse> uses;
  for (const Slot& slot : slots_) {
    if (!slot.external) uses.push_back({slot.name, slot.bytes, slot.offset, slot.carved});
  }
  return uses;
}

}  // namespace qsf
