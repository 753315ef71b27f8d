// SPDX-License-Identifier: MIT
//
// Tests of reading paths: the same bytes by each, over good disks and bad ones, and what is said
// when a path is not there. Every path passes the same suite.

#include "io/read_device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/atomic_file.h"
#include "io/faulty_file.h"
#include "io/file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kFileBytes = 64 * kDirectAlign;

// Memory that a direct read may go to.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t n)
      : bytes_(new (std::align_val_t{kDirectAlign}) std::byte[n]()), n_(n) {}
  MutableByteSpan span() { return {bytes_.get(), n_}; }

 private:
  struct Delete {
    void operator()(std::byte* memory) const {
      ::operator delete[](memory, std::align_val_t{kDirectAlign});
    }
  };
  std::unique_ptr<std::byte, Delete> bytes_;
  std::size_t n_;
};

std::vector<std::byte> random_bytes(std::size_t n) {
  Rng rng(n);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next_u32() & 0xFF);
  return bytes;
}

// A file of random bytes on the disk that builds lie on: the folder of temporary files is often in
// memory, where nothing is direct.
class ReadDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    ::alarm(60);  // a read that never ends ends the test
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    path_ = (std::filesystem::path(QSF_BIN_DIR) /
             ("qsf_read_device_test." + std::to_string(::getpid()) + "." + name))
                .string();
    ASSERT_TRUE(write_file(path_, bytes_).ok());
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    ::alarm(0);
  }

  // Reads the whole file in blocks of these many bytes, as many at a time as the queue takes.
  Status read_all(AsyncReader& queue, MutableByteSpan to, std::size_t block_bytes) {
    std::size_t next = 0;
    Status first_error;
    while (next < to.size() || queue.in_flight() > 0) {
      if (next < to.size() && queue.in_flight() < queue.depth()) {
        queue.start({.offset = next, .to = to.subspan(next, block_bytes), .tag = next});
        next += block_bytes;
      } else {
        ReadDone done = queue.wait();
        EXPECT_EQ(done.tag % block_bytes, 0U);
        if (first_error.ok()) first_error = std::move(done.status);
      }
    }
    return first_error;
  }

  // Pages of the test's file that the page cache holds.
  std::size_t cached_pages() const {
    const File file = File::open(path_).value();
    void* pages = ::mmap(nullptr, kFileBytes, PROT_READ, MAP_SHARED, file.handle(), 0);
    std::vector<unsigned char> held(kFileBytes / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
    EXPECT_EQ(::mincore(pages, kFileBytes, held.data()), 0);
    ::munmap(pages, kFileBytes);
    return static_cast<std::size_t>(std::count_if(
        held.begin(), held.end(), [](unsigned char page) { return (page & 1) != 0; }));
  }

  const std::vector<std::byte> bytes_ = random_bytes(kFileBytes);
  std::string path_;
};

struct PathCase {
  const char* name;
  ReadPath path;
  bool direct;
};

// One way of reading.
class ReadPathTest : public ReadDeviceTest, public testing::WithParamInterface<PathCase> {
 protected:
  // Skips the test where this machine does not have the way.
  void SetUp() override {
    ReadDeviceTest::SetUp();
    file_ = std::make_unique<File>(File::open(path_, ops_).value());
    device_ = std::make_unique<ReadDevice>(
        ReadDevice::open(*file_, {.path = GetParam().path, .direct = GetParam().direct}).value());
    if (device_->path() != GetParam().path || device_->is_direct() != GetParam().direct) {
      GTEST_SKIP() << "not on this machine: " << device_->fall_back();
    }
    EXPECT_THAT(device_->fall_back(), IsEmpty());
    queue_ = device_->make_queue(memory_.span()).value();
  }

  FaultyFileOps ops_;
  AlignedBytes memory_{kFileBytes};
  std::unique_ptr<File> file_;
  std::unique_ptr<ReadDevice> device_;
  std::unique_ptr<AsyncReader> queue_;
};

TEST_P(ReadPathTest, ReadsWhatTheFileHolds) {
  for (const std::size_t block : {kDirectAlign, 4 * kDirectAlign, 64 * kDirectAlign}) {
    AlignedBytes elsewhere(kFileBytes);
    for (const MutableByteSpan to : {memory_.span(), elsewhere.span()}) {
      std::fill(to.begin(), to.end(), std::byte{0});
      const Status status = read_all(*queue_, to, block);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(std::equal(to.begin(), to.end(), bytes_.begin())) << block;
    }
  }
  EXPECT_EQ(kDirectAlign % device_->alignment(), 0U);
  EXPECT_EQ(device_->alignment() > 1, device_->is_direct());
}

