// SPDX-License-Identifier: MIT
//
// Tests of reading paths: the same bytes by each, over good disks and bad ones, and what is said
// when a path is not there. Every path passes the same suite.

#include "io/read_device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "io/atomic_file.h"
#include "io/file.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kDeviceBytes = 64 * kDirectAlign;

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

  // Starts a test of what the page cache holds.
  void forget_cached_pages() const {
    const File file = File::open(path_).value();
    EXPECT_EQ(::fsync(file.handle()), 0);
    EXPECT_EQ(::posix_fadvise(file.handle(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }

  // Pages of the test's file that the page cache holds.
  std::size_t cached_pages() const {
    const File file = File::open(path_).value();
    void* pages = ::mmap(nullptr, kDeviceBytes, PROT_READ, MAP_SHARED, file.handle(), 0);
    std::vector<unsigned char> held(kDeviceBytes /
                                    static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
    EXPECT_EQ(::mincore(pages, kDeviceBytes, held.data()), 0);
    ::munmap(pages, kDeviceBytes);
    return static_cast<std::size_t>(std::count_if(
        held.begin(), held.end(), [](unsigned char page) { return (page & 1) != 0; }));
  }

  const std::vector<std::byte> bytes_ = random_bytes(kDeviceBytes);
  std::string path_;
};

struct PathCase {
  const char* name;
  ReadPath path;
  bool direct;
  std::uint32_t block_bytes = 0;
};

void PrintTo(const PathCase& tested, std::ostream* to) {
  *to << tested.name;
}

// One way of reading.
class ReadPathTest : public ReadDeviceTest, public testing::WithParamInterface<PathCase> {
 protected:
  // Skips the test where this machine does not have the way.
  void SetUp() override {
    ReadDeviceTest::SetUp();
    file_ = std::make_unique<File>(File::open(path_, ops_).value());
    device_ = std::make_unique<ReadDevice>(
        ReadDevice::open(*file_, {.path = GetParam().path,
                                  .direct = GetParam().direct,
                                  .block_bytes = GetParam().block_bytes})
            .value());
    if (device_->path() != GetParam().path || device_->is_direct() != GetParam().direct) {
      GTEST_SKIP() << "not on this machine: " << device_->fall_back();
    }
    EXPECT_THAT(device_->fall_back(), IsEmpty());
    queue_ = device_->make_queue(memory_.span()).value();
  }

  FaultyFileOps ops_;
  AlignedBytes memory_{kDeviceBytes};
  std::unique_ptr<File> file_;
  std::unique_ptr<ReadDevice> device_;
  std::unique_ptr<AsyncReader> queue_;
};

TEST_P(ReadPathTest, ReadsWhatTheFileHolds) {
  for (const std::size_t block : {kDirectAlign, 4 * kDirectAlign, 64 * kDirectAlign}) {
    AlignedBytes elsewhere(kDeviceBytes);
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
  ASSERT_TRUE(write_file(path_, std::vector<std::byte>(kDeviceBytes)).ok());
  const ReadDevice device =
      ReadDevice::open(file, {.path = GetParam().path, .direct = GetParam().direct}).value();
  const auto queue = device.make_queue({}).value();
  EXPECT_TRUE(read_all(*queue, memory_.span(), kDeviceBytes).ok());
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
  const std::size_t failed_bytes = GetParam().block_bytes != 0 ? GetParam().block_bytes : to.size();
  for (std::uint64_t offset = 0; offset < kDeviceBytes; offset += to.size()) {
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
    EXPECT_THAT(done.status.message(),
                HasSubstr(std::to_string(failed_bytes) + " bytes at offset 32768"));
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
       {std::uint64_t{kDeviceBytes}, std::uint64_t{kDeviceBytes + kDirectAlign},
        UINT64_MAX - kDirectAlign + 1}) {
    queue_->start({.offset = offset, .to = memory_.span().first(kDirectAlign), .tag = 7});
    const ReadDone done = queue_->wait();
    EXPECT_EQ(done.tag, 7U);
    EXPECT_EQ(done.status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(done.status.message(), HasSubstr("the file has 262144 bytes"));
  }
  EXPECT_EQ(ops_.calls(), calls);
}

// Of ways that go past the page cache.
class DirectReadPathTest : public ReadPathTest {};

TEST_P(DirectReadPathTest, FinishesReadsThatTheDiskRefusesLater) {
  forget_cached_pages();
  const FaultPlan plans[] = {{.direct_read_errno = EINVAL}, {.max_transfer_bytes = 100}};
  for (const FaultPlan& plan : plans) {
    ops_.plan = plan;
    std::fill(memory_.span().begin(), memory_.span().end(), std::byte{0});
    const auto queue = device_->make_queue({}).value();
    const Status status = read_all(*queue, memory_.span(), 16 * kDirectAlign);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory_.span().begin()));
    EXPECT_THAT(std::string(queue->note()), HasSubstr("page cache instead"));
  }
  EXPECT_EQ(cached_pages(), 0U);
}

// Pages that the kernel brings before anybody asks would stay, and nobody counts them.
TEST_P(DirectReadPathTest, NothingIsReadAheadOfReadsThatTheDiskRefuses) {
  forget_cached_pages();
  ops_.plan = {.direct_read_errno = EINVAL};
  const MutableByteSpan to = memory_.span().first(4 * kDirectAlign);
  queue_->start({.offset = 0, .to = to, .tag = 0});
  const ReadDone done = queue_->wait();
  EXPECT_TRUE(done.status.ok()) << done.status.message();
  EXPECT_TRUE(std::equal(to.begin(), to.end(), bytes_.begin()));
  EXPECT_EQ(cached_pages(), 0U);
}

TEST_P(ReadPathTest, WaitsForASlowDiskBeforeItEnds) {
  ops_.plan = {.interrupt_every = 3, .read_delay_us = 2000};
  const std::size_t block = kDeviceBytes / queue_->depth();
  for (unsigned i = 0; i < queue_->depth(); ++i) {
    queue_->start({.offset = i * block, .to = memory_.span().subspan(i * block, block), .tag = i});
  }
  EXPECT_EQ(queue_->in_flight(), queue_->depth());
  queue_.reset();
  if (GetParam().path == ReadPath::kUring) {
    EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory_.span().begin()));
  }
}

TEST_P(ReadPathTest, ReadsFromSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<Status> outcomes(4);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    threads.emplace_back([this, i, &outcomes] {
      const std::size_t part = kDeviceBytes / outcomes.size();
      const auto queue = device_->make_queue({}).value();
      const MutableByteSpan to = memory_.span().subspan(i * part, part);
      queue->start({.offset = i * part, .to = to, .tag = i});
      outcomes[i] = queue->wait().status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : outcomes) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory_.span().begin()));
}

