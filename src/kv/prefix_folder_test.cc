// SPDX-License-Identifier: MIT
//
// Tests of PrefixFolder: what is kept and found, its bound, files that were changed, and disks that
// fail.

#include "kv/prefix_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/testing/allocation_counter.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

namespace fs = std::filesystem;
using testing_support::counts_allocations;
using testing_support::n_allocations;

constexpr std::uint64_t kPageBytes = 64;
constexpr std::uint64_t kFileBytes = PrefixFolder::kHeaderBytes + kPageBytes;
constexpr std::uint32_t kPages = 16;

// A folder of this process with an object for pages of 64 bytes.
class PrefixFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "prefix_folder." + std::to_string(::getpid());
    fs::remove_all(path_);
    fs::create_directory(path_);
    open(4 * kFileBytes + 7);
  }
  void TearDown() override {
    folder_.reset();
    EXPECT_TRUE(files().empty());
    fs::remove_all(path_);
  }

  void open(std::uint64_t max_bytes) {
    folder_.reset();
    region_.assign(PrefixFolder::region_bytes(max_bytes, kPageBytes) / sizeof(Line), {});
    PrefixFolderOptions options = {.folder = path_, .max_bytes = max_bytes};
    options.log = {[](LogLevel, std::string_view line, void* user) {
                     static_cast<std::vector<std::string>*>(user)->emplace_back(line);
                   },
                   &warnings_};
    folder_ = PrefixFolder::open(options, std::as_writable_bytes(std::span(pages_)), kPageBytes,
                                 std::as_writable_bytes(std::span(region_)), ops_)
                  .value();
  }
  // The path of a text of one page.
  PrefixPath path(std::uint32_t text, std::string_view key = "key") const {
    const std::array<std::uint32_t, 3> tokens = {7, text, 9};
    return folder_->path_of(folder_->path_of(key), tokens);
  }
  // Fills a page with what a text has.
  void fill(std::uint32_t page, std::uint32_t text) {
    std::memset(&pages_[page], static_cast<int>(text + 1), kPageBytes);
  }
  void keep(std::uint32_t text) {
    folder_->begin_pass();
    fill(0, text);
    folder_->write(path(text), 0);
  }
  // Whether a text comes back, with its bytes.
  bool comes_back(std::uint32_t text) {
    fill(1, 200);
    fill(2, text);
    return folder_->read(path(text), 1) && std::memcmp(&pages_[1], &pages_[2], kPageBytes) == 0;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> names;
    for (const auto& file : fs::directory_iterator(path_)) names.push_back(file.path());
    return names;
  }
  std::uint64_t bytes() const {
    std::uint64_t n = 0;
    for (const fs::path& file : files()) n += fs::file_size(file);
    return n;
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::string path_;
  std::vector<std::string> warnings_;
  FaultyFileOps ops_;
  std::vector<Line> pages_ = std::vector<Line>(kPages);
  std::vector<Line> region_;
  std::unique_ptr<PrefixFolder> folder_;
};

