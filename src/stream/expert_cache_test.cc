// SPDX-License-Identifier: MIT
//
// Which expert leaves the cache: by age and frequency, never one in use, and what a prompt reads
// once does not push out the others.

#include "stream/expert_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

ExpertCache make_cache(std::uint32_t n_experts, std::uint32_t n_slots, double half_life = 4.0,
                       std::uint32_t read_once_slots = 2) {
  const std::vector<std::uint64_t> bytes(n_experts, 100);
  std::vector<ExpertCache::Slot> slots(n_slots, {.offset = 0, .region_bytes = 100, .bytes = 100});
  return {bytes, n_experts, slots, read_once_slots, half_life};
}

// A pass that uses these experts, one after the other. Returns how many were missing.
int use(ExpertCache& cache, const std::vector<ExpertId>& ids, float heat = 1.0F) {
  int n_missing = 0;
  cache.start_pass();
  for (const ExpertId id : ids) cache.want(id, heat);
  for (const ExpertId id : ids) {
    if (cache.slot_of(id) == kNoExpertSlot) {
      ++n_missing;
      const ExpertSlot slot = cache.find_slot(id);
      EXPECT_NE(slot, kNoExpertSlot);
      cache.put(id, slot);
    }
    cache.hold(id);
    cache.release(id);
    cache.done(id);
  }
  return n_missing;
}

bool has(const ExpertCache& cache, ExpertId id) {
  return cache.slot_of(id) != kNoExpertSlot;
}

TEST(ExpertCacheTest, TheLeastUsedLeaves) {
  ExpertCache cache = make_cache(10, 3);
  EXPECT_EQ(use(cache, {1, 2}), 2);
  EXPECT_EQ(use(cache, {1, 3}), 1);
  EXPECT_EQ(use(cache, {1, 4}), 1);
  EXPECT_TRUE(has(cache, 1));
  EXPECT_FALSE(has(cache, 2));
  EXPECT_TRUE(has(cache, 3));
  EXPECT_TRUE(has(cache, 4));
}

// With a short half-life the last use counts, with a long one their number.
TEST(ExpertCacheTest, TheHalfLifeDecidesBetweenAgeAndFrequency) {
  for (const double half_life : {0.2, 1000.0}) {
    ExpertCache cache = make_cache(10, 3, half_life);
    use(cache, {1});
    use(cache, {1});
    use(cache, {2});
    use(cache, {3});
    use(cache, {4});
    EXPECT_EQ(has(cache, 1), half_life > 1.0) << half_life;
    EXPECT_EQ(has(cache, 2), half_life < 1.0) << half_life;
  }
}

TEST(ExpertCacheTest, ScoresStayFiniteInLongRuns) {
  ExpertCache cache = make_cache(10, 3, 0.5);
  for (int pass = 0; pass < 5000; ++pass) use(cache, {7, 8});
  EXPECT_EQ(use(cache, {7, 8}), 0);
  EXPECT_EQ(use(cache, {5}), 1);
  EXPECT_EQ(use(cache, {6}), 1);  // takes the place of 5 or of an older one, not of both
  EXPECT_TRUE(has(cache, 6));
  EXPECT_TRUE(has(cache, 5));
}

TEST(ExpertCacheTest, AnExpertInUseStays) {
  ExpertCache cache = make_cache(10, 3);
  use(cache, {1, 2, 3});
  cache.start_pass();
  for (const ExpertId id : {1U, 2U, 3U}) cache.hold(id);
  cache.want(4, 1.0F);
  EXPECT_EQ(cache.find_slot(4), kNoExpertSlot);
  cache.release(2);
  EXPECT_EQ(cache.find_slot(4), cache.slot_of(2));
  EXPECT_EQ(cache.put(4, cache.slot_of(2)), 2U);
  EXPECT_EQ(cache.slot_of(2), kNoExpertSlot);
}

