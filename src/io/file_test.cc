// SPDX-License-Identifier: MIT
//
// Tests of io/: exact reads over a bad disk, files that appear whole or not at all.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/atomic_file.h"
#include "io/file.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;

// A directory of this test alone, removed at its end.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("qsf_file_test." + std::to_string(::getpid()) + "." +
                  testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      result.push_back(entry.path().filename().string());
    }
    return result;
  }
  static std::vector<std::byte> random_bytes(std::size_t n) {
    Rng rng(n);
    std::vector<std::byte> bytes(n);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next_u32() & 0xFF);
    return bytes;
  }
  static std::vector<std::byte> read_back(const std::string& path) {
    return File::open(path).value().read_all(1U << 30).value();
  }

  std::filesystem::path directory_;
};

TEST_F(FileTest, WritesAndReadsBack) {
  const auto bytes = random_bytes(100'000);
  ASSERT_TRUE(write_file(path("a"), bytes).ok());
  const File file = File::open(path("a")).value();
  EXPECT_EQ(file.size_bytes(), bytes.size());
  std::vector<std::byte> part(1000);
  ASSERT_TRUE(file.read_exact_at(50'000, part).ok());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + 50'000));
  EXPECT_TRUE(file.read_exact_at(bytes.size(), {}).ok());
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(FileTest, ReadsPastTheEndAreCorruptWithoutReading) {
  const auto bytes = random_bytes(10);
  MemoryFileOps memory(bytes);
  FaultyFileOps ops({}, memory);
  const File file = File::open("m", ops).value();
  std::vector<std::byte> part(4);
  for (const std::uint64_t offset :
       {std::uint64_t{7}, std::uint64_t{10}, std::uint64_t{11}, UINT64_MAX - 3, UINT64_MAX}) {
    const Status status = file.read_exact_at(offset, part);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << offset;
    EXPECT_THAT(status.message(), HasSubstr("truncated"));
  }
  EXPECT_EQ(ops.calls(), 0U);
}

TEST_F(FileTest, ContinuesShortAndInterruptedReads) {
  const auto bytes = random_bytes(5000);
  MemoryFileOps memory(bytes);
  FaultyFileOps ops({.max_transfer_bytes = 7, .interrupt_every = 3}, memory);
  const File file = File::open("m", ops).value();
  EXPECT_EQ(file.read_all(5000).value(), bytes);
  EXPECT_GT(ops.calls(), 5000U / 7);
}

TEST_F(FileTest, ReportsReadErrorsWithTheirOffset) {
  const auto bytes = random_bytes(5000);
  MemoryFileOps memory(bytes);
  FaultyFileOps ops({.max_transfer_bytes = 1000, .read_error_at = 2500}, memory);
  const File file = File::open("m", ops).value();
  std::vector<std::byte> all(5000);
  const Status status = file.read_exact_at(0, all);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("offset 2000"));
  std::vector<std::byte> part(2500);
  EXPECT_TRUE(file.read_exact_at(0, part).ok());
}

TEST_F(FileTest, AFileThatShrinksIsTruncated) {
  const auto bytes = random_bytes(5000);
  MemoryFileOps memory(bytes);
  FaultyFileOps ops({}, memory);
  const File file = File::open("m", ops).value();
  ops.plan.truncate_at = 3000;
  std::vector<std::byte> all(5000);
  const Status status = file.read_exact_at(0, all);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("truncated"));
}

