// SPDX-License-Identifier: MIT
//
// Tests of TileRing: slots that are taken never overlap, space given back is found again, and the
// two promises about its size.

#include "stream/tile_ring.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

constexpr std::uint64_t kLargest = 10;

void expect_apart(const TileRing& ring, const std::vector<RingSlot>& taken) {
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::uint64_t begin = ring.offset(taken[i]);
    const std::uint64_t end = begin + ring.bytes(taken[i]);
    ASSERT_LE(end, ring.size_bytes());
    for (std::size_t k = 0; k < i; ++k) {
      const std::uint64_t other = ring.offset(taken[k]);
      ASSERT_TRUE(end <= other || other + ring.bytes(taken[k]) <= begin)
          << begin << " to " << end << " and " << other;
    }
  }
}

TEST(TileRingTest, SlotsNeverOverlapWhateverTheOrder) {
  Rng rng(3);
  std::uint64_t n_wraps = 0;
  std::uint64_t n_full = 0;
  for (const std::uint64_t size : {20U, 30U, 33U, 64U, 200U}) {
    TileRing ring(size, 50);
    std::vector<RingSlot> taken;
    for (int step = 0; step < 20000; ++step) {
      const std::uint64_t bytes = 1 + rng.below(kLargest);
      const bool gives = !taken.empty() && rng.below(2) == 0;
      if (gives) {
        // Mostly the oldest, as a pass does.
        const std::size_t i =
            rng.below(4) == 0 ? rng.below(static_cast<std::uint32_t>(taken.size())) : 0;
        ring.give_back(taken[i]);
        taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (ring.has_room(bytes)) {
        const RingSlot slot = ring.take(static_cast<std::uint32_t>(step), bytes);
        EXPECT_EQ(ring.tile(slot), static_cast<std::uint32_t>(step));
        EXPECT_EQ(ring.bytes(slot), bytes);
        taken.push_back(slot);
        expect_apart(ring, taken);
      } else {
        ++n_full;
      }
      std::size_t n_taken = 0;
      for (std::uint32_t age = 0; age < ring.n_slots(); ++age) {
        if (ring.is_taken(ring.slot(age))) ++n_taken;
      }
      ASSERT_EQ(n_taken, taken.size());
      ASSERT_EQ(ring.empty(), taken.empty());
      const bool must_have_room = taken.empty() || (taken.size() == 1 && size >= 3 * kLargest);
      ASSERT_TRUE(!must_have_room || ring.has_room(kLargest));
    }
    n_wraps += ring.wraps();
  }
  EXPECT_GT(n_wraps, 1000U);
  EXPECT_GT(n_full, 1000U);
}

TEST(TileRingTest, SlotsAreOrderedByAgeAndWrapAtTheEnd) {
  TileRing ring(30, 8);
  const RingSlot a = ring.take(1, 10);
  const RingSlot b = ring.take(2, 12);
  EXPECT_FALSE(ring.has_room(9));
  EXPECT_TRUE(ring.has_room(8));
  ring.give_back(a);
  EXPECT_EQ(ring.wraps(), 0U);
  const RingSlot c = ring.take(3, 9);  // not split: 8 bytes at the end stay unused
  EXPECT_EQ(ring.offset(c), 0U);
  EXPECT_EQ(ring.wraps(), 1U);
  EXPECT_EQ(ring.slot(0), b);
  EXPECT_EQ(ring.slot(1), c);
  EXPECT_FALSE(ring.has_room(2));
  ring.give_back(c);  // the newest: its space is free at once, behind b
  EXPECT_TRUE(ring.has_room(8));
  EXPECT_TRUE(ring.has_room(10));
  EXPECT_FALSE(ring.has_room(11));
  ring.give_back(b);
  EXPECT_TRUE(ring.empty());
  EXPECT_TRUE(ring.has_room(30));
  EXPECT_FALSE(ring.has_room(31));
  EXPECT_DEATH(ring.give_back(b), "check failed");
}

TEST(TileRingTest, AsManySlotsAsItWasMadeFor) {
  TileRing ring(100, 2);
  ring.take(1, 1);
  ring.take(2, 1);
  EXPECT_FALSE(ring.has_room(1));
  EXPECT_FALSE(TileRing().has_room(1));
}

}  // namespace
}  // namespace qsf
