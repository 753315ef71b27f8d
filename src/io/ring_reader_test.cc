// SPDX-License-Identifier: MIT
//
// Tests of rings that break while reads are in them: no memory is handed back before the kernel has
// done with it, and every read arrives all the same.

#include "io/queued_readers.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "base/rng.h"
#include "io/atomic_file.h"
#include "io/file.h"
#include "io/read_device.h"
#include "io/read_ring.h"

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr unsigned kBlocks = 8;
constexpr std::size_t kRingFileBytes = kBlocks * kBlockBytes;

struct AlignedDelete {
  void operator()(std::byte* memory) const {
    ::operator delete[](memory, std::align_val_t{kDirectAlign});
  }
};

class RingReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    ::alarm(60);  // a read that never ends ends the test
    Rng rng(5);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(rng.next_u32() & 0xFF);
    path_ =
        std::string(QSF_BIN_DIR) + "/qsf_ring_reader_test." + std::to_string(::getpid()) + ".bin";
    ASSERT_TRUE(write_file(path_, bytes_).ok());
    file_ = std::make_unique<File>(File::open(path_).value());
    ASSERT_EQ(::fsync(file_->handle()), 0);
    ASSERT_EQ(::posix_fadvise(file_->handle(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    ::alarm(0);
  }

  MutableByteSpan block(std::size_t i) { return {memory_.get() + i * kBlockBytes, kBlockBytes}; }
  bool has_whole_file() const { return std::equal(bytes_.begin(), bytes_.end(), memory_.get()); }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(kRingFileBytes);
  std::unique_ptr<std::byte, AlignedDelete> memory_{new (std::align_val_t{kDirectAlign})
                                                        std::byte[kRingFileBytes]()};
  std::string path_;
  std::unique_ptr<File> file_;
};

// A ring whose every call fails after the reads have begun, and whose kernel writes to their memory
// until the last moment.
class BreakingRing final : public ReadRing {
 public:
  BreakingRing(unsigned n_submits, bool& is_gone) : n_submits_(n_submits), is_gone_(is_gone) {}
  ~BreakingRing() override {
    for (const MutableByteSpan to : reading_) std::fill(to.begin(), to.end(), std::byte{0xEE});
    is_gone_ = true;
  }
  int register_memory(MutableByteSpan) override { return 0; }
  int submit(int, MutableByteSpan to, std::uint64_t, std::uint64_t) override {
    if (reading_.size() == n_submits_) return -EBADF;
    reading_.push_back(to);
    return 0;
  }
  int wait(RingDone&) override { return -EBADF; }

 private:
  std::vector<MutableByteSpan> reading_;
  unsigned n_submits_;
  bool& is_gone_;
};

// Whether it breaks at a wait or at the third read.
TEST_F(RingReaderTest, MemoryIsHandedBackWhenABrokenRingIsGone) {
  const ReadSource source = {.ops = &file_->ops(),
                             .name = path_,
                             .size_bytes = kRingFileBytes,
                             .handle = file_->handle(),
                             .cached_handle = file_->handle()};
  for (const unsigned n_submits : {kBlocks, 2U}) {
    std::fill_n(memory_.get(), kRingFileBytes, std::byte{0});
    bool is_gone = false;
    RingReader reader(source, std::make_unique<BreakingRing>(n_submits, is_gone), kBlocks, {});
    for (unsigned i = 0; i < kBlocks; ++i) {
      reader.start({.offset = i * kBlockBytes, .to = block(i), .tag = i});
    }
    EXPECT_EQ(reader.in_flight(), kBlocks);
    std::vector<bool> is_back(kBlocks);
    while (reader.in_flight() > 0) {
      const ReadDone done = reader.wait();
      EXPECT_TRUE(is_gone);
      EXPECT_TRUE(done.status.ok()) << done.status.message();
      is_back.at(static_cast<std::size_t>(done.tag)) = true;
    }
    EXPECT_EQ(std::count(is_back.begin(), is_back.end(), true), kBlocks);
    EXPECT_TRUE(has_whole_file());
    EXPECT_THAT(std::string(reader.note()),
                HasSubstr("io_uring: the ring broke (Bad file descriptor); reading one at a time"));
  }
}

// Closes every io_uring of this process, as if somebody had mistaken one for a file of theirs.
int close_rings() {
  std::vector<int> rings;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
    if (what.find("[io_uring]") != std::string::npos) {
      rings.push_back(std::stoi(entry.path().filename()));
    }
  }
  for (const int ring : rings) ::close(ring);
  return static_cast<int>(rings.size());
}

TEST_F(RingReaderTest, ARealRingThatIsClosedMeanwhileIsReplaced) {
  const ReadDevice device = ReadDevice::open(*file_, {.path = ReadPath::kUring}).value();
  if (device.path() != ReadPath::kUring) GTEST_SKIP() << device.fall_back();
  const auto queue = device.make_queue({memory_.get(), kRingFileBytes}).value();
  for (unsigned i = 0; i < kBlocks - 1; ++i) {
    queue->start({.offset = i * kBlockBytes, .to = block(i), .tag = i});
  }
  ASSERT_GT(close_rings(), 0);
  queue->start({.offset = (kBlocks - 1) * kBlockBytes, .to = block(kBlocks - 1), .tag = 7});
  while (queue->in_flight() > 0) {
    const ReadDone done = queue->wait();
    EXPECT_TRUE(done.status.ok()) << done.status.message();
  }
  EXPECT_TRUE(has_whole_file());
  EXPECT_THAT(std::string(queue->note()), HasSubstr("the ring broke"));
}

TEST_F(RingReaderTest, ARingEndsWhenItsReadsHaveEnded) {
  std::unique_ptr<ReadRing> ring;
  const int opened = open_uring(kBlocks, ring);
  if (opened < 0) GTEST_SKIP() << "no io_uring: " << std::strerror(-opened);
  const int direct = file_->ops().reopen(file_->handle(), /*direct=*/true);
  const int handle = direct >= 0 ? direct : file_->handle();
  for (unsigned i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(ring->submit(handle, block(i), i * kBlockBytes, i), 0);
  }
  ring.reset();
  EXPECT_TRUE(has_whole_file());
  if (direct >= 0) file_->ops().close(direct);
}

}  // namespace
}  // namespace qsf