TEST_P(ReadPathTest, ReadsTheSameFileAfterItsNameWasGivenAway) {
  const File file = File::open(path_).value();
  ASSERT_TRUE(write_file(path_, std::vector<std::byte>(kFileBytes)).ok());
  const ReadDevice device =
      ReadDevice::open(file, {.path = GetParam().path, .direct = GetParam().direct}).value();
  const auto queue = device.make_queue({}).value();
  EXPECT_TRUE(read_all(*queue, memory_.span(), kFileBytes).ok());
  EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory_.span().begin()));
}

TEST_P(ReadPathTest, ContinuesShortAndInterruptedReads) {
  // Not a multiple of any alignment: a direct read goes back to the last whole unit.
  ops_.plan = {.max_transfer_bytes = 3 * kDirectAlign + 700, .interrupt_every = 3};
  const Status status = read_all(*queue_, memory_.span(), 16 * kDirectAlign);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory_.span().begin()));
  EXPECT_GE(ops_.calls(), 64U / 4);
  EXPECT_THAT(queue_->note(), IsEmpty());
}

TEST_P(ReadPathTest, NamesTheFailedReadAndGoesOn) {
  ops_.plan = {.read_error_at = 9 * kDirectAlign + 5};
  const MutableByteSpan to = memory_.span().first(4 * kDirectAlign);
  for (std::uint64_t offset = 0; offset < kFileBytes; offset += to.size()) {
    queue_->start({.offset = offset, .to = to, .tag = offset});
    const ReadDone done = queue_->wait();
    EXPECT_EQ(done.tag, offset);
    if (offset != 8 * kDirectAlign) {
      EXPECT_TRUE(done.status.ok()) << done.status.message();
      EXPECT_TRUE(
          std::equal(to.begin(), to.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset)));
      continue;
    }
    EXPECT_EQ(done.status.code(), StatusCode::kIo);
    EXPECT_THAT(done.status.message(), HasSubstr(path_));
    EXPECT_THAT(done.status.message(), HasSubstr("16384 bytes at offset 32768"));
    EXPECT_THAT(done.status.message(), HasSubstr("Input/output error"));
  }
}

TEST_P(ReadPathTest, AFileThatShrinksIsAnError) {
  EXPECT_TRUE(device_->check_size().ok());
  for (const std::uint64_t end : {std::uint64_t{10 * kDirectAlign}, std::uint64_t{41'000}}) {
    ops_.plan = {.truncate_at = end};
    const Status status = read_all(*queue_, memory_.span(), 4 * kDirectAlign);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("truncated meanwhile"));
    EXPECT_EQ(device_->check_size().code(), StatusCode::kCorrupt);
  }
}

TEST_P(ReadPathTest, ARealFileThatShrinksIsAnError) {
  ASSERT_EQ(::truncate(path_.c_str(), 41'000), 0);
  const Status status = read_all(*queue_, memory_.span(), 4 * kDirectAlign);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("truncated meanwhile"));
  EXPECT_THAT(status.message(), HasSubstr("had 262144 bytes"));
  EXPECT_EQ(device_->check_size().code(), StatusCode::kCorrupt);
}

TEST_P(ReadPathTest, RangesPastTheEndAreNotRead) {
  const std::uint64_t calls = ops_.calls();
  for (const std::uint64_t offset :
       {std::uint64_t{kFileBytes}, std::uint64_t{kFileBytes + kDirectAlign},
        UINT64_MAX - kDirectAlign + 1}) {
    queue_->start({.offset = offset, .to = memory_.span().first(kDirectAlign), .tag = 7});
    const ReadDone done = queue_->wait();
    EXPECT_EQ(done.tag, 7U);
    EXPECT_EQ(done.status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(done.status.message(), HasSubstr("the file has 262144 bytes"));
  }
  EXPECT_EQ(ops_.calls(), calls);
}

INSTANTIATE_TEST_SUITE_P(All, ReadPathTest,
                         testing::Values(PathCase{"pread_direct", ReadPath::kPread, true},
                                         PathCase{"pread_cached", ReadPath::kPread, false}),
                         [](const auto& tested) { return tested.param.name; });

TEST_F(ReadDeviceTest, DirectReadsLeaveThePageCacheAlone) {
  const File file = File::open(path_).value();
  ASSERT_EQ(::fsync(file.handle()), 0);
  ASSERT_EQ(::posix_fadvise(file.handle(), 0, 0, POSIX_FADV_DONTNEED), 0);
  const ReadDevice device = ReadDevice::open(file, {.path = ReadPath::kPread}).value();
  if (!device.is_direct()) GTEST_SKIP() << "not on this machine: " << device.fall_back();
  AlignedBytes memory(kFileBytes);
  EXPECT_TRUE(read_all(*device.make_queue({}).value(), memory.span(), 8 * kDirectAlign).ok());
  EXPECT_EQ(cached_pages(), 0U);
}

}  // namespace
}  // namespace qsf
