// SPDX-License-Identifier: MIT
//
// Adding up regions.

#include "memory/memory_plan.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace qsf {

RegionId MemoryPlan::add_region(Region region) {
  // Sizes come from files and options. Sums must not wrap; a sum beyond any address space saturates
  // at a value from which no arena is made.
  QSF_CHECK(!region.name.empty() && find(region.name) == nullptr);
  region.bytes = std::min(region.bytes, kPlanLimitBytes);
  const std::uint64_t bytes = region.external ? region.bytes : align_up(region.bytes, kRegionAlign);
  std::uint64_t& sum = region.external ? external_bytes_ : arena_bytes_;
  sum = std::min(sum + bytes, kPlanLimitBytes);
  regions_.push_back(std::move(region));
  return {static_cast<std::uint32_t>(regions_.size() - 1)};
}

RegionId MemoryPlan::add(std::string_view name, std::uint64_t bytes, std::string_view reason) {
  return add_region({std::string(name), bytes, std::string(reason), /*external=*/false});
}

RegionId MemoryPlan::add_external(std::string_view name, std::uint64_t bytes,
                                  std::string_view reason) {
  return add_region({std::string(name), bytes, std::string(reason), /*external=*/true});
}

const Region& MemoryPlan::region(RegionId id) const noexcept {
  QSF_CHECK(id.index < regions_.size());
  return regions_[id.index];
}

const Region* MemoryPlan::find(std::string_view name) const noexcept {
  for (const Region& region : regions_) {
    if (region.name == name) return &region;
  }
  return nullptr;
}

}  // namespace qsf
