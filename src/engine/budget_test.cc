// SPDX-License-Identifier: MIT
//
// Tests of the fit of models made of numbers, and of a limit that is lowered on a made-up machine.

#include "engine/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMB = 1'000'000;

// About a model of 7 billion weights in 2.5 bits: 18 MB of program and threads, 100 KB of keys and
// values a position, 230 KB of activations a row, weights of 2.2 GB.
BudgetCosts costs_7b() {
  BudgetCosts costs;
  costs.base_bytes = 18 * kMB;
  costs.context_bytes = [](std::uint32_t context) { return std::uint64_t{context} * 100'000; };
  costs.rows_bytes = [](std::uint32_t rows, std::uint32_t context) {
    return std::uint64_t{rows} * 230'000 + context;
  };
  costs.all_weight_bytes = 2200 * kMB;
  costs.ring_weight_bytes = 30 * kMB;
  costs.least_weight_bytes = 18 * kMB;
  return costs;
}

BudgetFit fit(std::uint64_t budget_mb, std::uint32_t context, bool named, std::uint32_t rows) {
  const BudgetCosts costs = costs_7b();
  const BudgetWishes wishes = {budget_mb * kMB, context, named, rows};
  const BudgetFit got = fit_budget(costs, wishes).value();
  EXPECT_LE(bytes_of(costs, got.context, got.rows, got.weight_bytes), wishes.budget_bytes);
  EXPECT_GE(got.weight_bytes, costs.least_weight_bytes);
  EXPECT_LE(got.weight_bytes, costs.all_weight_bytes);
  return got;
}

Status refusal(std::uint64_t budget_mb, std::uint32_t context, bool named) {
  return fit_budget(costs_7b(), {budget_mb * kMB, context, named, 1}).error();
}

TEST(BudgetFitTest, WithoutABoundEverythingIsResident) {
  const BudgetFit got = fit_budget(costs_7b(), {UINT64_MAX, 4096, false, 512}).value();
  EXPECT_EQ(got.context, 4096U);
  EXPECT_EQ(got.rows, 512U);
  EXPECT_TRUE(got.everything_resident);
}

TEST(BudgetFitTest, ARefusalHasTheSizesThatItNames) {
  BudgetRefusal sizes;
  const auto refused = fit_budget(costs_7b(), {5 * kMB, 4096, true, 1}, &sizes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(sizes.budget_bytes, 5 * kMB);
  EXPECT_NE(refused.error().message().find(std::to_string(sizes.needed_bytes / kMB) + " MB"),
            std::string::npos);
  const std::uint64_t needed = sizes.needed_bytes;
  EXPECT_FALSE(fit_budget(costs_7b(), {needed / 2, 4096, true, 1}).has_value());
  // An attempt of which a later one leaves out something is no refusal.
  EXPECT_TRUE(fit_budget(costs_7b(), {needed, 4096, true, 1}, &sizes).has_value());
  EXPECT_EQ(sizes.needed_bytes, 0U);
  EXPECT_EQ(sizes.budget_bytes, 0U);
}

TEST(BudgetFitTest, PagesNeedPageTables) {
  const BudgetCosts costs = costs_7b();
  const std::uint64_t mapped = 1000 * 100'000 + 10 * 230'000 + 1000 + 18 * kMB;
  EXPECT_EQ(bytes_of(costs, 1000, 10, 18 * kMB), 18 * kMB + mapped + mapped / 512);
}

// 2,200 + 18 + 51.2 for 512 positions; 117.8 for 512 rows. Between the two rows are given up, since
// a model in memory reads nothing again.
TEST(BudgetFitTest, FewerRowsBeforeAnyWeightLeavesMemory) {
  EXPECT_EQ(fit(2400, 512, true, 512).rows, 512U);
  const BudgetFit fewer = fit(2340, 512, true, 512);
  EXPECT_TRUE(fewer.everything_resident);
  EXPECT_LT(fewer.rows, 512U);
  EXPECT_GE(fewer.rows, 64U);
}

// Once weights are streamed a prompt in one pass is worth more than what its activations could pin.
TEST(BudgetFitTest, StreamedModelsKeepTheirRowsAndPinTheRest) {
  const BudgetFit got = fit(1000, 512, true, 512);
  EXPECT_FALSE(got.everything_resident);
  EXPECT_EQ(got.rows, 512U);
  EXPECT_GT(got.weight_bytes, 800 * kMB);
  EXPECT_GT(bytes_of(costs_7b(), 512, 512, got.weight_bytes + 1), 1000 * kMB);  // nothing is left
}

TEST(BudgetFitTest, RowsMakeRoomForTheRing) {
  const BudgetFit got = fit(200, 1000, true, 512);  // 18 + 100 + 30 leave some 51 MB
  EXPECT_EQ(got.context, 1000U);
  EXPECT_LT(got.rows, 512U);
  EXPECT_GE(got.rows, 16U);
  EXPECT_GE(got.weight_bytes, 30 * kMB);
  EXPECT_GT(bytes_of(costs_7b(), 1000, got.rows + 1, 30 * kMB), 200 * kMB);
}

TEST(BudgetFitTest, TheRingShrinksBeforeTheLastRowsDo) {
  const BudgetFit smaller_ring = fit(145, 1000, true, 512);
  EXPECT_EQ(smaller_ring.rows, 16U);
  EXPECT_LT(smaller_ring.weight_bytes, 30 * kMB);
  const BudgetFit last_rows = fit(139, 1000, true, 512);
  EXPECT_LT(last_rows.rows, 16U);
  EXPECT_GE(last_rows.rows, 1U);
}

TEST(BudgetFitTest, AContextThatNobodyNamedIsHalvedDownToItsLeast) {
  EXPECT_EQ(fit(460, 4096, false, 512).context, 4096U);
  EXPECT_EQ(fit(440, 4096, false, 512).context, 2048U);
  EXPECT_EQ(fit(200, 4096, false, 512).context, 1024U);
  EXPECT_EQ(fit(141, 4096, false, 512).context, 1024U);
  EXPECT_EQ(refusal(200, 4096, true).code(), StatusCode::kOutOfBudget);
  EXPECT_EQ(fit(200, 700, false, 512).context, 700U);  // shorter than the least already
}

// The budget that a refusal names works, and so does the context it names. It is the least but for
// a quarter of a MB, by which a process that starts again may have grown.
TEST(BudgetFitTest, RefusalsNameWhatWouldWork) {
  // 18 + (409.6 + 0.23 + 0.004096 + 18) * 513 / 512 = 446.67
  EXPECT_THAT(refusal(200, 4096, true).message(), HasSubstr("needs 447 MB"));
  EXPECT_EQ(fit(447, 4096, true, 512).rows, 1U);
  EXPECT_EQ(refusal(446, 4096, true).code(), StatusCode::kOutOfBudget);
  // (200 - 18) * 512 / 513 - 18.23 = 163.41 MB of 100,001 bytes each
  EXPECT_THAT(refusal(200, 4096, true).message(), HasSubstr("context of 1634 positions would fit"));
  EXPECT_EQ(fit(200, 1634, true, 512).context, 1634U);
  EXPECT_EQ(refusal(200, 1635, true).code(), StatusCode::kOutOfBudget);
  // Where nobody named a context it is the least that the smallest budget is for.
  EXPECT_THAT(refusal(100, 4096, false).message(), HasSubstr("context of 1024 positions"));
  EXPECT_THAT(refusal(100, 4096, false).message(),
              HasSubstr("needs 140 MB"));  // 138.87 and a quarter
  EXPECT_EQ(fit(139, 4096, false, 512).context, 1024U);
  EXPECT_EQ(refusal(138, 4096, false).code(), StatusCode::kOutOfBudget);
}

TEST(BudgetFitTest, BudgetsBelowEveryContextSaySo) {
  EXPECT_THAT(refusal(20, 1024, true).message(), HasSubstr("too small for this model"));
  EXPECT_THAT(refusal(0, 1, true).message(), HasSubstr("needs 37 MB"));
}

// More memory never buys less of anything that comes earlier in the order.
TEST(BudgetFitTest, MoreMemoryNeverGivesLess) {
  BudgetFit before;
  bool found = false;
  for (std::uint64_t mb = 100; mb < 2900; ++mb) {
    const auto got = fit_budget(costs_7b(), {mb * kMB, 4096, false, 512});
    if (!got.has_value()) {
      EXPECT_FALSE(found) << mb;
      continue;
    }
    if (found) {
      EXPECT_GE(got->context, before.context) << mb;
      if (got->context == before.context && !got->everything_resident) {
        EXPECT_GE(got->rows, before.rows) << mb;
      }
      EXPECT_GE(got->everything_resident, before.everything_resident) << mb;
    }
    found = true;
    before = *got;
  }
  EXPECT_TRUE(before.everything_resident);
}

// Sizes come from files.
TEST(BudgetFitTest, SumsThatPass64BitsAreTooLarge) {
  BudgetCosts costs = costs_7b();
  costs.context_bytes = [](std::uint32_t) { return UINT64_MAX - 5; };
  EXPECT_EQ(bytes_of(costs, 1, 1, 100), UINT64_MAX);
  EXPECT_EQ(fit_budget(costs, {1000 * kMB, 1, true, 1}).error().code(), StatusCode::kOutOfBudget);
}

constexpr std::uint64_t kMs = 1'000'000;

class BudgetWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() /
             ("qsf_budget_watch_test." + std::to_string(::getpid())))
                .string();
    std::filesystem::create_directories(root_ + "/proc/self");
    std::filesystem::create_directories(root_ + "/sys/fs/cgroup/box");
    std::ofstream(root_ + "/proc/self/cgroup") << "0::/box\n";
    set_limit("max");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void set_limit(const std::string& text) const {
    std::ofstream(root_ + "/sys/fs/cgroup/box/memory.max") << text << "\n";
  }

  std::string root_;
};