constexpr PathCase kDirectPaths[] = {{"pread_direct", ReadPath::kPread, true},
                                     {"uring_direct", ReadPath::kUring, true},
                                     {"uring_in_blocks", ReadPath::kUring, true, 3 * kDirectAlign}};
constexpr PathCase kCachedPaths[] = {{"pread_cached", ReadPath::kPread, false},
                                     {"uring_cached", ReadPath::kUring, false},
                                     {"mmap", ReadPath::kMmap, false}};

std::string name_of(const testing::TestParamInfo<PathCase>& tested) {
  return tested.param.name;
}

INSTANTIATE_TEST_SUITE_P(Direct, ReadPathTest, testing::ValuesIn(kDirectPaths), name_of);
INSTANTIATE_TEST_SUITE_P(Cached, ReadPathTest, testing::ValuesIn(kCachedPaths), name_of);
INSTANTIATE_TEST_SUITE_P(Direct, DirectReadPathTest, testing::ValuesIn(kDirectPaths), name_of);

TEST_F(ReadDeviceTest, ThePageCacheIsFilledOnRequest) {
  FaultyFileOps ops;
  const File file = File::open(path_, ops).value();
  for (const bool fills : {false, true}) {
    const auto device = ReadDevice::open(file, {.path = ReadPath::kPread, .fill_cache = fills});
    ASSERT_TRUE(device.has_value()) << device.error().message();
    if (!device->is_direct()) GTEST_SKIP() << device->fall_back();
    forget_cached_pages();
    EXPECT_EQ(file.ops().cached_share(file.handle(), kDeviceBytes), 0.0);
    EXPECT_FALSE(device->fill_cache()) << "a small file is one piece";
    EXPECT_FALSE(device->fill_cache());
    EXPECT_EQ(ops.announced_bytes(), fills ? kDeviceBytes : 0U);
    for (int i = 0; fills && i < 1000 && cached_pages() < kDeviceBytes / kDirectAlign; ++i) {
      ::usleep(10'000);
    }
    EXPECT_EQ(file.ops().cached_share(file.handle(), kDeviceBytes), fills ? 1.0 : 0.0);
  }
  EXPECT_EQ(file.ops().cached_share(file.handle(), 0), 1.0);
}

// Where direct reads are refused what was read stays, as the option asks.
TEST_F(ReadDeviceTest, APageCacheThatIsToBeFilledIsNotEmptied) {
  FaultyFileOps ops({.direct_open_errno = EINVAL});
  const File file = File::open(path_, ops).value();
  const auto device = ReadDevice::open(file, {.path = ReadPath::kPread, .fill_cache = true});
  ASSERT_TRUE(device.has_value()) << device.error().message();
  AlignedBytes to(kDeviceBytes);
  const auto queue = device->make_queue({}).value();
  EXPECT_TRUE(read_all(*queue, to.span(), kDirectAlign).ok());
  EXPECT_EQ(ops.drops(), 0U);
  EXPECT_FALSE(device->fill_cache());
  EXPECT_EQ(ops.announced_bytes(), 0U);
}

TEST_F(ReadDeviceTest, DirectReadsLeaveThePageCacheAlone) {
  const File file = File::open(path_).value();
  forget_cached_pages();
  const ReadDevice device = ReadDevice::open(file, {.path = ReadPath::kPread}).value();
  if (!device.is_direct()) GTEST_SKIP() << "not on this machine: " << device.fall_back();
  AlignedBytes memory(kDeviceBytes);
  EXPECT_TRUE(read_all(*device.make_queue({}).value(), memory.span(), 8 * kDirectAlign).ok());
  EXPECT_EQ(cached_pages(), 0U);
}

TEST_F(ReadDeviceTest, ReadsThroughThePageCacheLeaveOrDropWhatTheyRead) {
  const struct {
    ReadDeviceOptions options;
    FaultPlan plan;
    bool dropped;
  } cases[] = {
      {{.direct = false}, {}, false},
      {{.direct = false, .keep_cached = false}, {}, true},
      {{.direct = true}, {.direct_open_errno = EINVAL}, true},
  };
  for (const auto& c : cases) {
    for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread}) {
      FaultyFileOps ops(c.plan);
      const File file = File::open(path_, ops).value();
      forget_cached_pages();
      ReadDeviceOptions options = c.options;
      options.path = path;
      const ReadDevice device = ReadDevice::open(file, options).value();
      if (device.is_in_memory()) GTEST_SKIP() << "the build folder lies in memory";
      if (device.path() != path) continue;
      AlignedBytes memory(kDeviceBytes);
      EXPECT_TRUE(read_all(*device.make_queue({}).value(), memory.span(), 8 * kDirectAlign).ok());
      EXPECT_EQ(cached_pages() == 0, c.dropped) << read_path_name(path);
      device.drop(0, kDeviceBytes);
      EXPECT_EQ(cached_pages() == 0, c.dropped);
    }
  }
}

