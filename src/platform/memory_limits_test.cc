// SPDX-License-Identifier: MIT
//
// Limits of memory and the memory of a program, read from made-up machines.

#include "platform/memory_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "platform/cgroup.h"
#include "platform/memory.h"

namespace qsf {
namespace {

// A made-up machine under a folder: files named as Linux names them.
class MemoryLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() /
             ("qsf_memory_limits_test." + std::to_string(::getpid()) + "." +
              testing::UnitTest::GetInstance()->current_test_info()->name()))
                .string();
    std::filesystem::remove_all(root_);
    put("/proc/meminfo",
        "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    9000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void put_version_2(const std::string& group, const std::string& max, std::uint64_t current,
                     std::uint64_t inactive, std::uint64_t active) const {
    const std::string folder = "/sys/fs/cgroup" + group;
    put(folder + "/memory.max", max + "\n");
    put(folder + "/memory.current", std::to_string(current) + "\n");
    put(folder + "/memory.stat", "anon 77\ninactive_anon 33\nactive_anon 44\ninactive_file " +
                                     std::to_string(inactive) + "\nactive_file " +
                                     std::to_string(active) + "\nslab 5\n");
  }

  std::string root_;
};

TEST_F(MemoryLimitsTest, ParsesLimits) {
  EXPECT_EQ(parse_memory_limit("200000000\n"), 200'000'000U);
  EXPECT_EQ(parse_memory_limit("0\n"), 0U);
  for (const char* none : {"max\n", "9223372036854771712\n", "", "x", "-1\n", "12x\n"}) {
    EXPECT_EQ(parse_memory_limit(none), kNoMemoryLimit) << none;
  }
}

TEST_F(MemoryLimitsTest, FindsWholeKeysInTables) {
  const char* table = "inactive_file 1\nfile 2\ntotal_file 3\nfile_dirty 4\nMemTotal:  5 kB\nend";
  EXPECT_EQ(table_number(table, "file"), 2U);
  EXPECT_EQ(table_number(table, "MemTotal:"), 5U);
  EXPECT_EQ(table_number(table, "end"), 0U);
  EXPECT_EQ(table_number(table, "absent"), 0U);
  EXPECT_EQ(table_number("", "file"), 0U);
}