TEST_F(FileTest, OpenNamesWhatIsWrong) {
  EXPECT_EQ(File::open(path("none")).error().code(), StatusCode::kNotFound);
  EXPECT_THAT(File::open(directory_.string()).error().message(), HasSubstr("is a directory"));
  EXPECT_THAT(File::open("/dev/null").error().message(), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(File::open(path("fifo")).error().message(),
              HasSubstr("fifo: is a pipe, socket or device, not a regular file"));
  FaultyFileOps ops({.open_errno = EACCES});
  EXPECT_EQ(File::open(path("none"), ops).error().code(), StatusCode::kIo);
  ASSERT_TRUE(write_file(path("big"), random_bytes(100)).ok());
  EXPECT_EQ(File::open(path("big")).value().read_all(99).error().code(), StatusCode::kCorrupt);
}

TEST_F(FileTest, OpenRefusesASocket) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = path("socket");
  ASSERT_LT(name.size(), sizeof address.sun_path);
  name.copy(address.sun_path, name.size());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(File::open(name).error().message(), HasSubstr("not a regular file"));
  ::close(listener);
}

TEST_F(FileTest, OpenLeavesNoFlagThatWouldFailReads) {
  ASSERT_TRUE(write_file(path("a"), random_bytes(10)).ok());
  const File file = File::open(path("a")).value();
  EXPECT_EQ(::fcntl(file.handle(), F_GETFL) & O_NONBLOCK, 0);
}

// Writes the same over a file system that has files without names and over one that has none.
class AtomicFileTest : public FileTest, public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(UnnamedAndNamed, AtomicFileTest, testing::Values(0, EOPNOTSUPP));

TEST_P(AtomicFileTest, CommitReplacesAndAbandonLeavesTheOld) {
  const auto old_bytes = random_bytes(10);
  const auto new_bytes = random_bytes(20);
  FaultyFileOps ops({.create_unnamed_errno = GetParam()});
  ASSERT_TRUE(write_file(path("a"), old_bytes, ops).ok());
  {
    AtomicFile file = AtomicFile::create(path("a"), ops).value();
    ASSERT_TRUE(file.write_at(0, new_bytes).ok());
    EXPECT_EQ(names().size(), GetParam() == 0 ? 1U : 2U);
    AtomicFile moved = std::move(file);
  }
  EXPECT_EQ(read_back(path("a")), old_bytes);
  EXPECT_EQ(names().size(), 1U);
  AtomicFile file = AtomicFile::create(path("a"), ops).value();
  ASSERT_TRUE(file.write_at(10, ByteSpan(new_bytes).subspan(10)).ok());
  ASSERT_TRUE(file.write_at(0, ByteSpan(new_bytes).first(10)).ok());
  ASSERT_TRUE(file.resize(16).ok());
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(read_back(path("a")), std::vector(new_bytes.begin(), new_bytes.begin() + 16));
  EXPECT_EQ(names().size(), 1U);
}