std::vector<char> read_file(const fs::path& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void write_file(const fs::path& name, const std::vector<char>& bytes) {
  std::ofstream(name, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TEST_F(PrefixFolderTest, APageComesBackToItsPathAlone) {
  keep(1);
  ASSERT_EQ(files().size(), 1U);
  struct stat about = {};
  ASSERT_EQ(::stat(files().front().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  EXPECT_TRUE(folder_->holds(path(1)));
  EXPECT_FALSE(folder_->holds(path(2)));
  EXPECT_FALSE(folder_->holds(path(1, "another key")));
  EXPECT_FALSE(folder_->holds(folder_->path_of("key")));
  const std::array<std::uint32_t, 3> tokens = {7, 1, 9};
  EXPECT_FALSE(folder_->holds(folder_->path_of(path(1), tokens)));
  EXPECT_TRUE(comes_back(1));
  EXPECT_FALSE(comes_back(2));
  const PrefixFolderStats stats = folder_->stats();
  EXPECT_EQ(stats.n_files, 1U);
  EXPECT_EQ(stats.n_bytes, kFileBytes);
  EXPECT_EQ(stats.n_written_bytes, kFileBytes);
  EXPECT_EQ(stats.n_read_bytes, kFileBytes);
  EXPECT_EQ(stats.n_read_errors, 0U);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PrefixFolderTest, AnotherObjectHasAnotherSecret) {
  const PrefixPath before = path(1);
  open(kFileBytes);
  EXPECT_NE(path(1), before);
}

TEST_F(PrefixFolderTest, TheOldestFileIsRemovedAndTheBoundHolds) {
  for (std::uint32_t text = 0; text < 4; ++text) keep(text);
  EXPECT_EQ(files().size(), 4U);
  EXPECT_TRUE(comes_back(0));  // now the newest
  keep(1);                     // noted as used, not written
  EXPECT_EQ(folder_->stats().n_written_bytes, 4 * kFileBytes);
  keep(4);
  EXPECT_FALSE(folder_->holds(path(2)));
  keep(5);
  EXPECT_FALSE(folder_->holds(path(3)));
  for (const std::uint32_t text : {0U, 1U, 4U, 5U}) EXPECT_TRUE(comes_back(text)) << text;
  EXPECT_EQ(folder_->stats().n_removed, 2U);
  EXPECT_EQ(bytes(), 4 * kFileBytes);
}

TEST_F(PrefixFolderTest, RandomUseMatchesAListInOrderOfUse) {
  Rng rng(1);
  std::vector<std::uint32_t> order;  // the oldest first
  for (int i = 0; i < 3000; ++i) {
    const std::uint32_t text = rng.below(9);
    const auto at = std::find(order.begin(), order.end(), text);
    const bool held = at != order.end();
    ASSERT_EQ(folder_->holds(path(text)), held);
    if (rng.below(3) == 0) {
      ASSERT_EQ(comes_back(text), held);
    } else {
      keep(text);
      if (!held && order.size() == 4) order.erase(order.begin());
    }
    if (held) order.erase(std::find(order.begin(), order.end(), text));
    if (folder_->holds(path(text))) order.push_back(text);
    ASSERT_LE(bytes(), 4 * kFileBytes);
    ASSERT_EQ(folder_->stats().n_files, order.size());
  }
}

TEST_F(PrefixFolderTest, APassWritesABoundedNumber) {
  open(100 * kFileBytes);
  folder_->begin_pass();
  for (std::uint32_t text = 0; text < 11; ++text) {
    fill(0, text);
    folder_->write(path(text), 0);
  }
  EXPECT_EQ(files().size(), PrefixFolder::kPagesPerPass);
  EXPECT_EQ(folder_->stats().n_dropped, 11 - PrefixFolder::kPagesPerPass);
  EXPECT_FALSE(folder_->holds(path(10)));
  keep(10);
  EXPECT_TRUE(comes_back(10));
}

TEST_F(PrefixFolderTest, EveryPrefixAndEveryFlippedBitIsRefused) {
  keep(1);
  const std::vector<char> whole = read_file(files().front());
  ASSERT_EQ(whole.size(), kFileBytes);
  std::uint64_t n_bad = 0;
  const auto expect_refused = [&](const std::vector<char>& bytes) {
    keep(1);
    write_file(files().front(), bytes);
    EXPECT_FALSE(comes_back(1));
    EXPECT_FALSE(folder_->holds(path(1)));
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(folder_->stats().n_read_errors, ++n_bad);
    const Line zero = {};
    EXPECT_EQ(std::memcmp(&pages_[1], &zero, kPageBytes), 0) << "what was read stays nowhere";
  };
  for (std::size_t n = 0; n < whole.size(); ++n) {
    expect_refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)});
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::vector<char> bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    expect_refused(bytes);
  }
  std::vector<char> longer = whole;
  longer.push_back(0);
  expect_refused(longer);
  keep(1);
  EXPECT_TRUE(comes_back(1));
  ASSERT_EQ(warnings_.size(), 1U) << "one line a minute";
  EXPECT_NE(warnings_.front().find("was cut or changed"), std::string::npos);
}

TEST_F(PrefixFolderTest, FilesThatChangePlacesAreRefused) {
  keep(1);
  const fs::path first = files().front();
  keep(2);
  const std::vector<fs::path> both = files();
  const fs::path second = both[0] == first ? both[1] : both[0];
  const std::vector<char> bytes = read_file(first);
  write_file(first, read_file(second));
  write_file(second, bytes);
  EXPECT_FALSE(comes_back(1));
  EXPECT_FALSE(comes_back(2));
}

TEST_F(PrefixFolderTest, WhatIsNoFileIsRefusedAndNoLinkIsFollowed) {
  keep(1);
  const fs::path name = files().front();
  fs::remove(name);
  EXPECT_FALSE(comes_back(1));
  keep(1);
  fs::remove(name);
  ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
  EXPECT_FALSE(comes_back(1));
  const fs::path target = path_ + ".target";
  write_file(target, {'a'});
  fs::create_symlink(target, name);
  keep(1);
  EXPECT_TRUE(comes_back(1));
  EXPECT_EQ(read_file(target), std::vector<char>{'a'});
  fs::remove(target);
}

TEST_F(PrefixFolderTest, AFullDiskLosesPagesAndNothingElse) {
  ops_.plan.disk_bytes = 2 * kFileBytes + 80;
  for (std::uint32_t text = 0; text < 4; ++text) keep(text);
  EXPECT_EQ(files().size(), 2U);
  EXPECT_EQ(folder_->stats().n_write_errors, 2U);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_.front().find("free some space"), std::string::npos) << warnings_.front();
  EXPECT_TRUE(comes_back(0));
  EXPECT_FALSE(comes_back(3));
  ops_.plan.disk_bytes = UINT64_MAX;
  for (std::uint32_t text = 2; text < 6; ++text) keep(text);
  EXPECT_EQ(files().size(), 4U);
  for (std::uint32_t text = 2; text < 6; ++text) EXPECT_TRUE(comes_back(text)) << text;
}

TEST_F(PrefixFolderTest, EveryFailingCallLosesOnePage) {
  const auto expect_lost = [&](int FaultPlan::*field, int error) {
    ops_.plan.*field = error;
    const std::uint64_t n_before = folder_->stats().n_write_errors;
    keep(1);
    ops_.plan = {};
    EXPECT_EQ(folder_->stats().n_write_errors, n_before + 1);
    EXPECT_FALSE(folder_->holds(path(1)));
    EXPECT_TRUE(files().empty());
  };
  expect_lost(&FaultPlan::create_errno, EACCES);
  expect_lost(&FaultPlan::close_errno, EIO);
  ops_.plan.write_error_at = 100;
  keep(1);
  ops_.plan = {};
  EXPECT_TRUE(files().empty());
  keep(1);
  ops_.plan.open_errno = EMFILE;
  EXPECT_FALSE(comes_back(1));
  ops_.plan = {};
  keep(1);
  ops_.plan.read_error_at = 70;
  EXPECT_FALSE(comes_back(1));
  ops_.plan = {};
  EXPECT_EQ(folder_->stats().n_read_errors, 2U);
}

TEST_F(PrefixFolderTest, ShortAndInterruptedTransfersAreContinued) {
  ops_.plan.max_transfer_bytes = 5;
  ops_.plan.interrupt_every = 3;
  for (std::uint32_t text = 0; text < 4; ++text) keep(text);
  for (std::uint32_t text = 0; text < 4; ++text) EXPECT_TRUE(comes_back(text));
}

TEST_F(PrefixFolderTest, AllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const PrefixPath some = path(1);
  const long before = n_allocations();
  for (std::uint32_t text = 0; text < 9; ++text) {
    folder_->begin_pass();
    folder_->write(path(text), 0);
  }
  EXPECT_TRUE(folder_->read(path(8), 1));
  EXPECT_FALSE(folder_->read(some, 1));
  EXPECT_EQ(n_allocations(), before);
}

TEST_F(PrefixFolderTest, OpeningNeedsAFolder) {
  std::vector<Line> region(PrefixFolder::region_bytes(kFileBytes, kPageBytes) / sizeof(Line));
  const auto opened = PrefixFolder::open({.folder = path_ + "/none", .max_bytes = kFileBytes},
                                         std::as_writable_bytes(std::span(pages_)), kPageBytes,
                                         std::as_writable_bytes(std::span(region)), ops_);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), StatusCode::kIo);
  EXPECT_EQ(PrefixFolder::n_files(kFileBytes - 1, kPageBytes), 0U);
  EXPECT_EQ(PrefixFolder::n_files(UINT64_MAX, kPageBytes), PrefixFolder::kMaxFiles);
}

}  // namespace
}  // namespace qsf