TEST_F(BudgetWatchTest, GivesBackWhatALowerLimitTakesAwayOnce) {
  BudgetWatch watch(1000, root_);
  EXPECT_EQ(watch.bytes_to_give_back(0), 0U);
  set_limit("900");
  EXPECT_EQ(watch.bytes_to_give_back(99 * kMs), 0U);  // it looks every 100 ms
  EXPECT_EQ(watch.bytes_to_give_back(100 * kMs), 100U);
  EXPECT_EQ(watch.bytes_to_give_back(300 * kMs), 0U);
  set_limit("850");
  EXPECT_EQ(watch.bytes_to_give_back(500 * kMs), 50U);
  set_limit("2000");
  EXPECT_EQ(watch.bytes_to_give_back(700 * kMs), 0U);
}

TEST_F(BudgetWatchTest, LimitsAboveThePlanChangeNothing) {
  BudgetWatch watch(1000, root_);
  set_limit("1000");
  EXPECT_EQ(watch.bytes_to_give_back(100 * kMs), 0U);
}

TEST_F(BudgetWatchTest, WithoutGroupsThereIsNothingToWatch) {
  std::filesystem::remove_all(root_);
  BudgetWatch watch(1000, root_);
  EXPECT_EQ(watch.bytes_to_give_back(0), 0U);
}

}  // namespace
}  // namespace qsf