// All slots have experts that come later in the pass: the last of them is read again then.
TEST(ExpertCacheTest, OfExpertsWantedLaterTheLastOneLeaves) {
  ExpertCache cache = make_cache(10, 3);
  use(cache, {5, 6, 7});
  cache.start_pass();
  for (const ExpertId id : {1U, 5U, 6U, 7U}) cache.want(id, 1.0F);
  EXPECT_EQ(cache.find_slot(1), cache.slot_of(7));
  cache.put(1, cache.slot_of(7));
  EXPECT_EQ(cache.find_slot(7), kNoExpertSlot);  // the others are before it
  cache.done(1);
  EXPECT_EQ(cache.find_slot(7), cache.slot_of(1));
}

TEST(ExpertCacheTest, WhatAPromptReadsOnceTakesFewSlots) {
  ExpertCache cache = make_cache(40, 10);
  std::vector<ExpertId> hot = {30, 31, 32, 33, 34, 35, 36, 37, 38, 39};
  use(cache, hot);
  std::vector<ExpertId> cold(30);
  for (ExpertId id = 0; id < 30; ++id) cold[id] = id;
  EXPECT_EQ(use(cache, cold, 0.0F), 30);
  EXPECT_EQ(std::ranges::count_if(hot, [&](ExpertId id) { return has(cache, id); }), 9);
  EXPECT_TRUE(has(cache, 29));
  // A use makes it like the others.
  EXPECT_EQ(use(cache, {29}), 0);
  cold.pop_back();
  EXPECT_EQ(use(cache, cold, 0.0F), 29);
  EXPECT_TRUE(has(cache, 29));
}

// Reads run ahead of the products: with as many read-once experts as may be, the next one waits.
TEST(ExpertCacheTest, ReadOnceExpertsWaitForOneAnother) {
  ExpertCache cache = make_cache(40, 10);
  use(cache, {30, 31, 32, 33, 34, 35, 36, 37, 38, 39});
  cache.start_pass();
  for (const ExpertId id : {0U, 1U, 2U}) cache.want(id, 0.0F);
  for (const ExpertId id : {0U, 1U}) cache.put(id, cache.find_slot(id));
  EXPECT_EQ(cache.find_slot(2), kNoExpertSlot);
  cache.done(0);
  EXPECT_EQ(cache.find_slot(2), cache.slot_of(0));
}

TEST(ExpertCacheTest, EmptySlotsAreTakenByAnything) {
  ExpertCache cache = make_cache(10, 6);
  use(cache, {1, 2});
  EXPECT_EQ(use(cache, {1, 2, 3, 4, 5, 6}, 0.0F), 4);
  EXPECT_EQ(use(cache, {1, 2, 3, 4, 5, 6}, 0.0F), 0);
}

TEST(ExpertCacheTest, SlotsAreGivenBackByUseAndTheLastOnesStay) {
  ExpertCache cache = make_cache(10, 6);
  use(cache, {1, 2, 3, 4, 5, 6});
  use(cache, {1, 2, 4, 5});
  use(cache, {1, 2, 4});
  cache.hold(3);
  std::vector<ExpertId> dropped;
  for (ExpertSlot slot = cache.slot_to_drop(); slot != kNoExpertSlot; slot = cache.slot_to_drop()) {
    dropped.push_back(cache.drop(slot));
  }
  ASSERT_EQ(dropped.size(), 3U);
  EXPECT_EQ(dropped[0], 6U);
  EXPECT_EQ(dropped[1], 5U);
  EXPECT_TRUE(has(cache, 3));
  EXPECT_EQ(cache.n_slots(), 3U);
  cache.release(3);
  EXPECT_EQ(use(cache, {7, 8, 9}), 3);
}

// Two layers use the same two experts in every pass, and three fit: with LRU none is ever found.
TEST(ExpertCacheTest, TheLayerThatWasJustRunWaitsLongest) {
  const std::vector<std::uint64_t> bytes(8, 100);
  const std::vector<ExpertCache::Slot> slots(3, {.offset = 0, .region_bytes = 100, .bytes = 100});
  ExpertCache cache(bytes, 4, slots, 2, 8.0);
  int n_missing = 0;
  for (int pass = 0; pass < 20; ++pass) {
    cache.start_pass();
    for (const ExpertId first : {0U, 4U}) {
      for (const ExpertId id : {first, first + 1}) cache.want(id, 1.0F);
      for (const ExpertId id : {first, first + 1}) {
        if (cache.slot_of(id) == kNoExpertSlot) {
          n_missing += pass >= 10 ? 1 : 0;
          cache.put(id, cache.find_slot(id));
        }
        cache.done(id);
      }
    }
  }
  EXPECT_LE(n_missing, 20);  // of 40 uses; the optimum is about 13
}

