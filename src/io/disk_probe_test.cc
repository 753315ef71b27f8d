// SPDX-License-Identifier: MIT
//
// Tests of the disk probe: what it measures and leaves out, and what it remembers. No speeds: those
// are the machine's.

#include "io/disk_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/atomic_file.h"
#include "io/testing/faulty_file.h"
#include "platform/memory.h"

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kProbeMiB = 1U << 20;
constexpr std::uint64_t kCellNs = 1'000'000;

class DiskProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    ::alarm(120);  // a read that never ends ends the test
    folder_ =
        std::filesystem::path(QSF_BIN_DIR) / ("qsf_disk_probe_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "file").string();
    ASSERT_TRUE(write_file(path_, std::vector<std::byte>(8 * kProbeMiB)).ok());
    memory_ = map_pages(16 * kProbeMiB, HugePages::kNever).value();
  }
  void TearDown() override {
    unmap_pages(memory_);
    std::filesystem::remove_all(folder_);
    ::alarm(0);
  }
  std::string cache() const { return (folder_ / "cache" / "qsf").string(); }
  std::vector<std::string> remembered() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(cache())) {
      paths.push_back(entry.path().string());
    }
    return paths;
  }

  std::filesystem::path folder_;
  std::string path_;
  MutableByteSpan memory_;
};

DiskProbe some_probe() {
  return {.best = {.depth = 4, .block_bytes = kProbeMiB, .bytes_per_second = 2.5e9},
          .matrix = {{.depth = 1, .block_bytes = kProbeMiB, .bytes_per_second = 1e9},
                     {.depth = 4, .block_bytes = kProbeMiB, .bytes_per_second = 2.5e9}},
          .path = ReadPath::kUring,
          .is_direct = true};
}

TEST_F(DiskProbeTest, MeasuresEveryPath) {
  const File file = File::open(path_).value();
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap}) {
    const auto probe = probe_disk(file, {.device = {.path = path}, .cell_ns = kCellNs}, memory_);
    ASSERT_TRUE(probe.has_value()) << probe.error().message();
    EXPECT_EQ(probe->path, ReadDevice::open(file, {.path = path}).value().path());
    EXPECT_GE(probe->matrix.size(), 1U);
    double fastest = 0;
    bool best_is_one = false;
    std::set<std::pair<unsigned, std::uint32_t>> ways;
    for (const ProbeCell& cell : probe->matrix) {
      EXPECT_LE(std::uint64_t{cell.depth} * cell.block_bytes, memory_.size());
      EXPECT_GT(cell.bytes_per_second, 0);
      EXPECT_TRUE(ways.insert({cell.depth, cell.block_bytes}).second) << "measured as two";
      fastest = std::max(fastest, cell.bytes_per_second);
      best_is_one |= cell.depth == probe->best.depth && cell.block_bytes == probe->best.block_bytes;
    }
    EXPECT_TRUE(best_is_one);
    EXPECT_GE(probe->best.bytes_per_second, 0.9 * fastest);
  }
}

