// SPDX-License-Identifier: MIT
//
// Bounds of logits against what kernels compute: sums in several orders, errors that point where a
// bound is widest, int8 inputs, bases that are not quite orthonormal, and numbers that are none.

#include "model/head_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace qsf {
namespace {

using testing::ElementsAre;

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

using Values = std::vector<float>;

Values random_row(std::uint32_t n, Rng& rng) {
  Values row(n);
  for (float& value : row) value = rng.next_normal();
  return row;
}

double norm(const Values& row, std::size_t first = 0, std::size_t n = SIZE_MAX) {
  double sum = 0.0;
  for (std::size_t i = first; i < row.size() && i - first < n; ++i) {
    sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  }
  return std::sqrt(sum);
}

// Sums in f32, forwards or backwards, as a kernel may.
float dot(const Values& a, const Values& b, bool backwards = false) {
  float sum = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::size_t k = backwards ? a.size() - 1 - i : i;
    sum += a[k] * b[k];
  }
  return sum;
}

// A head of one row w = sketch + error with Q = scale * I.
HeadErrors head_of(const Values& sketch, const Values& error, float scale = 1.0F) {
  HeadErrors head;
  head.n_rows = 1;
  head.n_cols = static_cast<std::uint32_t>(sketch.size());
  const std::uint32_t n_blocks = sketch_blocks(head.n_cols);
  const auto q = static_cast<double>(scale);
  for (std::uint32_t block = 0; block < n_blocks; ++block) {
    const std::size_t first = std::size_t{block} * kSketchColumns;
    head.steps.push_back(round_up(q * norm(error, first, kSketchColumns) / 200.0));
    head.codes.push_back(200);
    head.sketch_norms.push_back(round_up(norm(sketch, first, kSketchColumns)));
  }
  head.error_norm = round_up(norm(error));
  head.defect = round_up(std::abs(1.0 - q * q));
  head.head_magnitude = round_up(q * norm(sketch) + norm(error));
  head.sketch_magnitude = round_up(norm(sketch));
  return head;
}

float bound_of(const HeadErrors& head, const HiddenRow& row, float score) {
  Result<HeadBounds> bounds = HeadBounds::create(head);
  EXPECT_TRUE(bounds.has_value()) << bounds.error().message();
  EXPECT_TRUE(bounds->prepare(row));
  bounds->bound(0, {&score, 1});
  return score;
}

// Errors along the hidden row in each block: nothing less is a bound, and little more is this one.
TEST(HeadBoundsTest, ErrorsAlongTheHiddenRowReachTheBound) {
  Rng rng(1);
  for (const std::uint32_t n_cols : {1U, 63U, 64U, 65U, 200U, 1024U}) {
    const Values hidden = random_row(n_cols, rng);
    const Values sketch = random_row(n_cols, rng);
    Values error(n_cols);
    Values weights(n_cols);
    for (std::uint32_t i = 0; i < n_cols; ++i) {
      error[i] = hidden[i] * (0.05F + 0.03F * static_cast<float>(i / kSketchColumns));
      weights[i] = sketch[i] + error[i];
    }
    const float score = dot(sketch, hidden);
    const float bound = bound_of(head_of(sketch, error), {hidden, hidden, hidden}, score);
    const float logit = dot(weights, hidden, true);
    EXPECT_GE(bound, logit) << n_cols;
    EXPECT_LT(bound, logit + 0.02F * (logit - score) + 1e-3F * static_cast<float>(norm(hidden)));
  }
}