TEST_F(ReadDeviceTest, SaysWhyItIsNotWhatWasAskedFor) {
  const struct {
    FaultPlan plan;
    ReadDeviceOptions options;
    ReadPath path;
    bool direct;
    const char* reason;
  } cases[] = {
      {{.ring_errno = ENOSYS}, {}, ReadPath::kPread, true, "io_uring: this kernel"},
      {{.ring_errno = EPERM}, {}, ReadPath::kPread, true, "io_uring: forbidden"},
      {{.ring_errno = ENOMEM}, {}, ReadPath::kPread, true, "ulimit -l"},
      {{.ring_submit_errno = EPERM}, {}, ReadPath::kPread, true, "io_uring: forbidden"},
      {{.ring_wait_errno = EBADF}, {}, ReadPath::kPread, true, "io_uring: Bad file descriptor"},
      {{.reopen_errno = EACCES},
       {.path = ReadPath::kPread},
       ReadPath::kPread,
       false,
       "direct reads: opening the file for them failed: Permission denied"},
      {{.direct_open_errno = EINVAL},
       {.path = ReadPath::kPread},
       ReadPath::kPread,
       false,
       "direct reads: opening the file for them failed: Invalid argument"},
      {{.direct_read_errno = EINVAL},
       {.path = ReadPath::kPread},
       ReadPath::kPread,
       false,
       "direct reads: the first one failed: Invalid argument"},
      {{.direct_alignment = 0},
       {.path = ReadPath::kPread},
       ReadPath::kPread,
       false,
       "this file system has none"},
      {{.direct_alignment = 8192},
       {.path = ReadPath::kPread},
       ReadPath::kPread,
       false,
       "multiples of 8192 bytes"},
      {{.in_memory = true}, {.path = ReadPath::kPread}, ReadPath::kPread, false, "in memory"},
      {{.map_errno = ENODEV, .ring_errno = ENOSYS},
       {.path = ReadPath::kMmap},
       ReadPath::kPread,
       true,
       "mmap: No such device; reading instead; io_uring: this kernel"},
  };
  const File healthy = File::open(path_).value();
  const ReadDevice best = ReadDevice::open(healthy).value();
  const bool has_rings = best.path() == ReadPath::kUring;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.reason);
    const bool breaks_ring = c.plan.ring_submit_errno != 0 || c.plan.ring_wait_errno != 0;
    if (breaks_ring && !has_rings) continue;
    FaultyFileOps ops(c.plan);
    const File file = File::open(path_, ops).value();
    const ReadDevice device = ReadDevice::open(file, c.options).value();
    EXPECT_EQ(device.path(), c.path);
    // A disk without direct reads of its own adds a reason of its own.
    if (device.is_direct() != c.direct) {
      EXPECT_THAT(std::string(device.fall_back()), HasSubstr("direct reads"));
    }
    EXPECT_THAT(std::string(device.fall_back()), HasSubstr(c.reason));
    AlignedBytes memory(kDeviceBytes);
    const auto queue = device.make_queue(memory.span()).value();
    const Status status = read_all(*queue, memory.span(), 4 * kDirectAlign);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory.span().begin()));
  }
  if (!has_rings) GTEST_SKIP() << "rings that break were left out: " << best.fall_back();
}

