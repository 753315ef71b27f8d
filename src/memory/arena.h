// SPDX-License-Identifier: MIT
//
// Arena: one mapping with exactly the regions of a plan.
//
// Regions are in the plan's order and each is carved once. The arena does not grow or reset: the
// needs of a run are known before it starts. The owner of a region manages its contents.

#ifndef QSF_MEMORY_ARENA_H_
#define QSF_MEMORY_ARENA_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "memory/memory_plan.h"

namespace qsf {

// One line of a usage report.
struct RegionUse {
  std::string name;
  std::uint64_t bytes = 0;   // as planned
  std::uint64_t offset = 0;  // from the start of the arena
  bool carved = false;
};

class Arena {
 public:
  // Maps zeroed memory for all regions that are not external. Pages become resident when touched.
  // Fails  kOutOfBudget when the system refuses
  static Result<Arena> create(const MemoryPlan& plan);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Returns the memory of a region: exactly its planned bytes, zeroed, aligned to kRegionAlign,
  // valid until the arena is destroyed (moving the arena moves no bytes). Requires  an id of the
  // plan, not external, not carved before (checked)
  MutableByteSpan carve(RegionId id);

  std::uint64_t total_bytes() const noexcept { return memory_.size(); }
  // Bytes of the regions carved so far, rounding included.
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  // The regions that are not external, in order.
  std::vector<RegionUse> uses() const;

 private:
  struct Slot {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
    bool external = false;
    bool carved = false;
  };
  Arena() = default;

  MutableByteSpan memory_;
  std::vector<Slot> slots_;  // by RegionId
  std::uint64_t used_bytes_ = 0;
};

}  // namespace qsf

#endif  // QSF_MEMORY_ARENA_H_