// Long sums whose roundings all point one way, and a sketch that leaves out nothing.
TEST(HeadBoundsTest, HoldsForSumsThatRoundOneWay) {
  constexpr std::uint32_t kColumns = 4096;
  std::uint32_t n_above_score = 0;
  for (int i = 1; i < 60; ++i) {
    Values hidden(kColumns, 1.0F);
    const Values weights(kColumns, 1.0F + static_cast<float>(i) / 777.0F);
    hidden.back() = 3e5F;
    const float score = dot(weights, hidden, i % 2 == 0);
    const float logit = dot(weights, hidden, i % 2 != 0);
    n_above_score += logit > score ? 1U : 0U;
    const Values none(kColumns, 0.0F);
    EXPECT_GE(bound_of(head_of(weights, none), {hidden, hidden, hidden}, score), logit) << i;
  }
  EXPECT_GT(n_above_score, 10U);  // a bound without regard to roundings fails
}

// What is added to a score is far below its last bit, and none of it may be lost.
TEST(HeadBoundsTest, ItsOwnSumsAreRoundedUp) {
  Values hidden(64, 0.0F);
  Values error(64, 0.0F);
  hidden[5] = 1.0F;
  for (const float added : {0.01F, 0.4F, 0.9F}) {
    error[5] = added;
    for (const float score : {0x1.0p24F, -0x1.0p24F, 0x1.234567p30F}) {
      const float bound =
          bound_of(head_of(Values(64, 0.0F), error), {hidden, hidden, hidden}, score);
      EXPECT_GE(static_cast<double>(bound), static_cast<double>(score) + static_cast<double>(added))
          << score << " " << added;
      EXPECT_LT(bound, score + 64.0F * std::abs(score) * 0x1.0p-24F);
    }
  }
}

// Codes and a min that nearly cancel: what an int8 kernel rounds is far larger than the row.
TEST(HeadBoundsTest, HoldsWhereScalesAndMinsCancel) {
  constexpr float kMin = -1000.0F;
  constexpr float kStep = 0.1F;  // of the input; its codes are 3
  const Values hidden(64, kStep * 3.0F);
  std::uint32_t n_above = 0;
  for (int i = 1; i < 200; ++i) {
    const float scale = 1000.0F + 0.00123F * static_cast<float>(i);
    const Values weights(
        64, static_cast<float>(static_cast<double>(scale) + static_cast<double>(kMin)));
    const float logit = kStep * (scale * (64.0F * 3.0F) + kMin * (64.0F * 3.0F));
    HeadErrors head = head_of(weights, Values(64, 0.0F));
    const float score = dot(weights, hidden);
    n_above += bound_of(head, {hidden, hidden, hidden, 1}, score) < logit ? 1U : 0U;
    head.head_magnitude = 8.0F * 2000.2F;
    EXPECT_GE(bound_of(head, {hidden, hidden, hidden, 1}, score), logit) << i;
  }
  EXPECT_GT(n_above, 0U);  // with the norm of the row instead
}

TEST(HeadBoundsTest, FewerRoundingsGiveNarrowerBounds) {
  Rng rng(10);
  const Values hidden = random_row(1024, rng);
  const Values sketch = random_row(1024, rng);
  const HeadErrors head = head_of(sketch, Values(1024, 0.0F));
  const float loop = bound_of(head, {hidden, hidden, hidden}, 0.0F);
  EXPECT_EQ(bound_of(head, {hidden, hidden, hidden, 1024}, 0.0F), loop);
  EXPECT_LT(bound_of(head, {hidden, hidden, hidden, 64}, 0.0F), 0.2F * loop);
}

// The sketch's kernel takes int8, and what it leaves out points along the sketch.
TEST(HeadBoundsTest, HoldsForWhatTheSketchsKernelLeavesOut) {
  Rng rng(3);
  const Values hidden = random_row(256, rng);
  Values coarse(256);
  Values sketch(256);
  for (std::size_t i = 0; i < 256; ++i) {
    coarse[i] = std::round(hidden[i] * 4.0F) / 4.0F;
    sketch[i] = hidden[i] - coarse[i];
  }
  const Values none(256, 0.0F);
  const float score = dot(sketch, coarse);
  const float bound = bound_of(head_of(sketch, none), {hidden, hidden, coarse}, score);
  const float logit = dot(sketch, hidden);
  EXPECT_GT(logit, score + 0.5F);
  EXPECT_GE(bound, logit);
  EXPECT_LT(bound, logit + 0.05F * (logit - score));
}

