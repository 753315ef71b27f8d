// SPDX-License-Identifier: MIT
//
// The arithmetic of qsf-parity on rows whose answers are known from the definition, and on those
// that make programs lie: NaN, infinities, zeros, ties, single elements, constants.

#include "tools/parity/parity_result.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace qsf_tools {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
using Logits = std::vector<float>;

RowParity compare(const Logits& ours, const Logits& reference, ParityThresholds bounds = {}) {
  return compare_row(ours, reference, bounds);
}

TEST(ParityCompareTest, EqualRowsAreEqual) {
  const RowParity row = compare({1, -2, 3.5F}, {1, -2, 3.5F});
  EXPECT_EQ(row.outcome, RowOutcome::kOk);
  EXPECT_DOUBLE_EQ(*row.cosine, 1.0);
  EXPECT_DOUBLE_EQ(*row.centred_cosine, 1.0);
  EXPECT_EQ(*row.max_abs_error, 0.0);
  EXPECT_EQ(*row.mse, 0.0);
  EXPECT_EQ(*row.kl, 0.0);
  EXPECT_TRUE(row.top1_match());
}

// A threshold of 1 can be kept by rows of the same bits, whatever their squares round to.
TEST(ParityCompareTest, TheCosineOfARowWithItselfIsOne) {
  Logits row;
  for (int i = 0; i < 1000; ++i) row.push_back(std::sin(static_cast<float>(i)) * 7.3F);
  const RowParity result = compare(row, row, {.cosine = 1.0});
  EXPECT_EQ(*result.cosine, 1.0);
  EXPECT_EQ(*result.centred_cosine, 1.0);
  EXPECT_EQ(result.outcome, RowOutcome::kOk);
}

// (3, 4) and (4, 3): cosine 24 / 25; less their means (-0.5, 0.5) and (0.5, -0.5): -1.
TEST(ParityCompareTest, NumbersAreThoseOfTheDefinition) {
  const RowParity row = compare({3, 4}, {4, 3});
  EXPECT_NEAR(*row.cosine, 24.0 / 25.0, 1e-15);
  EXPECT_NEAR(*row.centred_cosine, -1.0, 1e-15);
  EXPECT_EQ(*row.max_abs_error, 1.0);
  EXPECT_EQ(*row.mse, 1.0);
  // p = (e, 1) / (e + 1) of the reference, q the other way round: KL = (e - 1) / (e + 1).
  EXPECT_NEAR(*row.kl, (std::exp(1.0) - 1) / (std::exp(1.0) + 1), 1e-12);
  EXPECT_FALSE(row.top1_match());
  EXPECT_EQ(row.outcome, RowOutcome::kDivergence);
}

