// SPDX-License-Identifier: MIT
//
// Which expert leaves the cache: by age and frequency, never one in use, and what a prompt reads
// once does not push out the others.

#include "stream/expert_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

// Layers of `n_experts` each, and slots for any expert.
ExpertCache make_cache(std::uint32_t n_experts, std::uint32_t n_slots, std::uint32_t n_layers = 1) {
  const std::vector<std::uint64_t> bytes(std::size_t{n_layers} * n_experts, 100);
  std::vector<ExpertCache::Slot> slots(n_slots, {.offset = 0, .region_bytes = 100, .bytes = 100});
  return {bytes, n_experts, slots, /*read_once_slots=*/2};
}

std::vector<ExpertUse> uses_of(std::vector<std::uint32_t> experts, float heat = 1.0F) {
  std::ranges::sort(experts);
  std::vector<ExpertUse> uses;
  for (const std::uint32_t expert : experts) uses.push_back({expert, heat, heat != 0.0F});
  return uses;
}

// A pass that uses these experts of its one layer, one after the other. Returns how many were
// missing.
int use(ExpertCache& cache, const std::vector<ExpertId>& ids, float heat = 1.0F) {
  int n_missing = 0;
  cache.start_pass();
  cache.want(0, uses_of(ids, heat));
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

// Texts that return to what they just used, and texts that return to what they use all along: each
// teaches the cache what to keep. An age and a rate alone decide differently.
TEST(ExpertCacheTest, LearnsWhetherAgeOrFrequencyDecides) {
  constexpr std::uint32_t kExperts = 64;
  for (const bool by_age : {true, false}) {
    ExpertCache cache = make_cache(kExperts, 12);
    Rng rng(11);
    std::vector<ExpertId> last = {0, 1, 2, 3};
    int n_missing = 0;
    for (int pass = 0; pass < 3000; ++pass) {
      std::vector<ExpertId> ids;
      for (std::uint32_t i = 0; i < 4; ++i) {
        // One in three is any expert at all. The others are of the last pass, or of ten.
        ExpertId id = by_age ? last[i] : rng.below(10);
        if (rng.below(3) == 0) id = rng.below(kExperts);
        if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
      }
      const int n = use(cache, ids);
      if (pass >= 500) n_missing += n;
      if (ids.size() == 4) last = ids;
    }
    // 2,500 passes of nearly 4, a third of them to any of 64; 8 of the slots are of no help there.
    EXPECT_LT(n_missing, 2500 * 4 * 0.37) << by_age;
  }
}

// An expert of which nothing is known waits longer than one that was just used.
TEST(ExpertCacheTest, UnusedExpertsLeaveFirst) {
  const std::vector<std::uint64_t> bytes(10, 100);
  std::vector<ExpertCache::Slot> slots;
  for (ExpertId id = 0; id < 5; ++id) {
    slots.push_back({.offset = 0, .region_bytes = 100, .bytes = 100, .expert = id});
  }
  ExpertCache cache(bytes, 5, slots, 2);  // two layers
  cache.start_pass();
  cache.want(0, uses_of({1, 2, 3}));
  cache.done(1);
  cache.done(2);
  cache.done(3);
  cache.want(1, uses_of({0}));
  const ExpertSlot first = cache.find_slot(5);
  EXPECT_TRUE(first == cache.slot_of(0) || first == cache.slot_of(4));
  cache.put(5, first);
  const ExpertSlot second = cache.slot_to_drop();
  EXPECT_TRUE(second == cache.slot_of(0) || second == cache.slot_of(4));
}

TEST(ExpertCacheTest, AnExpertInUseStays) {
  ExpertCache cache = make_cache(10, 3);
  use(cache, {1, 2, 3});
  cache.start_pass();
  for (const ExpertId id : {1U, 2U, 3U}) cache.hold(id);
  cache.want(0, uses_of({4}));
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
  cache.want(0, uses_of({1, 5, 6, 7}));
  EXPECT_EQ(cache.find_slot(1), cache.slot_of(7));
  cache.put(1, cache.slot_of(7));
  EXPECT_EQ(cache.find_slot(7), kNoExpertSlot);  // the others are before it
  cache.done(1);
  EXPECT_EQ(cache.find_slot(7), cache.slot_of(1));
}

TEST(ExpertCacheTest, WhatAPromptReadsOnceTakesFewSlots) {
  ExpertCache cache = make_cache(40, 10);
  std::vector<ExpertId> hot = {30, 31, 32, 33, 34, 35, 36, 37, 38, 39};
  for (int pass = 0; pass < 20; ++pass) use(cache, hot);
  std::vector<ExpertId> cold(30);
  for (ExpertId id = 0; id < 30; ++id) cold[id] = id;
  EXPECT_EQ(use(cache, cold, 0.0F), 30);
  EXPECT_EQ(std::ranges::count_if(hot, [&](ExpertId id) { return has(cache, id); }), 9);
  EXPECT_TRUE(has(cache, 29));
  // Uses make it like the others.
  for (int pass = 0; pass < 20; ++pass) EXPECT_EQ(use(cache, {29}), 0);
  cold.pop_back();
  EXPECT_EQ(use(cache, cold, 0.0F), 29);
  EXPECT_TRUE(has(cache, 29));
}

// Reads run ahead of the products: with as many read-once experts as may be, the next one waits.
TEST(ExpertCacheTest, ReadOnceExpertsWaitForOneAnother) {
  ExpertCache cache = make_cache(40, 10);
  use(cache, {30, 31, 32, 33, 34, 35, 36, 37, 38, 39});
  cache.start_pass();
  cache.want(0, uses_of({0, 1, 2}, 0.0F));
  for (const ExpertId id : {0U, 1U}) cache.put(id, cache.find_slot(id));
  EXPECT_EQ(cache.find_slot(2), kNoExpertSlot);
  cache.done(0);
  EXPECT_EQ(cache.find_slot(2), cache.slot_of(0));
}

// A guess takes the place of what is expected to be used last, and keeps it until it is settled,
// unless what the pass wants has no other place.
TEST(ExpertCacheTest, GuessesStayWhereWhatIsWantedHasAPlace) {
  ExpertCache cache = make_cache(10, 4);
  for (int pass = 0; pass < 20; ++pass) use(cache, {1, 2, 3});
  cache.start_pass();
  cache.want(0, uses_of({1, 2}));
  cache.guess(7);
  cache.guess(8);
  cache.guess(9);
  cache.put(7, cache.find_guess_slot(7));
  EXPECT_TRUE(has(cache, 3));
  cache.put(8, cache.find_guess_slot(8));
  EXPECT_FALSE(has(cache, 3));
  EXPECT_EQ(cache.find_guess_slot(9), kNoExpertSlot);  // 1 and 2 are wanted, 7 and 8 guessed
  cache.done(1);
  EXPECT_EQ(cache.find_slot(5), cache.slot_of(1));
  cache.hold(1);
  EXPECT_TRUE(cache.slot(cache.find_slot(5)).expert >= 7);
  cache.hold(7);
  cache.hold(8);
  EXPECT_EQ(cache.find_slot(5), kNoExpertSlot);
  cache.release(7);
  cache.start_pass();
  EXPECT_FALSE(cache.is_guessed(7));
  EXPECT_FALSE(cache.is_guessed(8));
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
  ExpertCache cache = make_cache(4, 3, /*n_layers=*/2);
  int n_missing = 0;
  for (int pass = 0; pass < 20; ++pass) {
    cache.start_pass();
    for (const std::uint32_t layer : {0U, 1U}) {
      cache.want(layer, uses_of({0, 1}));
      for (const ExpertId id : {4 * layer, 4 * layer + 1}) {
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
  for (const std::uint32_t layer : {0U, 1U, 2U}) {
    ExpertCache cache = make_cache(3, 6, /*n_layers=*/3);
    cache.start_pass();
    for (const std::uint32_t each : {0U, 1U, 2U}) {
      cache.want(each, uses_of({0, 1}));
      for (const ExpertId id : {3 * each, 3 * each + 1}) {
        cache.put(id, cache.find_slot(id));
        cache.done(id);
      }
    }
    const ExpertId missing = 3 * layer + 2;
    EXPECT_EQ(cache.slot(cache.find_slot(missing)).expert / 3, layer);
    cache.hold(missing - 1);
    cache.hold(missing - 2);  // then the layer before it
    EXPECT_EQ(cache.slot(cache.find_slot(missing)).expert / 3, (layer + 2) % 3);
  }
}

// Slots of different sizes: an expert takes one that it fits, and one for the largest is kept.
TEST(ExpertCacheTest, LargeExpertsTakeLargeSlots) {
  std::vector<std::uint64_t> bytes = {10, 10, 10, 10, 20, 20, 20, 20};
  std::vector<ExpertCache::Slot> slots;
  for (ExpertId id = 0; id < 8; ++id) {
    slots.push_back({.offset = id, .region_bytes = bytes[id], .bytes = bytes[id], .expert = id});
  }
  ExpertCache cache(bytes, 8, slots, 2);
  for (int pass = 0; pass < 30; ++pass) use(cache, {0, 1, 2, 3, 5, 6, 7});
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

// Against the definition, from the whole history: of the experts in memory the one leaves whose
// group, by the passes since its last use and by its rate, was used by the smallest share of the
// passes that saw it.
TEST(ExpertCacheTest, TheExpertOfTheGroupThatIsUsedLeastLeaves) {
  constexpr std::uint32_t kExperts = 24;
  ExpertCache cache = make_cache(kExperts, 7);
  Rng rng(5);
  const double keep = std::exp2(-1.0 / 24);
  std::vector<double> rates(kExperts, 0.0);
  std::vector<int> last(kExperts, -1);
  std::map<std::pair<int, int>, std::pair<double, double>> groups;  // uses and passes
  const auto group_of = [&](ExpertId id, int pass) {
    const int age = last[id] < 0 ? 7 : std::min(7, static_cast<int>(std::log2(pass - last[id])));
    const int rate = std::min(9, static_cast<int>(-1.5 * std::log2(std::max(rates[id], 1e-9))));
    return std::pair{age, rate};
  };
  int n_left = 0;
  for (int pass = 0; pass < 2000; ++pass) {
    std::vector<ExpertId> ids = {rng.below(kExperts), rng.below(8) + 8};
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<bool> was(kExperts);
    for (ExpertId id = 0; id < kExperts; ++id) was[id] = has(cache, id);
    // What earlier passes taught decides in this one.
    const auto learned = groups;
    for (auto& [group, counts] : groups) counts = {counts.first * 0.99, counts.second * 0.99};
    for (ExpertId id = 0; id < kExperts; ++id) {
      auto& [uses, passes] = groups[group_of(id, pass)];
      const bool used = std::ranges::find(ids, id) != ids.end();
      passes += 1;
      if (used) uses += 1;
      rates[id] = rates[id] * keep + (used ? 1 - keep : 0.0);
      if (used) last[id] = pass;
    }
    const auto wait_of = [&](ExpertId id) {
      const auto group = group_of(id, pass + 1);
      const auto known = learned.find(group);
      const double uses = known == learned.end() ? 0 : known->second.first;
      const double passes = known == learned.end() ? 0 : known->second.second;
      return (passes + 20) / (uses + 20 * std::exp2(-(group.second + 0.5) / 1.5));
    };
    use(cache, ids);
    for (ExpertId id = 0; id < kExperts; ++id) {
      if (!was[id] || has(cache, id)) continue;
      ++n_left;
      for (ExpertId other = 0; other < kExperts; ++other) {
        if (!was[other] || !has(cache, other)) continue;
        if (std::ranges::find(ids, other) != ids.end()) continue;  // the pass needed it
        ASSERT_GE(wait_of(id), wait_of(other) * (1 - 1e-4)) << "pass " << pass;
      }
    }
  }
  EXPECT_GT(n_left, 500);
}

}  // namespace
}  // namespace qsf