// With Q = 0.9 I, |Q e| |Q h| is 0.81 |e| |h|.
TEST(HeadBoundsTest, HoldsForABasisThatIsNotOrthonormal) {
  Rng rng(4);
  const Values hidden = random_row(100, rng);
  Values turned(100);
  Values sketch(100);
  Values weights(100);
  Values error(100);
  for (std::size_t i = 0; i < 100; ++i) {
    turned[i] = 0.9F * hidden[i];
    error[i] = 0.5F * hidden[i];
    sketch[i] = 0.1F * hidden[i];
    weights[i] = 0.9F * sketch[i] + error[i];
  }
  const float score = dot(sketch, turned);
  const float bound = bound_of(head_of(sketch, error, 0.9F), {hidden, turned, turned}, score);
  const float logit = dot(weights, hidden);
  EXPECT_GE(bound, logit);
  EXPECT_LT(bound, logit * 1.25F);
}

TEST(HeadBoundsTest, AddsTheSharedRow) {
  Rng rng(5);
  const Values hidden = random_row(70, rng);
  const Values sketch = random_row(70, rng);
  HeadErrors head = head_of(sketch, Values(70, 0.0F));
  const float score = dot(sketch, hidden);
  for (const float sign : {1.0F, -1.0F}) {
    head.shared = hidden;
    for (float& value : head.shared) value *= sign;
    const float bound = bound_of(head, {hidden, hidden, hidden}, score);
    const float logit = score + sign * dot(hidden, hidden);
    EXPECT_GE(bound, logit - 1e-4F);
    EXPECT_LT(bound, logit + 0.02F);
  }
}

TEST(HeadBoundsTest, BoundsOfManyRowsAreThoseOfEach) {
  constexpr std::uint32_t kRows = 700;  // more than are bounded at once
  Rng rng(6);
  const Values hidden = random_row(130, rng);
  HeadErrors head = head_of(random_row(130, rng), random_row(130, rng));
  head.n_rows = kRows;
  head.codes.resize(std::size_t{3} * kRows);
  for (std::uint8_t& code : head.codes) code = static_cast<std::uint8_t>(rng.below(256));
  Result<HeadBounds> bounds = HeadBounds::create(head);
  ASSERT_TRUE(bounds.has_value());
  ASSERT_TRUE(bounds->prepare({hidden, hidden, hidden}));
  Values all = random_row(kRows, rng);
  const Values scores = all;
  bounds->bound(0, all);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    float one = scores[row];
    bounds->bound(row, {&one, 1});
    EXPECT_EQ(one, all[row]) << row;
    double width = 0.0;
    for (std::size_t block = 0; block < 3; ++block) {
      width += norm(hidden, block * kSketchColumns, kSketchColumns) *
               static_cast<double>(head.steps[block]) *
               static_cast<double>(head.codes[block * kRows + row]);
    }
    EXPECT_GE(static_cast<double>(one), static_cast<double>(scores[row]) + width);
    EXPECT_LT(static_cast<double>(one), static_cast<double>(scores[row]) + 1.01 * width + 0.05);
  }
}

TEST(HeadBoundsTest, AHiddenRowOfZerosBoundsEverythingBySmallNumbers) {
  Rng rng(7);
  const Values zeros(64, 0.0F);
  const float bound =
      bound_of(head_of(random_row(64, rng), random_row(64, rng)), {zeros, zeros, zeros}, 0.0F);
  EXPECT_GE(bound, 0.0F);
  EXPECT_LT(bound, 1e-30F);
}

