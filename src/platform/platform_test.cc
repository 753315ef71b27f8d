// SPDX-License-Identifier: MIT
//
// Tests of platform/ but threads and CPU features: cores at hand, pages, the clock.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitizer.h"
#include "platform/clock.h"
#include "platform/cpu_count.h"
#include "platform/memory.h"
#include "platform/threads.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ClockTest, NeverGoesBack) {
  std::uint64_t last = monotonic_ns();
  bool moved = false;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t now = monotonic_ns();
    ASSERT_GE(now, last);
    moved = moved || now > last;
    last = now;
  }
  EXPECT_TRUE(moved);
}

// Tiles are aligned to 4,096 bytes, also where a page has 16,384 (Raspberry Pi 5, Apple silicon).
TEST(WholePagesTest, KeepsNeighboursOnPagesOfAnySize) {
  constexpr std::size_t kMemoryBytes = std::size_t{1} << 18;
  alignas(65536) static std::byte memory[kMemoryBytes];
  const MutableByteSpan all(memory);
  for (const std::size_t page : {std::size_t{4096}, std::size_t{16384}, std::size_t{65536}}) {
    EXPECT_EQ(whole_pages(all, page).size(), kMemoryBytes);
    EXPECT_TRUE(whole_pages(all.subspan(1, page), page).empty());
    EXPECT_TRUE(whole_pages(all.first(page - 1), page).empty());
    EXPECT_TRUE(whole_pages({}, page).empty());
    const MutableByteSpan inner = whole_pages(all.subspan(page - 4096, 2 * page), page);
    EXPECT_EQ(inner.data(), memory + (page == 4096 ? 0 : page)) << page;
    EXPECT_EQ(inner.size(), page == 4096 ? 2 * page : page) << page;
    EXPECT_EQ(whole_pages(all.subspan(page, page + 4096), page).size(),
              page == 4096 ? 2 * page : page);
  }
}

TEST(ThreadTest, RunsOnceAndCanBeStartedAgain) {
  struct Seen {
    ThreadHandle handle = 0;
    int n_runs = 0;
  } seen;
  const auto run = [](void* argument) -> void* {
    Seen& to = *static_cast<Seen*>(argument);
    to.handle = this_thread();
    ++to.n_runs;
    return nullptr;
  };
  Thread thread;
  EXPECT_FALSE(thread.is_started());
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(thread.start(run, &seen), 0);
    EXPECT_TRUE(thread.is_started());
    Thread moved = std::move(thread);
    EXPECT_FALSE(thread.is_started());
    const ThreadHandle handle = moved.handle();
    moved.join();
    EXPECT_FALSE(moved.is_started());
    EXPECT_EQ(seen.handle, handle);
    EXPECT_NE(seen.handle, this_thread());
    EXPECT_EQ(seen.n_runs, i);
  }
}

TEST(CpuCountTest, ParsesListsOfCpus) {
  EXPECT_THAT(parse_cpu_list("0-2,8,10-11\n"), ElementsAre(0, 1, 2, 8, 10, 11));
  EXPECT_THAT(parse_cpu_list("5"), ElementsAre(5));
  for (const char* text : {"", "\n", "a", "3-1", "-1", "1-", "0-99999999", "1;2"}) {
    EXPECT_THAT(parse_cpu_list(text), IsEmpty()) << text;
  }
}

TEST(CpuCountTest, ParsesQuotas) {
  EXPECT_EQ(parse_cpu_max("150000 100000\n"), 1.5);
  EXPECT_EQ(parse_cpu_max("max 100000\n"), kNoQuota);
  EXPECT_EQ(parse_cpu_max(""), kNoQuota);
  EXPECT_EQ(parse_cpu_max("100000"), kNoQuota);
  EXPECT_EQ(parse_cfs_quota("200000\n", "100000\n"), 2.0);
  EXPECT_EQ(parse_cfs_quota("-1\n", "100000\n"), kNoQuota);
}

// A made-up machine under a folder: files named as Linux names them.
class MachineTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() /
             ("qsf_machine_test." + std::to_string(::getpid()) + "." +
              testing::UnitTest::GetInstance()->current_test_info()->name()))
                .string();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void put_siblings(unsigned cpu, const std::string& text) const {
    put("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        text);
  }

  std::string root_;
};

