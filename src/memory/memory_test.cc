// SPDX-License-Identifier: MIT
//
// Tests of memory/: plans add up, arenas hand out each region once and nothing beyond.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "memory/arena.h"
#include "memory/memory_plan.h"
#include "platform/memory.h"

namespace qsf {
namespace {

TEST(MemoryPlanTest, AddsUpRegionsRoundedToLines) {
  MemoryPlan plan;
  EXPECT_EQ(plan.total_bytes(), 0U);
  const RegionId a = plan.add("a", 1, "one byte");
  const RegionId b = plan.add("b", 64, "a line");
  plan.add("c", 0, "nothing");
  plan.add_external("stacks", 1000, "not rounded");
  EXPECT_EQ(plan.arena_bytes(), 128U);
  EXPECT_EQ(plan.total_bytes(), 1128U);
  ASSERT_EQ(plan.regions().size(), 4U);
  EXPECT_EQ(plan.region(a).name, "a");
  EXPECT_EQ(plan.region(b).reason, "a line");
  EXPECT_EQ(plan.find("stacks")->bytes, 1000U);
  EXPECT_TRUE(plan.find("stacks")->external);
  EXPECT_EQ(plan.find("d"), nullptr);
}

TEST(MemoryPlanTest, RefusesTwins) {
  MemoryPlan plan;
  plan.add("a", 1, "");
  EXPECT_DEATH(plan.add("a", 1, ""), "check failed");
  EXPECT_DEATH(plan.add("", 1, ""), "check failed");
}

// Sizes follow from files: none may wrap around to something small, and none may end the process.
TEST(MemoryPlanTest, HugeRegionsStayHugeAndFindNoArena) {
  MemoryPlan plan;
  plan.add("huge", UINT64_MAX, "");
  plan.add("huger", UINT64_MAX - 1, "");
  plan.add_external("outside", UINT64_MAX, "");
  EXPECT_GE(plan.arena_bytes(), std::uint64_t{1} << 62);
  EXPECT_GE(plan.total_bytes(), plan.arena_bytes());
  EXPECT_EQ(Arena::create(plan).error().code(), StatusCode::kOutOfBudget);
}

TEST(ArenaTest, RegionsAreAlignedZeroedAndApart) {
  MemoryPlan plan;
  std::vector<RegionId> ids;
  for (std::uint64_t bytes : {1U, 63U, 64U, 65U, 0U, 5000U}) {
    ids.push_back(plan.add("r" + std::to_string(bytes), bytes, ""));
  }
  Arena arena = Arena::create(plan).value();
  EXPECT_EQ(arena.total_bytes(), plan.arena_bytes());
  std::byte fill{1};
  std::vector<MutableByteSpan> spans;
  for (const RegionId id : ids) {
    const MutableByteSpan span = arena.carve(id);
    EXPECT_EQ(span.size(), plan.region(id).bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(span.data()) % kRegionAlign, 0U);
    EXPECT_TRUE(
        std::all_of(span.begin(), span.end(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill(span.begin(), span.end(), fill);
    fill = static_cast<std::byte>(static_cast<int>(fill) + 1);
    spans.push_back(span);
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_TRUE(std::all_of(spans[i].begin(), spans[i].end(),
                            [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
  }
  EXPECT_EQ(arena.used_bytes(), arena.total_bytes());
}

TEST(ArenaTest, EachRegionIsCarvedOnceAndExternalOnesNever) {
  MemoryPlan plan;
  const RegionId once = plan.add("once", 100, "");
  const RegionId external = plan.add_external("external", 100, "");
  plan.add("rest", 10'000, "never carved, so that the arena's limit is not what stops the others");
  Arena arena = Arena::create(plan).value();
  static_cast<void>(arena.carve(once));
  EXPECT_DEATH(static_cast<void>(arena.carve(once)), "check failed");
  EXPECT_DEATH(static_cast<void>(arena.carve(external)), "check failed");
  EXPECT_DEATH(static_cast<void>(arena.carve(RegionId{7})), "check failed");
}

TEST(ArenaTest, ReportsWhatIsUsed) {
  MemoryPlan plan;
  plan.add("weights", 100, "");
  plan.add_external("stacks", 10, "");
  const RegionId kv = plan.add("kv", 70, "");
  Arena arena = Arena::create(plan).value();
  static_cast<void>(arena.carve(kv));
  EXPECT_EQ(arena.used_bytes(), 128U);
  const std::vector<RegionUse> uses = arena.uses();
  ASSERT_EQ(uses.size(), 2U);
  EXPECT_EQ(uses[0].name, "weights");
  EXPECT_FALSE(uses[0].carved);
  EXPECT_EQ(uses[1].name, "kv");
  EXPECT_EQ(uses[1].offset, 128U);
  EXPECT_EQ(uses[1].bytes, 70U);
  EXPECT_TRUE(uses[1].carved);
}

TEST(ArenaTest, MovesWithoutMovingBytes) {
  MemoryPlan plan;
  const RegionId a = plan.add("a", 64, "");
  const RegionId b = plan.add("b", 64, "");
  Arena first = Arena::create(plan).value();
  const MutableByteSpan span = first.carve(a);
  span[0] = std::byte{9};
  Arena second = std::move(first);
  EXPECT_EQ(span[0], std::byte{9});
  EXPECT_EQ(second.carve(b).data(), span.data() + 64);
  Arena third = Arena::create(MemoryPlan()).value();
  EXPECT_EQ(third.total_bytes(), 0U);
  third = std::move(second);
  EXPECT_EQ(span[0], std::byte{9});
  EXPECT_EQ(third.used_bytes(), 128U);
}

TEST(ArenaTest, RefusesWhatTheSystemDoesNotHave) {
  MemoryPlan plan;
  plan.add("huge", std::uint64_t{1} << 61, "");
  EXPECT_EQ(Arena::create(plan).error().code(), StatusCode::kOutOfBudget);
}

}  // namespace
}  // namespace qsf
