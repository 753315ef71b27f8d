// SPDX-License-Identifier: MIT
//
// A limit that is lowered while the engine runs, on a made-up machine.

#include "engine/budget_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace qsf {
namespace {

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