TEST_F(ReadDeviceTest, ARingThatBreaksLaterIsReplaced) {
  FaultyFileOps ops;
  const File file = File::open(path_, ops).value();
  const ReadDevice device = ReadDevice::open(file, {.path = ReadPath::kUring}).value();
  if (device.path() != ReadPath::kUring) GTEST_SKIP() << device.fall_back();
  AlignedBytes memory(kDeviceBytes);
  // A kernel that is short of memory gets its reads another way.
  const struct {
    FaultPlan plan;
    const char* note;
  } cases[] = {{{.ring_submit_errno = EBADF}, "the ring broke (Bad file descriptor)"},
               {{.ring_wait_errno = EBADF}, "the ring broke (Bad file descriptor)"},
               {{.ring_submit_errno = EAGAIN}, "page cache instead"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    std::fill(memory.span().begin(), memory.span().end(), std::byte{0});
    const auto queue = device.make_queue({}).value();
    ops.plan = c.plan;
    const Status status = read_all(*queue, memory.span(), 4 * kDirectAlign);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory.span().begin()));
    EXPECT_THAT(std::string(queue->note()), HasSubstr(c.note));
    ops.plan = {};
  }
  // What fails after that fails as it does without a ring.
  const auto queue = device.make_queue({}).value();
  ops.plan = {.read_error_at = 0, .ring_wait_errno = EBADF};
  EXPECT_EQ(read_all(*queue, memory.span(), kDeviceBytes).code(), StatusCode::kIo);
  ops.plan = {.ring_errno = EMFILE};
  EXPECT_EQ(device.make_queue({}).error().code(), StatusCode::kIo);
}

TEST_F(ReadDeviceTest, RegistersWhatMayBeLocked) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const struct {
    std::size_t lockable_bytes;
    const char* note;
  } cases[] = {
      {8 * kMiB, ""},
      {3 * kMiB,
       "8388608 bytes of buffers were not registered (Cannot allocate memory; ulimit -l "
       "bounds them), but 2097152 of them"},
      {kMiB / 2, "8388608 bytes of buffers were not registered"},
  };
  for (const auto& c : cases) {
    FaultyFileOps ops({.lockable_bytes = c.lockable_bytes});
    const File file = File::open(path_, ops).value();
    const ReadDevice device = ReadDevice::open(file, {.path = ReadPath::kUring}).value();
    if (device.path() != ReadPath::kUring) GTEST_SKIP() << device.fall_back();
    AlignedBytes memory(8 * kMiB);
    const auto queue = device.make_queue(memory.span()).value();
    EXPECT_THAT(std::string(queue->note()), HasSubstr(c.note));
    EXPECT_EQ(queue->note().empty(), std::string(c.note).empty());
    // Inside the registered part, across its end, and outside.
    for (const std::size_t at : {std::size_t{0}, 2 * kMiB - kDeviceBytes / 2, 7 * kMiB}) {
      const MutableByteSpan to = memory.span().subspan(at, kDeviceBytes);
      EXPECT_TRUE(read_all(*queue, to, kDeviceBytes).ok());
      EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), to.begin()));
    }
  }
}