// The divergence is of ours from the reference, not the other way round.
TEST(ParityCompareTest, DivergenceHasADirection) {
  const Logits a = {0, 0};
  const Logits b = {0, std::log(3.0F)};  // 1/4 and 3/4
  EXPECT_NEAR(*compare(a, b).kl, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  // Rows of zeros beside numbers are measured and differ.
  EXPECT_EQ(compare(a, b).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare(b, a).outcome, RowOutcome::kDivergence);
}

// A large common offset makes any two rows parallel; the centred cosine sees through it.
TEST(ParityCompareTest, AnOffsetHidesNothing) {
  const Logits ours = {1001, 999, 1000, 1000};
  const Logits reference = {999, 1001, 1000, 1000};
  const RowParity row = compare(ours, reference);
  EXPECT_GT(*row.cosine, 0.999);
  EXPECT_NEAR(*row.centred_cosine, -1.0, 1e-12);
  EXPECT_EQ(row.outcome, RowOutcome::kDivergence);
}

TEST(ParityCompareTest, NegativeRowsAreRowsLikeOthers) {
  EXPECT_EQ(compare({-1, -2, -3}, {-1, -2, -3}).outcome, RowOutcome::kOk);
  EXPECT_EQ(compare({-1, -2, -3}, {1, 2, 3}).outcome, RowOutcome::kDivergence);
  EXPECT_NEAR(*compare({-1, -2, -3}, {1, 2, 3}).cosine, -1.0, 1e-15);
  EXPECT_EQ(compare({-1, -2, -3}, {-1, -2, -3}).top_ours, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(ParityCompareTest, WhatIsNotFiniteDiverges) {
  for (const float bad : {kNan, kInf, -kInf}) {
    const std::vector<std::pair<Logits, Logits>> cases = {
        {{1, bad}, {1, 2}}, {{1, 2}, {1, bad}}, {{1, bad}, {1, bad}}, {{bad, bad}, {0, 0}}};
    for (const auto& [ours, reference] : cases) {
      const RowParity row = compare(ours, reference);
      EXPECT_EQ(row.outcome, RowOutcome::kDivergence);
      EXPECT_FALSE(row.finite);
      EXPECT_FALSE(row.cosine || row.mse || row.kl || row.max_abs_error);
      EXPECT_TRUE(row.top_ours.empty());
    }
  }
}

TEST(ParityCompareTest, ZerosAreNotCompared) {
  EXPECT_EQ(compare({0, 0, 0}, {0, 0, 0}).outcome, RowOutcome::kNotCompared);
  EXPECT_EQ(compare({0, -0.0F}, {0, 0}).outcome, RowOutcome::kNotCompared);
  EXPECT_FALSE(compare({0, 0}, {0, 0}).cosine.has_value());
  EXPECT_EQ(compare({0, 0, 0}, {1, 2, 3}).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare({1, 2, 3}, {0, 0, 0}).outcome, RowOutcome::kDivergence);
}

TEST(ParityCompareTest, OneElementAndConstantRows) {
  EXPECT_EQ(compare({2}, {2}).outcome, RowOutcome::kOk);
  EXPECT_EQ(compare({2}, {-2}).outcome, RowOutcome::kDivergence);  // cosine -1
  EXPECT_EQ(compare({5, 5, 5}, {5, 5, 5}).outcome, RowOutcome::kOk);
  EXPECT_EQ(compare({5, 5, 5}, {4, 5, 6}).outcome, RowOutcome::kDivergence);  // no shape, and one
  EXPECT_EQ(*compare({5, 5, 5}, {4, 5, 6}).centred_cosine, 0.0);
}

TEST(ParityCompareTest, HugeLogitsDoNotOverflow) {
  const float big = std::numeric_limits<float>::max();
  const RowParity row = compare({big, -big}, {big, -big});
  EXPECT_EQ(row.outcome, RowOutcome::kOk);
  EXPECT_NEAR(*row.cosine, 1.0, 1e-12);
  EXPECT_EQ(*row.kl, 0.0);
  EXPECT_TRUE(std::isfinite(*compare({big, -big}, {-big, big}).kl));
}

TEST(ParityCompareTest, TiesGoToTheSmallerId) {
  EXPECT_EQ(top_tokens(Logits{1, 3, 3, 2, 3, 0, 2}), (std::vector<std::uint32_t>{1, 2, 4, 3, 6}));
  EXPECT_EQ(top_tokens(Logits{1, 1}), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(greedy_token(Logits{1, 3, 3}), 1U);
  EXPECT_EQ(greedy_token(Logits{1, kNan}), std::nullopt);
  EXPECT_EQ(greedy_token(Logits{}), std::nullopt);
}

TEST(ParityCompareTest, OverlapCountsWhatIsShared) {
  const std::vector<std::uint32_t> a = {1, 2, 3, 4, 5};
  const std::vector<std::uint32_t> b = {5, 4, 9, 8, 7};
  EXPECT_DOUBLE_EQ(top_overlap(a, b), 0.4);
  EXPECT_DOUBLE_EQ(top_overlap(a, a), 1.0);
  EXPECT_DOUBLE_EQ(top_overlap({}, a), 0.0);
}

TEST(ParityCompareTest, EachThresholdJudges) {
  const Logits ours = {1, 2, 4};
  const Logits reference = {1, 2, 4.1F};
  EXPECT_EQ(compare(ours, reference).outcome, RowOutcome::kOk);
  EXPECT_EQ(compare(ours, reference, {.cosine = 1.0}).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare(ours, reference, {.max_abs_error = 0.05}).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare(ours, reference, {.max_abs_error = 0.2}).outcome, RowOutcome::kOk);
  EXPECT_EQ(compare(ours, reference, {.mse = 1e-4}).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare(ours, reference, {.kl = 1e-9}).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare({1, 2, 2.01F}, {1, 2.01F, 2}, {.top1 = true}).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare({1, 2, 2.01F}, {1, 2.01F, 2}).outcome, RowOutcome::kOk);
}

// A threshold that is no number is met by nothing.
TEST(ParityCompareTest, ThresholdsThatAreNoNumbersAreNeverMet) {
  EXPECT_EQ(compare({1, 2}, {1, 2}, {.cosine = std::nan("")}).outcome, RowOutcome::kDivergence);
  EXPECT_EQ(compare({1, 2}, {1, 2}, {.kl = std::nan("")}).outcome, RowOutcome::kDivergence);
}

}  // namespace
}  // namespace qsf_tools