TEST_P(AtomicFileTest, ALinkIsReplacedAndWhatItNamedStays) {
  FaultyFileOps ops({.create_unnamed_errno = GetParam()});
  std::filesystem::create_symlink(path("gone"), path("a"));
  ASSERT_TRUE(write_file(path("a"), random_bytes(7), ops).ok());
  EXPECT_EQ(read_back(path("a")), random_bytes(7));
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(FileTest, AFileInTheMakingHasNoNameToLeaveBehind) {
  if (system_file_ops().create_unnamed(path("a")) < 0) {
    GTEST_SKIP() << "the file system of temporary files has no files without names";
  }
  AtomicFile file = AtomicFile::create(path("a")).value();
  ASSERT_TRUE(file.write_at(0, random_bytes(100)).ok());
  EXPECT_TRUE(names().empty());
}

TEST_F(FileTest, ATemporaryNameTellsTheFinalOne) {
  FaultyFileOps ops({.create_unnamed_errno = EOPNOTSUPP});
  const AtomicFile file = AtomicFile::create(path("a.tmp-b"), ops).value();
  ASSERT_EQ(names().size(), 1U);
  EXPECT_NE(names()[0], "a.tmp-b");
  EXPECT_EQ(final_name(names()[0]), "a.tmp-b");
  for (const char* other : {"a", "a.tmp-b", "a.tmp-", "a.tmp-1", "a.tmp-1-2.txt", ""}) {
    EXPECT_EQ(final_name(other), other);
  }
}

TEST_F(FileTest, DropCachedSyncsAndTheFileGoesOn) {
  const auto bytes = random_bytes(100);
  FaultyFileOps ops({.sync_errno = ENOSPC});
  AtomicFile file = AtomicFile::create(path("a"), ops).value();
  ASSERT_TRUE(file.write_at(0, ByteSpan(bytes).first(60)).ok());
  EXPECT_THAT(file.drop_cached().message(), HasSubstr("disk is full"));
  ops.plan = {.interrupt_every = 2};
  ASSERT_TRUE(file.drop_cached().ok());
  ASSERT_TRUE(file.write_at(60, ByteSpan(bytes).subspan(60)).ok());
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(read_back(path("a")), bytes);
}

TEST_F(FileTest, ContinuesShortAndInterruptedWrites) {
  const auto bytes = random_bytes(5000);
  FaultyFileOps ops({.max_transfer_bytes = 11, .interrupt_every = 2});
  ASSERT_TRUE(write_file(path("a"), bytes, ops).ok());
  EXPECT_EQ(read_back(path("a")), bytes);
}

TEST_P(AtomicFileTest, EveryFailureLeavesNothingBehind) {
  const auto bytes = random_bytes(5000);
  const auto old_bytes = random_bytes(10);
  const struct {
    FaultPlan plan;
    const char* message;
  } cases[] = {
      {{.disk_bytes = 4999}, "disk is full"},
      {{.disk_bytes = 0}, "disk is full"},
      {{.create_errno = EACCES}, "no permission"},
      {{.create_errno = EROFS}, "no permission"},
      {{.create_errno = EMFILE}, "cannot be created"},
      {{.sync_errno = EIO}, "writing to the disk failed"},
      {{.sync_errno = ENOSPC}, "disk is full"},
      {{.close_errno = EDQUOT}, "disk is full"},
      {{.give_name_errno = EPERM, .rename_errno = EXDEV}, "renaming the finished file failed"},
  };
  for (const bool replaces : {false, true}) {
    if (replaces) {
      ASSERT_TRUE(write_file(path("a"), old_bytes).ok());
    }
    for (const auto& c : cases) {
      FaultyFileOps ops(c.plan);
      ops.plan.create_unnamed_errno = GetParam();
      const Status status = write_file(path("a"), bytes, ops);
      EXPECT_EQ(status.code(), StatusCode::kIo);
      EXPECT_THAT(status.message(), HasSubstr(c.message));
      EXPECT_THAT(status.message(), HasSubstr(path("a")));
      EXPECT_EQ(names().size(), replaces ? 1U : 0U) << c.message;
      if (replaces) {
        EXPECT_EQ(read_back(path("a")), old_bytes) << c.message;
      }
    }
  }
}

TEST_F(FileTest, AReplacementThatFailsAfterItWasNamedLeavesTheOld) {
  const auto old_bytes = random_bytes(10);
  ASSERT_TRUE(write_file(path("a"), old_bytes).ok());
  FaultyFileOps ops({.rename_errno = EXDEV});
  EXPECT_THAT(write_file(path("a"), random_bytes(20), ops).message(),
              HasSubstr("renaming the finished file failed"));
  EXPECT_EQ(read_back(path("a")), old_bytes);
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(FileTest, AFailedDirectorySyncSaysThatTheFileIsThere) {
  FaultyFileOps ops({.sync_directory_errno = EIO});
  EXPECT_THAT(write_file(path("a"), random_bytes(3), ops).message(), HasSubstr("is complete, but"));
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(FileTest, RefusesTargetsThatAreNotFiles) {
  EXPECT_THAT(write_file(directory_.string(), {}).message(), HasSubstr("is a directory"));
  EXPECT_THAT(write_file("/dev/null", {}).message(), HasSubstr("not a regular file"));
  EXPECT_THAT(write_file(path("no/such/x"), {}).message(), HasSubstr("does not exist"));
  EXPECT_EQ(write_file("", {}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qsf