// Runs as a user without privileges, whom alone the limit binds, and ends the process: 0 when the
// file was read, with what the queue has to say on stderr.
[[noreturn]] void read_with_little_lockable_memory(const std::string& path, rlim_t lockable_bytes) {
  const rlimit limit{lockable_bytes, lockable_bytes};
  const File file = File::open(path).value();
  std::filesystem::remove(path);  // this process has a file of its own and no end of test
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) std::exit(3);
  if (::geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setresuid(kNobody, kNobody, kNobody) != 0) std::exit(4);
    // Giving up privileges closes /proc/self, which an ordinary user's process has.
    if (::prctl(PR_SET_DUMPABLE, 1) != 0) std::exit(5);
  }
  const ReadDevice device = ReadDevice::open(file, {.path = ReadPath::kUring}).value();
  AlignedBytes memory(std::size_t{4} << 20);
  const auto queue = device.make_queue(memory.span()).value();
  queue->start({.offset = 0, .to = memory.span().first(kDeviceBytes), .tag = 1});
  const bool ok = queue->wait().status.ok();
  std::cerr << "path " << read_path_name(device.path()) << ", " << device.fall_back() << ", note "
            << queue->note() << "\n";
  std::exit(ok ? 0 : 6);
}

TEST_F(ReadDeviceTest, AnUnprivilegedUserMayLockOnlySoMuch) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const File file = File::open(path_).value();
  const ReadDevice device = ReadDevice::open(file, {.path = ReadPath::kUring}).value();
  if (device.path() != ReadPath::kUring) GTEST_SKIP() << device.fall_back();
  EXPECT_EXIT(read_with_little_lockable_memory(path_, rlim_t{64} << 10), testing::ExitedWithCode(0),
              "path io_uring, , note .*4194304 bytes of buffers were not registered \\(Cannot");
  EXPECT_EXIT(read_with_little_lockable_memory(path_, rlim_t{3} << 20), testing::ExitedWithCode(0),
              "path io_uring, , note .*not registered .*but 2097152 of them");
}

TEST_F(ReadDeviceTest, MapsTheWholeFileAndForgetsIt) {
  const File file = File::open(path_).value();
  const ReadDevice device = ReadDevice::open(file, {.path = ReadPath::kMmap}).value();
  ASSERT_EQ(device.path(), ReadPath::kMmap) << device.fall_back();
  EXPECT_FALSE(device.is_direct());
  EXPECT_EQ(device.n_queues(), 2U);
  ASSERT_EQ(device.mapping().size(), kDeviceBytes);
  forget_cached_pages();
  device.will_need(5, kDeviceBytes);
  EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), device.mapping().begin()));
  EXPECT_EQ(cached_pages(), kDeviceBytes / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  device.drop(0, UINT64_MAX);
  device.drop(kDeviceBytes, 1);
  if (!device.is_in_memory()) {
    EXPECT_EQ(cached_pages(), 0U);
  }
  EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), device.mapping().begin()));
}

TEST_F(ReadDeviceTest, ReadsFilesInMemoryAndEmptyOnes) {
  MemoryFileOps ops(bytes_);
  const File file = File::open("m", ops).value();
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap}) {
    const ReadDevice device = ReadDevice::open(file, {.path = path}).value();
    EXPECT_EQ(device.path(), path == ReadPath::kMmap ? path : ReadPath::kPread);
    EXPECT_TRUE(device.is_in_memory());
    AlignedBytes memory(kDeviceBytes);
    EXPECT_TRUE(read_all(*device.make_queue({}).value(), memory.span(), kDeviceBytes).ok());
    EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), memory.span().begin()));
  }
  ASSERT_TRUE(write_file(path_, {}).ok());
  const File empty = File::open(path_).value();
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap}) {
    const ReadDevice device = ReadDevice::open(empty, {.path = path}).value();
    const auto queue = device.make_queue({}).value();
    queue->start({.offset = 0, .to = {}, .tag = 3});
    EXPECT_TRUE(queue->wait().status.ok());
    EXPECT_TRUE(device.mapping().empty());
  }
}

}  // namespace
}  // namespace qsf