TEST_F(MachineTest, CountsEachPhysicalCoreOnce) {
  for (unsigned cpu = 0; cpu < 8; ++cpu) {
    put_siblings(cpu, std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  using testing::ElementsAre;
  EXPECT_THAT(one_cpu_per_core(root_, std::vector<unsigned>{0, 1, 2, 3, 4, 5, 6, 7}),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(one_cpu_per_core(root_, std::vector<unsigned>{5, 1}), ElementsAre(5));
  EXPECT_THAT(one_cpu_per_core(root_, std::vector<unsigned>{9, 4, 5}),
              ElementsAre(4, 5, 9));  // 9: not described
  EXPECT_EQ(usable_cores(root_, std::vector<unsigned>{0, 1, 2, 3, 4, 5, 6, 7}), 4U);
  EXPECT_EQ(usable_cpus(root_, std::vector<unsigned>{0, 1, 2, 3, 4, 5, 6, 7}), 8U);
  EXPECT_EQ(usable_cores(root_, {}), 1U);
}

TEST_F(MachineTest, TakesTheSmallestQuotaOfAllAncestors) {
  const std::vector<unsigned> cpus = {0, 1, 2, 3};
  put("/proc/self/cgroup", "0::/outer/inner\n");
  EXPECT_EQ(cpu_quota(root_), kNoQuota);
  put("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cores(root_, cpus), 4U);
  put("/sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 2.5);
  EXPECT_EQ(usable_cores(root_, cpus), 3U);
  put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cores(root_, cpus), 1U);
}

TEST_F(MachineTest, ReadsQuotasOfVersionOne) {
  put("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/box\n");
  put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "200000\n");
  put("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), 2.0);
}

TEST(CpuCountTest, ThisMachineHasAtLeastOneCoreAndAtMostTheOnlineOnes) {
  EXPECT_GE(default_thread_count(), 1U);
  EXPECT_LE(default_thread_count(), static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

TEST(PagesTest, AreZeroedWritableAndReturned) {
  for (const HugePages huge_pages : {HugePages::kAllow, HugePages::kNever}) {
    const std::uint64_t n_bytes = 3 * page_bytes() + 17;
    const MutableByteSpan pages = map_pages(n_bytes, huge_pages).value();
    ASSERT_EQ(pages.size(), n_bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.data()) % page_bytes(), 0U);
    EXPECT_TRUE(
        std::all_of(pages.begin(), pages.end(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill(pages.begin(), pages.end(), std::byte{0xA5});
    unmap_pages(pages);
  }
  unmap_pages({});
}

TEST(PagesTest, RefusalsSayHowMuch) {
  EXPECT_EQ(map_pages(0, HugePages::kNever).error().code(), StatusCode::kInvalidArgument);
  for (const std::uint64_t n_bytes : {std::uint64_t{1} << 62, UINT64_MAX}) {
    const auto refused = map_pages(n_bytes, HugePages::kNever);
    EXPECT_EQ(refused.error().code(), StatusCode::kOutOfBudget);
    EXPECT_THAT(refused.error().message(), testing::HasSubstr(std::to_string(n_bytes)));
  }
}

// Touching 32 MiB must show in both figures, and giving them back in the first alone.
TEST(PagesTest, ResidentBytesFollowWhatIsTouched) {
#ifdef QSF_WITH_SANITIZER
  GTEST_SKIP() << "shadow memory moves the figures";
#endif
  constexpr std::uint64_t kBytes = 32U << 20;
  constexpr std::uint64_t kSlack = 4U << 20;
  const std::uint64_t before = resident_bytes();
  ASSERT_GT(before, 0U);
  const MutableByteSpan pages = map_pages(kBytes, HugePages::kNever).value();
  EXPECT_LT(resident_bytes(), before + kSlack);
  std::fill(pages.begin(), pages.end(), std::byte{1});
  EXPECT_GT(resident_bytes(), before + kBytes - kSlack);
  unmap_pages(pages);
  EXPECT_LT(resident_bytes(), before + kSlack);
  EXPECT_GT(peak_resident_bytes(), before + kBytes - kSlack);
}

TEST(PagesTest, TouchedPagesAreThereWithTheirBytes) {
#ifdef QSF_WITH_SANITIZER
  GTEST_SKIP() << "shadow memory moves the figures";
#endif
  constexpr std::uint64_t kBytes = 32U << 20;
  constexpr std::uint64_t kSlack = 4U << 20;
  const std::uint64_t before = resident_bytes();
  const MutableByteSpan pages = map_pages(kBytes, HugePages::kNever).value();
  pages[5] = std::byte{7};
  pages[0] = std::byte{9};
  touch_pages(pages);
  touch_pages({});
  EXPECT_GT(resident_bytes(), before + kBytes - kSlack);
  EXPECT_EQ(pages[0], std::byte{9});
  EXPECT_EQ(pages[5], std::byte{7});
  EXPECT_EQ(pages[kBytes - 1], std::byte{0});
  unmap_pages(pages);
}

}  // namespace
}  // namespace qsf
