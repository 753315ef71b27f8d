// SPDX-License-Identifier: MIT
//
// MemoryPlan: every region of memory a run will need, with bytes and reason, before any work
// starts.
//
// Regions come in two kinds: those carved from the arena, and external ones that are counted
// because they are part of the promise but live elsewhere (thread stacks, the binary, heaps of
// libraries).

#ifndef QSF_MEMORY_MEMORY_PLAN_H_
#define QSF_MEMORY_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qsf {

// Alignment of every carved region: a cache line, and the widest vector load.
inline constexpr std::size_t kRegionAlign = 64;
// Where the sums of a plan saturate: no arena is made of one that large.
inline constexpr std::uint64_t kPlanLimitBytes = std::uint64_t{1} << 62;

struct Region {
  std::string name;  // "kv_cache"
  std::uint64_t bytes = 0;
  std::string reason;     // how the bytes follow from model and options, for people
  bool external = false;  // counted, not carved
};

// Names a region of the plan that returned it.
struct RegionId {
  std::uint32_t index = 0xFFFFFFFFU;
};

class MemoryPlan {
 public:
  // Adds a region that the arena will hold; 0 bytes are allowed.
  // Requires    a name no other region has
  // Guarantees  sums saturate at kPlanLimitBytes
  RegionId add(std::string_view name, std::uint64_t bytes, std::string_view reason);
  // Adds a region that is counted but never carved. Requires  as add
  RegionId add_external(std::string_view name, std::uint64_t bytes, std::string_view reason);

  std::span<const Region> regions() const noexcept { return regions_; }
  // Requires  an id of this plan
  const Region& region(RegionId id) const noexcept;
  // Returns the region of a name, or null.
  const Region* find(std::string_view name) const noexcept;

  // Bytes of the arena: every region that is not external, each rounded up to kRegionAlign.
  std::uint64_t arena_bytes() const noexcept { return arena_bytes_; }
  // Bytes of the arena and of external regions.
  std::uint64_t total_bytes() const noexcept { return arena_bytes_ + external_bytes_; }

 private:
  RegionId add_region(Region region);

  std::vector<Region> regions_;
  std::uint64_t arena_bytes_ = 0;
  std::uint64_t external_bytes_ = 0;
};

}  // namespace qsf

#endif  // QSF_MEMORY_MEMORY_PLAN_H_