TEST(HeadBoundsTest, RefusesHiddenRowsThatAreNotFiniteOrTooLarge) {
  Rng rng(8);
  const Values good = random_row(128, rng);
  Result<HeadBounds> bounds = HeadBounds::create(head_of(good, good));
  ASSERT_TRUE(bounds.has_value());
  for (const float broken : {kNoNumber, kInfinite, -kInfinite, 1e30F}) {
    Values bad = good;
    bad[100] = broken;
    EXPECT_FALSE(bounds->prepare({bad, good, good})) << broken;
    EXPECT_FALSE(bounds->prepare({good, bad, good})) << broken;
    EXPECT_FALSE(bounds->prepare({good, good, bad})) << broken;
  }
  EXPECT_TRUE(bounds->prepare({good, good, good}));
}

TEST(HeadBoundsTest, ProductsThatAreNotFiniteHaveNoBound) {
  Rng rng(9);
  const Values row = random_row(64, rng);
  for (const float broken : {kNoNumber, kInfinite, -kInfinite}) {
    EXPECT_EQ(bound_of(head_of(row, row), {row, row, row}, broken), kInfinite);
  }
}

TEST(HeadBoundsTest, RefusesNumbersThatBoundNothing) {
  const HeadErrors good = head_of(Values(65, 1.0F), Values(65, 1.0F));
  ASSERT_TRUE(HeadBounds::create(good).has_value());
  std::vector<HeadErrors> bad(12, good);
  bad[0].n_rows = 0;
  bad[1].n_cols = 0;
  bad[2].n_cols = 129;
  bad[3].steps[1] = -1.0F;
  bad[4].steps[0] = kNoNumber;
  bad[5].codes.pop_back();
  bad[6].sketch_norms[1] = kInfinite;
  bad[7].error_norm = kNoNumber;
  bad[8].defect = 0.5F;
  bad[9].head_magnitude = -1.0F;
  bad[10].sketch_magnitude = kInfinite;
  bad[11].shared = {1.0F};
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(HeadBounds::create(bad[i]).error().code(), StatusCode::kCorrupt) << i;
  }
  HeadErrors broken = good;
  broken.shared.assign(65, kNoNumber);
  EXPECT_FALSE(HeadBounds::create(broken).has_value());
}

TEST(HeadBoundsTest, UnitsHaveTheLargestBoundOfTheirRows) {
  const Values bounds = {1.0F, 5.0F, -2.0F, -3.0F, kNoNumber, 1.0F, -7.0F};
  Values units(4);
  ASSERT_EQ(bound_units(bounds, 2, units), 4U);
  EXPECT_THAT(units, ElementsAre(5.0F, -2.0F, kInfinite, -7.0F));
  Values place = bounds;
  EXPECT_EQ(bound_units(place, 3, place), 3U);
  EXPECT_THAT(std::vector(place.begin(), place.begin() + 3), ElementsAre(5.0F, kInfinite, -7.0F));
  EXPECT_EQ(bound_units({}, 3, {}), 0U);
}

// Wherever in a unit of several runs and a rest it stands.
TEST(HeadBoundsTest, AUnitMissesNoneOfItsRows) {
  for (std::size_t row = 0; row < 27; ++row) {
    Values bounds(27, -1.0F);
    float unit = 0.0F;
    for (const auto& [bound, largest] :
         {std::pair{2.0F, 2.0F}, {kNoNumber, kInfinite}, {kInfinite, kInfinite}, {-3.0F, -1.0F}}) {
      bounds[row] = bound;
      ASSERT_EQ(bound_units(bounds, 27, {&unit, 1}), 1U);
      EXPECT_EQ(unit, largest) << row;
    }
  }
}

TEST(HeadBoundsTest, RoundsUp) {
  EXPECT_EQ(round_up(1.0), 1.0F);
  EXPECT_EQ(round_up(1.0 + 1e-12), std::nextafter(1.0F, 2.0F));
  EXPECT_EQ(round_up(-1.0 - 1e-12), -1.0F);
  EXPECT_EQ(round_up(1e-60), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(round_up(1e60), kInfinite);
  EXPECT_EQ(round_up(std::numeric_limits<double>::quiet_NaN()), kInfinite);
}

}  // namespace
}  // namespace qsf
