// SPDX-License-Identifier: MIT
//
// A state returns to the points that were kept, with their values, and to no others.

#include "kv/state_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

namespace qsf {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr StateShape kStateShape = {.n_layers = 2, .layer_size = 3};
constexpr std::uint32_t kSequences = 2;
constexpr RowRole kPrompt = RowRole::kPrompt;
constexpr RowRole kGenerated = RowRole::kGenerated;

class StateCacheTest : public testing::Test {
 protected:
  StateCacheTest()
      : memory_(StateCache::region_bytes(kStateShape, kSequences), std::byte{0x7F}),
        cache_(StateCache::create(kStateShape, kSequences, memory_)) {}

  // A pass of `n` rows: the state behind it has the number of its rows in every value.
  void pass(SequenceId sequence, std::uint32_t n, RowRole role) {
    const std::uint32_t before = cache_.n_rows(sequence);
    cache_.begin(sequence, role);
    for (std::uint32_t layer = 0; layer < kStateShape.n_layers; ++layer) {
      EXPECT_THAT(cache_.before(sequence, layer), Each(static_cast<float>(before)));
      for (float& value : cache_.after(sequence, layer)) value = static_cast<float>(before + n);
    }
    cache_.commit(sequence, n);
  }
  // A pass that fails when it has written the state of one layer.
  void failed_pass(SequenceId sequence, RowRole role) {
    cache_.begin(sequence, role);
    for (float& value : cache_.after(sequence, 1)) value = -1.0F;
  }
  void expect_state(SequenceId sequence, std::uint32_t n_rows) {
    EXPECT_EQ(cache_.n_rows(sequence), n_rows);
    EXPECT_THAT(cache_.saved(sequence), Each(static_cast<float>(n_rows)));
  }
  std::vector<std::uint32_t> kept(SequenceId sequence, std::uint32_t end) const {
    std::vector<std::uint32_t> points;
    for (std::uint32_t n = 0; n <= end; ++n) {
      if (cache_.longest_kept(sequence, n) == n) points.push_back(n);
    }
    return points;
  }

  alignas(64) std::vector<std::byte> memory_;
  StateCache cache_;
};

TEST_F(StateCacheTest, BeginsWithZeros) {
  expect_state(0, 0);
  expect_state(1, 0);
}

TEST_F(StateCacheTest, KeepsTheLastPassAndWhereTheRoleChanged) {
  pass(0, 5, kPrompt);
  pass(0, 4, kPrompt);
  EXPECT_THAT(kept(0, 12), ElementsAre(0, 5, 9));
  pass(0, 1, kGenerated);
  pass(0, 1, kGenerated);
  pass(0, 1, kGenerated);
  EXPECT_THAT(kept(0, 12), ElementsAre(0, 9, 11, 12));
  pass(0, 3, kPrompt);
  pass(0, 3, kPrompt);
  EXPECT_THAT(kept(0, 18), ElementsAre(0, 12, 15, 18));
  expect_state(0, 18);
  expect_state(1, 0);
}

TEST_F(StateCacheTest, KeepsWhatItIsTold) {
  pass(0, 5, kPrompt);
  cache_.keep(0);
  for (int i = 0; i < 4; ++i) pass(0, 3, kPrompt);
  EXPECT_THAT(kept(0, 17), ElementsAre(0, 5, 14, 17));
}

TEST_F(StateCacheTest, KeepsThePointThatItReturnedTo) {
  pass(0, 5, kPrompt);
  for (int i = 0; i < 3; ++i) pass(0, 1, kGenerated);
  EXPECT_EQ(cache_.truncate(0, 7), 7U);
  for (int i = 0; i < 3; ++i) pass(0, 1, kGenerated);
  EXPECT_THAT(kept(0, 10), ElementsAre(0, 7, 9, 10));
}

TEST_F(StateCacheTest, AForkReturnsToWhereItBegan) {
  pass(0, 4, kPrompt);
  pass(0, 1, kGenerated);
  cache_.fork(0, 1);
  for (int i = 0; i < 2; ++i) pass(1, 1, kGenerated);
  EXPECT_THAT(kept(1, 7), ElementsAre(0, 5, 6, 7));
}

TEST_F(StateCacheTest, ReturnsToEveryPointThatItKeeps) {
  for (const std::uint32_t to : {0U, 9U, 11U, 12U}) {
    pass(0, 9, kPrompt);
    for (int i = 0; i < 3; ++i) pass(0, 1, kGenerated);
    EXPECT_EQ(cache_.truncate(0, to), to);
    expect_state(0, to);
    // What lay behind the point is of other rows from now on.
    EXPECT_EQ(cache_.longest_kept(0, 100), to);
    pass(0, 2, kPrompt);
    pass(0, 2, kPrompt);
    expect_state(0, to + 4);
    EXPECT_EQ(cache_.longest_kept(0, to), to);
    EXPECT_EQ(cache_.truncate(0, 0), 0U);
  }
}

TEST_F(StateCacheTest, FallsBackToThePointBefore) {
  pass(0, 9, kPrompt);
  for (int i = 0; i < 5; ++i) pass(0, 1, kGenerated);
  EXPECT_EQ(cache_.truncate(0, 12), 9U);
  expect_state(0, 9);
  EXPECT_EQ(cache_.truncate(0, 8), 0U);
  expect_state(0, 0);
  EXPECT_EQ(cache_.truncate(0, 3), 0U) << "no more rows than there are";
}

TEST_F(StateCacheTest, AFailedPassLeavesNoTrace) {
  failed_pass(0, kPrompt);
  expect_state(0, 0);
  pass(0, 9, kPrompt);
  for (const RowRole role : {kPrompt, kGenerated, kPrompt, kGenerated}) {
    failed_pass(0, role);
    expect_state(0, 9);
    EXPECT_EQ(cache_.truncate(0, 9), 9U);
  }
  pass(0, 1, kGenerated);
  pass(0, 1, kGenerated);
  failed_pass(0, kGenerated);
  expect_state(0, 11);
  EXPECT_EQ(cache_.longest_kept(0, 10), 9U) << "its buffer had the point before the last pass";
}

TEST_F(StateCacheTest, AForkGoesItsOwnWay) {
  pass(0, 7, kPrompt);
  cache_.fork(0, 1);
  pass(0, 1, kGenerated);
  expect_state(1, 7);
  pass(1, 2, kGenerated);
  expect_state(0, 8);
  expect_state(1, 9);
  EXPECT_THAT(kept(1, 9), ElementsAre(0, 7, 9));
}

TEST_F(StateCacheTest, ARestoredStateIsTheNewest) {
  for (float& value : cache_.restore(1, 4)) value = 4.0F;
  expect_state(1, 4);
  EXPECT_THAT(kept(1, 4), ElementsAre(0, 4));
  pass(1, 1, kGenerated);
  EXPECT_THAT(kept(1, 5), ElementsAre(0, 4, 5));
}

}  // namespace
}  // namespace qsf