TEST_F(MemoryLimitsTest, WithoutGroupsTheMachineCounts) {
  const MemoryLimits limits = read_memory_limits(root_);
  EXPECT_EQ(limits.limit_bytes, 16'000U * 1024);
  EXPECT_EQ(limits.headroom_bytes, 9'000U * 1024);
}

TEST_F(MemoryLimitsTest, AMachineThatTellsNothingHasNoLimit) {
  std::filesystem::remove_all(root_);
  const MemoryLimits limits = read_memory_limits(root_);
  EXPECT_EQ(limits.limit_bytes, kNoMemoryLimit);
  EXPECT_EQ(limits.headroom_bytes, kNoMemoryLimit);
  EXPECT_EQ(default_budget_bytes(limits, 1), kNoMemoryLimit);
}

// The headroom is that of the tightest ancestor, whose limit need not be the smallest.
TEST_F(MemoryLimitsTest, TakesEveryAncestorOfVersionTwo) {
  put("/proc/self/cgroup", "0::/outer/inner\n");
  put_version_2("/outer/inner", "max", 900'000, 0, 0);
  put_version_2("/outer", "5000000", 1'000'000, 100'000, 200'000);
  put_version_2("", "8000000", 7'000'000, 0, 500'000);
  const MemoryLimits limits = read_memory_limits(root_);
  EXPECT_EQ(limits.limit_bytes, 5'000'000U);
  EXPECT_EQ(limits.headroom_bytes, 1'500'000U);  // 8.0 - (7.0 - 0.5), not 5.0 - 0.7
}

TEST_F(MemoryLimitsTest, AThrottlingLimitBindsToo) {
  put("/proc/self/cgroup", "0::/box\n");
  put_version_2("/box", "5000000", 1'000'000, 0, 0);
  put("/sys/fs/cgroup/box/memory.high", "3000000\n");
  EXPECT_EQ(read_memory_limits(root_).limit_bytes, 3'000'000U);
  EXPECT_EQ(read_memory_limits(root_).headroom_bytes, 2'000'000U);
}

TEST_F(MemoryLimitsTest, ReadsVersionOneWithTotalsOfDescendants) {
  put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/box/inner\n2:cpu,cpuacct:/\n0::/\n");
  const std::string box = "/sys/fs/cgroup/memory/box";
  put(box + "/memory.limit_in_bytes", "6000000\n");
  put(box + "/memory.usage_in_bytes", "4000000\n");
  put(box + "/memory.stat",
      "inactive_file 1\nactive_file 2\ntotal_inactive_file 300000\ntotal_active_file 200000\n");
  put(box + "/inner/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryLimits limits = read_memory_limits(root_);
  EXPECT_EQ(limits.limit_bytes, 6'000'000U);
  EXPECT_EQ(limits.headroom_bytes, 2'500'000U);
}

// A container sees its own group as the root of the tree, whatever path it is told.
TEST_F(MemoryLimitsTest, PathsThatAreNotThereLeaveTheRootGroup) {
  put("/proc/self/cgroup", "4:memory:/docker/0123\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(read_memory_limits(root_).headroom_bytes, 6'000'000U);
}

TEST_F(MemoryLimitsTest, AGroupPastItsLimitHasNoHeadroom) {
  put("/proc/self/cgroup", "0::/box\n");
  put_version_2("/box", "1000000", 1'500'000, 0, 0);
  EXPECT_EQ(read_memory_limits(root_).headroom_bytes, 0U);
}

TEST_F(MemoryLimitsTest, TheDefaultBudgetKeepsAReserve) {
  const auto budget = [](std::uint64_t headroom, std::uint64_t own) {
    return default_budget_bytes({.limit_bytes = kNoMemoryLimit, .headroom_bytes = headroom}, own);
  };
  EXPECT_EQ(budget(1'600'000'000, 5'000'000), 1'505'000'000U);
  EXPECT_EQ(budget(100'000'000, 0), 92'000'000U);                  // at least 8 MB
  EXPECT_EQ(budget(64'000'000'000, 0), 63'488'000'000U);           // at most 512 MB
  EXPECT_EQ(budget(1'000'000, 0), 0U);                             // never below nothing
  EXPECT_EQ(default_budget_bytes({1000, 900'000'000}, 0), 1000U);  // nor above the limit
}

TEST_F(MemoryLimitsTest, TheWatchSeesALimitThatIsLowered) {
  put("/proc/self/cgroup", "0::/box\n");
  put_version_2("/box", "max", 0, 0, 0);
  const MemoryLimitWatch watch(root_);
  EXPECT_EQ(watch.limit_bytes(), kNoMemoryLimit);
  put("/sys/fs/cgroup/box/memory.max", "3000000\n");
  EXPECT_EQ(watch.limit_bytes(), 3'000'000U);
  put("/sys/fs/cgroup/box/memory.max", "2000000\n");
  EXPECT_EQ(watch.limit_bytes(), 2'000'000U);
}

TEST_F(MemoryLimitsTest, ThisMachineTellsItsMemory) {
  const MemoryLimits limits = read_memory_limits("");
  EXPECT_GT(limits.limit_bytes, resident_bytes());
  EXPECT_LE(limits.headroom_bytes, limits.limit_bytes);
}

std::string mapping(const char* head, int rss, int anonymous) {
  return std::string(head) + "\nSize:   999 kB\nRss:    " + std::to_string(rss) +
         " kB\nAnonymous:    " + std::to_string(anonymous) + " kB\nVmFlags: rd mr\n";
}

TEST(ProgramMemoryTest, AddsUpFilesByTheirSpansAndTheRestByPages) {
  const std::string smaps =
      mapping("1000-3000 r--p 00000000 fe:00 7      /bin/tool", 8, 0) +
      mapping("3000-9000 r-xp 00002000 fe:00 7      /bin/tool", 24, 0) +
      mapping("9000-b000 rw-p 00008000 fe:00 7      /bin/tool", 4, 4) +
      mapping("b000-d000 rw-p 00000000 00:00 0 ", 4, 4) +
      mapping("10000-31000 rw-p 00000000 00:00 0    [heap]", 12, 12) +
      mapping("40000-48000 r--p 00100000 fe:00 8    /lib/with space.so", 8, 0) +
      mapping("50000-52000 rw-s 00000000 00:05 9    /dev/shm/x", 8, 0) +
      mapping("60000-80000 rw-p 00000000 00:00 0    [stack]", 40, 40) +
      mapping("90000-91000 r-xp 00000000 00:00 0    [vdso]", 4, 0);
  std::vector<std::string> asked;
  const auto size = [&](const std::string& path) -> std::uint64_t {
    asked.push_back(path);
    return path == "/bin/tool" ? 0xb000 : 0;
  };
  const ProgramMemory memory = add_up_mappings(smaps, 0x4000, size);
  // The tool to its end, 4 KiB behind what is mapped; the library with 16 KiB on both sides.
  EXPECT_EQ(memory.file_bytes, 0xb000U + (0x8000 + 0x8000));
  // Data whole, pages of its zeros, the heap whole, shared memory.
  EXPECT_EQ(memory.anonymous_bytes, 0x2000U + 0x1000 + 0x21000 + 0x2000);
  EXPECT_EQ(memory.stack_bytes, 40U * 1024);
  EXPECT_EQ(asked, (std::vector<std::string>{"/bin/tool", "/lib/with space.so"}));
}

TEST(ProgramMemoryTest, CodeThatIsNotUsedCountsWithItsResidentPages) {
  const auto file_bytes = [](const std::string& flags, std::uint64_t readahead_bytes) {
    const std::string smaps =
        "1000-5000 r-xp 00000000 fe:00 1 /bin/tool\nRss: 16 kB\nVmFlags: rd ex mr mw me" + flags +
        "\n5000-55000 r-xp 00004000 fe:00 1 /bin/tool\nRss: 8 kB\nVmFlags: rd ex mr rr dd\n"
        "55000-56000 r--p 00054000 fe:00 1 /bin/tool\nVmFlags: rd mr mw me" +
        flags + "\n";
    return add_up_mappings(smaps, readahead_bytes,
                           [](const std::string&) { return std::uint64_t{0x56000}; })
        .file_bytes;
  };
  EXPECT_EQ(file_bytes(" rr", 0x4000), 0x55000U - (0x50000 - 0x2000));
  EXPECT_EQ(file_bytes("", 0x4000), 0x56000U - (0x50000 - 0x2000 - 0x8000));
  // Where read-ahead covers all of it, nothing is unused.
  EXPECT_EQ(file_bytes("", 0x40000), 0x56000U);
}

TEST(ProgramMemoryTest, TextThatIsNoneCountsNothing) {
  for (const char* text :
       {"", "\n\n", "Rss:", "zz-yy rw-p 0 0 0 /x\n", "1-2\n", "5000-1000 r--p 0 0 0"}) {
    const ProgramMemory memory = add_up_mappings(text, 1, [](const std::string&) { return 0U; });
    EXPECT_EQ(memory.file_bytes + memory.anonymous_bytes + memory.stack_bytes, 0U) << text;
  }
}

// What this process allocates appears, what it maps of files does not.
TEST(ProgramMemoryTest, FollowsWhatThisProcessTouches) {
#ifdef QSF_WITH_SANITIZER
  GTEST_SKIP() << "shadow memory is left out";
#endif
  constexpr std::uint64_t kBytes = 8U << 20;
  const ProgramMemory before = program_memory();
  EXPECT_GT(before.file_bytes, 1'000'000U);
  EXPECT_GT(before.anonymous_bytes, 100'000U);
  EXPECT_GT(before.stack_bytes, 0U);
  const MutableByteSpan pages = map_pages(kBytes, HugePages::kNever).value();
  std::fill(pages.begin(), pages.end(), std::byte{1});
  const ProgramMemory after = program_memory();
  EXPECT_GE(after.anonymous_bytes, before.anonymous_bytes + kBytes);
  EXPECT_LT(after.anonymous_bytes, before.anonymous_bytes + kBytes + (1U << 20));
  EXPECT_EQ(after.file_bytes, before.file_bytes);
  unmap_pages(pages);
}

}  // namespace
}  // namespace qsf