TEST_F(DiskProbeTest, ASlowDiskIsAskedForLittle) {
  FaultyFileOps ops({.read_delay_us = 30'000});
  const File file = File::open(path_, ops).value();
  const auto probe =
      probe_disk(file, {.device = {.path = ReadPath::kPread}, .cell_ns = 60'000'000}, memory_);
  ASSERT_TRUE(probe.has_value()) << probe.error().message();
  // 1 MiB in 30 ms: a read of 4 MiB at the depths of a fast disk would outlast its measurement.
  for (const ProbeCell& cell : probe->matrix) {
    EXPECT_LT(std::uint64_t{cell.depth} * cell.block_bytes, 16ULL * kProbeMiB);
  }
}

TEST_F(DiskProbeTest, SmallFilesAndLittleMemoryAreMeasuredAsFarAsTheyGo) {
  const std::string small = (folder_ / "small").string();
  ASSERT_TRUE(write_file(small, std::vector<std::byte>(100'000)).ok());
  const File file = File::open(small).value();
  for (const bool thorough : {false, true}) {
    const auto probe = probe_disk(file, {.thorough = thorough, .cell_ns = kCellNs}, memory_);
    ASSERT_TRUE(probe.has_value()) << probe.error().message();
    for (const ProbeCell& cell : probe->matrix) EXPECT_EQ(cell.block_bytes, 65536U);
  }
  EXPECT_EQ(probe_disk(file, {}, memory_.first(65535)).error().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(probe_disk(file, {.cell_ns = kCellNs}, memory_.first(65536))->matrix.size(), 1U);
}

TEST_F(DiskProbeTest, MeasuresOneWayOfAskingAlone) {
  const File file = File::open(path_).value();
  const DiskProbeOptions options = {.device = {.path = ReadPath::kPread}, .cell_ns = kCellNs};
  EXPECT_GT(measure_disk(file, options, {.depth = 2, .block_bytes = kProbeMiB}, memory_).value(),
            0.0);
  for (const ProbeCell& wished :
       {ProbeCell{}, ProbeCell{.depth = 1}, ProbeCell{.block_bytes = kProbeMiB},
        ProbeCell{.depth = 17, .block_bytes = kProbeMiB},         // more memory than there is
        ProbeCell{.depth = 1, .block_bytes = 16 * kProbeMiB}}) {  // more file
    const auto rate = measure_disk(file, options, wished, memory_);
    ASSERT_FALSE(rate.has_value()) << wished.depth << " of " << wished.block_bytes;
    EXPECT_EQ(rate.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(rate.error().message(), HasSubstr(path_));
  }
  FaultyFileOps ops({.read_error_at = 0});
  const File faulty = File::open(path_, ops).value();
  EXPECT_FALSE(
      measure_disk(faulty, options, {.depth = 8, .block_bytes = kProbeMiB}, memory_).has_value());
}

// Two places would stay in a cache of the host of a virtual disk, the ring of a model does not.
TEST_F(DiskProbeTest, ReadsIntoAllOfTheMemoryInTurn) {
  ASSERT_TRUE(write_file(path_, std::vector<std::byte>(8 * kProbeMiB, std::byte{1})).ok());
  const File file = File::open(path_).value();
  constexpr std::uint32_t kBlock = kProbeMiB / 4;
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread}) {
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    const MutableByteSpan memory = memory_.first(std::size_t{8} * kBlock);
    ASSERT_TRUE(measure_disk(file, {.device = {.path = path}, .cell_ns = 500'000'000},
                             {.depth = 2, .block_bytes = kBlock}, memory)
                    .has_value());
    for (std::size_t at = 0; at < memory.size(); at += kBlock) EXPECT_EQ(memory[at], std::byte{1});
  }
}

TEST_F(DiskProbeTest, ReportsWhatCannotBeRead) {
  FaultyFileOps ops;
  const File file = File::open(path_, ops).value();
  ops.plan = {.truncate_at = 0};  // wherever it begins
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread}) {
    const auto probe = probe_disk(file, {.device = {.path = path}, .cell_ns = kCellNs}, memory_);
    ASSERT_FALSE(probe.has_value());
    EXPECT_EQ(probe.error().code(), StatusCode::kCorrupt);
  }
}

TEST_F(DiskProbeTest, RemembersEachDiskAndPath) {
  const File small = File::open(path_).value();
  ASSERT_TRUE(remembered_disk_probe(small, {.cell_ns = kCellNs}, memory_, cache()).has_value());
  EXPECT_FALSE(std::filesystem::exists(cache())) << "a small file says nothing of its disk";
  std::filesystem::resize_file(path_, kLeastRememberedBytes);
  FaultyFileOps ops;
  const File file = File::open(path_, ops).value();
  const DiskProbeOptions options{.device = {.path = ReadPath::kPread}, .cell_ns = kCellNs};
  const DiskProbe first = remembered_disk_probe(file, options, memory_, cache()).value();
  ASSERT_EQ(remembered().size(), 1U);
  const std::uint64_t calls = ops.calls();
  const DiskProbe second = remembered_disk_probe(file, options, memory_, cache()).value();
  EXPECT_LE(ops.calls(), calls + 1) << "only the first read of a direct handle";
  EXPECT_EQ(disk_probe_text(second), disk_probe_text(first));
  EXPECT_TRUE(remembered_disk_probe(file, {.device = {.path = ReadPath::kMmap}, .cell_ns = kCellNs},
                                    memory_, cache())
                  .has_value());
  EXPECT_EQ(remembered().size(), 2U);
}

TEST_F(DiskProbeTest, WhatItCannotReadBackIsMeasuredAgain) {
  std::filesystem::resize_file(path_, kLeastRememberedBytes);
  FaultyFileOps ops;
  const File file = File::open(path_, ops).value();
  const DiskProbeOptions options{.device = {.path = ReadPath::kPread}, .cell_ns = kCellNs};
  ASSERT_TRUE(remembered_disk_probe(file, options, memory_, cache()).has_value());
  const std::string path = remembered().front();
  ASSERT_TRUE(write_file(path, as_bytes("qsf disk probe 2\nbest 0 0 0\nend\n")).ok());
  const std::uint64_t calls = ops.calls();
  ASSERT_TRUE(remembered_disk_probe(file, options, memory_, cache()).has_value());
  EXPECT_GT(ops.calls(), calls + 1) << "more than the first read of a direct handle";
  const auto again = File::open(path).value().read_all(1U << 20).value();
  EXPECT_TRUE(parse_disk_probe(std::string(as_text(again))).has_value());
  // A folder that cannot be made costs the memory of it, not the measurement.
  EXPECT_TRUE(remembered_disk_probe(file, options, memory_, path + "/no").has_value());
  EXPECT_TRUE(remembered_disk_probe(file, options, memory_, "").has_value());
}

TEST(DiskProbeTextTest, ReadsBackWhatItWroteAndNothingElse) {
  const std::string text = disk_probe_text(some_probe());
  EXPECT_EQ(disk_probe_text(parse_disk_probe(text).value()), text);
  for (std::size_t n = 0; n + 1 < text.size(); ++n) {
    EXPECT_FALSE(parse_disk_probe(text.substr(0, n)).has_value()) << n;
  }
  EXPECT_FALSE(parse_disk_probe(text + "x").has_value());
  const struct {
    const char* from;
    const char* to;
  } changes[] = {
      {"probe 2", "probe 1"},      {"path io_uring", "path tape"}, {"direct 1", "direct 2"},
      {"best 4", "best 0"},        {"best 4", "best 257"},         {"best 4", "best -4"},
      {"1048576 2", "1048577 2"},  {"1048576 2", "0 2"},           {"2500000000", "0"},
      {"2500000000", "2e9"},       {"2500000000", "nan"},          {"cell 1", "call 1"},
      {"best 4 1048576", "best 4"}};
  for (const auto& change : changes) {
    std::string changed = text;
    changed.replace(changed.find(change.from), std::string(change.from).size(), change.to);
    EXPECT_FALSE(parse_disk_probe(changed).has_value()) << change.to;
  }
  std::string endless = "qsf disk probe 2\npath pread\nbest 1 4096 1\n";
  for (int i = 0; i < 100; ++i) endless += "cell 1 4096 1\n";
  EXPECT_FALSE(parse_disk_probe(endless + "end\n").has_value());
}

TEST(DiskProbeTextTest, FindsTheFolderOfCaches) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const std::string before = cache == nullptr ? "" : cache;
  ::setenv("XDG_CACHE_HOME", "/some/cache", 1);
  EXPECT_EQ(default_probe_folder(), "/some/cache/qsf");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_THAT(default_probe_folder(), testing::AnyOf("", HasSubstr("/.cache/qsf")));
  if (cache == nullptr) {
    ::unsetenv("XDG_CACHE_HOME");
  } else {
    ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
  }
}

}  // namespace
}  // namespace qsf
