// SPDX-License-Identifier: MIT
//
// MemoryPlan: every memory region of a run, with size and reason, made before any work starts.
//
// There are two kinds of regions: those carved from the arena, and external ones, which count
// towards the budget but lie elsewhere (thread stacks, the binary, heaps of libraries).

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
// The sums of a plan saturate here; no arena can be made from such a plan.
inline constexpr std::uint64_t kPlanLimitBytes = std::uint64_t{1} << 62;

struct Region {
  std::string name;  // "kv_cache"
  std::uint64_t bytes = 0;
  std::string reason;     // derivation of the bytes from model and options, for users
  bool external = false;  // counted, not carved
};

// Names a region of the plan that returned it.
struct RegionId {
  std::uint32_t index = 0xFFFFFFFFU;
};

class MemoryPlan {
 public:
  // Adds a region that the arena will hold; 0 bytes are allowed.
  // Requires    a name that no other region has
  // Guarantees  sums saturate at kPlanLimitBytes
  RegionId add(std::string_view name, std::uint64_t bytes, std::string_view reason);
  // Adds a region that is counted but never carved. Requires  as add
  RegionId add_external(std::string_view name, std::uint64_t bytes, std::string_view reason);

  std::span<const Region> regions() const noexcept { return regions_; }
  // Requires  an id of this plan
  const Region& region(RegionId id) const noexcept;
  // Returns the region with this name, or null.
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
