// SPDX-License-Identifier: MIT

#include "ops/prefetch_tuner.h"

#include <gtest/gtest.h>

namespace qsf {
namespace {

constexpr std::uint64_t kCacheBytes = 1000;
constexpr std::uint64_t kWeightBytes = 2000;

// Runs passes that take the time of their distance until the tuner has chosen.
std::uint32_t tune(PrefetchTuner& tuner, const std::uint64_t (&ns)[4]) {
  for (int pass = 0; pass < 100 && !tuner.is_tuned(); ++pass) {
    for (std::size_t i = 0; i < 4; ++i) {
      if (tuner.bytes() != PrefetchTuner::kCandidates[i]) continue;
      // Every other turn of a candidate is disturbed: the best one counts.
      tuner.end_pass(kWeightBytes, pass % 8 < 4 ? 10 * ns[i] : ns[i]);
      break;
    }
  }
  return tuner.bytes();
}

TEST(PrefetchTunerTest, KeepsTheFastest) {
  for (std::size_t best = 0; best < 4; ++best) {
    PrefetchTuner tuner({}, kCacheBytes);
    std::uint64_t ns[4] = {500, 500, 500, 500};
    ns[best] = 400;
    EXPECT_EQ(tune(tuner, ns), PrefetchTuner::kCandidates[best]);
    EXPECT_TRUE(tuner.is_tuned());
    tuner.end_pass(kWeightBytes, 1);
    EXPECT_EQ(tuner.bytes(), PrefetchTuner::kCandidates[best]);
  }
}

TEST(PrefetchTunerTest, TheFirstPassWarmsUpAlone) {
  PrefetchTuner tuner({}, kCacheBytes);
  EXPECT_EQ(tuner.bytes(), PrefetchTuner::kUntuned);
  tuner.end_pass(kWeightBytes, 1);  // unbeatable, but not counted
  EXPECT_EQ(tuner.bytes(), PrefetchTuner::kCandidates[0]);
  const std::uint64_t ns[4] = {500, 500, 400, 500};
  EXPECT_EQ(tune(tuner, ns), PrefetchTuner::kCandidates[2]);
}

TEST(PrefetchTunerTest, WeightsInTheCacheDecideNothing) {
  PrefetchTuner tuner({}, kCacheBytes);
  for (int pass = 0; pass < 100; ++pass) tuner.end_pass(kCacheBytes, 10);
  EXPECT_FALSE(tuner.is_tuned());
  EXPECT_EQ(tuner.bytes(), PrefetchTuner::kUntuned);
}

TEST(PrefetchTunerTest, AFixedDistanceStays) {
  PrefetchTuner tuner(8192, kCacheBytes);
  for (int pass = 0; pass < 100; ++pass) tuner.end_pass(kWeightBytes, 10);
  EXPECT_EQ(tuner.bytes(), 8192U);
}

}  // namespace
}  // namespace qsf