TEST(ExpertCacheTest, OfExpertsUsedAlikeTheOneOfTheRunningLayerLeaves) {
  const std::vector<std::uint64_t> bytes(9, 100);  // three layers of three
  const std::vector<ExpertCache::Slot> slots(6, {.offset = 0, .region_bytes = 100, .bytes = 100});
  for (const ExpertId missing : {2U, 5U, 8U}) {
    ExpertCache cache(bytes, 3, slots, 2, 8.0);
    use(cache, {0, 1, 3, 4, 6, 7});
    EXPECT_EQ(cache.slot(cache.find_slot(missing)).expert / 3, missing / 3);
    cache.hold(missing - 1);
    cache.hold(missing - 2);  // then the layer before it
    EXPECT_EQ(cache.slot(cache.find_slot(missing)).expert / 3, (missing / 3 + 2) % 3);
  }
}

// Slots of different sizes: an expert takes one that it fits, and one for the largest is kept.
TEST(ExpertCacheTest, LargeExpertsTakeLargeSlots) {
  std::vector<std::uint64_t> bytes = {10, 10, 10, 10, 20, 20, 20, 20};
  std::vector<ExpertCache::Slot> slots;
  for (ExpertId id = 0; id < 8; ++id) {
    slots.push_back({.offset = id, .region_bytes = bytes[id], .bytes = bytes[id], .expert = id});
  }
  ExpertCache cache(bytes, 8, slots, 2, 4.0);
  use(cache, {0, 1, 2, 3, 5, 6, 7});
  for (int pass = 0; pass < 3; ++pass) use(cache, {5, 6, 7});
  ASSERT_EQ(cache.drop(cache.slot_to_drop()), 4U);
  EXPECT_EQ(cache.slot(cache.find_slot(4)).bytes, 20U);
  for (ExpertSlot slot = cache.slot_to_drop(); slot != kNoExpertSlot; slot = cache.slot_to_drop()) {
    cache.drop(slot);
  }
  EXPECT_EQ(cache.n_slots(), kLeastExpertSlots);
  use(cache, {0, 1, 2});
  use(cache, {5, 6, 7});
  for (const ExpertId id : {5U, 6U, 7U}) EXPECT_TRUE(has(cache, id));
}

// Against the definition: the expert with the least sum of uses, each halved in half_life passes.
TEST(ExpertCacheTest, KeepsTheExpertsWithTheLargestScores) {
  constexpr std::uint32_t kExperts = 24;
  constexpr double kHalfLife = 3.0;
  ExpertCache cache = make_cache(kExperts, 7, kHalfLife);
  Rng rng(5);
  std::vector<double> scores(kExperts, 0.0);
  for (int pass = 0; pass < 2000; ++pass) {
    for (double& score : scores) score *= std::exp2(-1.0 / kHalfLife);
    std::vector<ExpertId> ids = {rng.below(kExperts), rng.below(8) + 8};
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<bool> was(kExperts);
    for (ExpertId id = 0; id < kExperts; ++id) was[id] = has(cache, id);
    for (const ExpertId id : ids) scores[id] += 1.0;
    use(cache, ids);
    for (ExpertId id = 0; id < kExperts; ++id) {
      if (!was[id] || has(cache, id)) continue;
      for (ExpertId other = 0; other < kExperts; ++other) {
        if (!was[other] || !has(cache, other)) continue;
        ASSERT_LE(scores[id], scores[other] * (1 + 1e-9)) << "pass " << pass;
      }
    }
  }
}

}  // namespace
}  // namespace qsf
