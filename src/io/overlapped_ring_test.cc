// SPDX-License-Identifier: MIT
//
// Tests of overlapped reads against a port that keeps them pending, ends them in any order, short,
// at the end of the file, cancelled, or not at all for a while.

#include "io/overlapped_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/queued_readers.h"
#include "io/windows_errors.h"

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr std::size_t kPortFileBytes = 4096;

std::byte byte_at(std::uint64_t offset) {
  return static_cast<std::byte>((offset * 7 + offset / 256) & 0xFF);
}

// What the test sees of a port that a ring owns.
struct PortLog {
  unsigned n_pending = 0;
  unsigned n_cancelled = 0;
  unsigned n_next_failures = 0;       // next() fails so often
  std::size_t most_bytes = SIZE_MAX;  // of a read
  int start_error = 0;
  bool last_first = false;
};

// Reads are pending until next() writes their bytes and hands them out.
class FakePort final : public ReadPort {
 public:
  explicit FakePort(PortLog& log) : log_(&log) {}
  ~FakePort() override { EXPECT_EQ(log_->n_pending, 0u) << "a port was closed under its reads"; }

  int start(std::size_t slot, int, MutableByteSpan to, std::uint64_t offset) override {
    if (log_->start_error != 0) return log_->start_error;
    if (offset >= kPortFileBytes) return -ENODATA;
    for (const Pending& read : pending_) EXPECT_NE(read.slot, slot) << "two reads of one slot";
    pending_.push_back({slot, to, offset});
    log_->n_pending = static_cast<unsigned>(pending_.size());
    return 0;
  }
  int next(PortPacket& packet) override {
    if (log_->n_next_failures > 0) {
      --log_->n_next_failures;
      return -EIO;
    }
    if (pending_.empty()) return -EDEADLK;  // a real port would wait for ever
    const Pending read = log_->last_first ? pending_.back() : pending_.front();
    if (log_->last_first) {
      pending_.pop_back();
    } else {
      pending_.pop_front();
    }
    log_->n_pending = static_cast<unsigned>(pending_.size());
    if (is_cancelled_) {
      ++log_->n_cancelled;
      packet = {.slot = read.slot, .result = -ECANCELED};
      return 0;
    }
    const std::size_t n_bytes = std::min(
        {read.to.size(), log_->most_bytes, static_cast<std::size_t>(kPortFileBytes - read.offset)});
    for (std::size_t i = 0; i < n_bytes; ++i) read.to[i] = byte_at(read.offset + i);
    packet = {.slot = read.slot, .result = static_cast<std::int64_t>(n_bytes)};
    return 0;
  }
  void cancel() override { is_cancelled_ = true; }

 private:
  struct Pending {
    std::size_t slot = 0;
    MutableByteSpan to;
    std::uint64_t offset = 0;
  };
  PortLog* log_;
  std::deque<Pending> pending_;
  bool is_cancelled_ = false;
};

class OverlappedRingTest : public testing::Test {
 protected:
  std::unique_ptr<OverlappedRing> ring_of(unsigned depth) {
    return std::make_unique<OverlappedRing>(std::make_unique<FakePort>(log_), depth);
  }
  PortLog log_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kPortFileBytes);
};

TEST_F(OverlappedRingTest, ReadsEndInTheOrderOfTheirPackets) {
  log_.last_first = true;
  const auto ring = ring_of(3);
  const MutableByteSpan memory(memory_);
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_EQ(ring->submit(7, memory.subspan(i * 100, 100), i * 100, 40 + i), 0);
  EXPECT_EQ(log_.n_pending, 3u);
  EXPECT_EQ(ring->submit(7, memory.first(100), 0, 50), -EBUSY);
  for (const std::uint64_t tag : {42u, 41u, 40u}) {
    RingDone done;
    ASSERT_EQ(ring->wait(done), 0);
    EXPECT_EQ(done.tag, tag);
    EXPECT_EQ(done.result, 100);
  }
  for (std::size_t i = 0; i < 300; ++i) ASSERT_EQ(memory_[i], byte_at(i)) << i;
}

// Windows ends such a read when it is started, without a packet.
TEST_F(OverlappedRingTest, AReadBehindTheEndOfTheFileIsAnEmptyOne) {
  const auto ring = ring_of(2);
  ASSERT_EQ(ring->submit(7, memory_, kPortFileBytes, 1), 0);
  ASSERT_EQ(ring->submit(7, memory_, 0, 2), 0);
  EXPECT_EQ(ring->submit(7, memory_, 0, 3), -EBUSY);
  RingDone done;
  ASSERT_EQ(ring->wait(done), 0);
  EXPECT_EQ(done.tag, 1u);
  EXPECT_EQ(done.result, 0);
  ASSERT_EQ(ring->wait(done), 0);
  EXPECT_EQ(done.tag, 2u);
  EXPECT_EQ(done.result, static_cast<std::int64_t>(kPortFileBytes));
}

TEST_F(OverlappedRingTest, NothingIsInFlightAfterAFailedStart) {
  const auto ring = ring_of(1);
  log_.start_error = -EINVAL;
  EXPECT_EQ(ring->submit(7, memory_, 0, 1), -EINVAL);
  log_.start_error = 0;
  EXPECT_EQ(ring->submit(7, memory_, 0, 1), 0);
  RingDone done;
  EXPECT_EQ(ring->wait(done), 0);
}

// FakePort's destructor sees to it that no read is left.
TEST_F(OverlappedRingTest, AClosingRingCancelsItsReadsAndWaitsForThem) {
  auto ring = ring_of(4);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(ring->submit(7, memory_, i, i), 0);
  log_.n_next_failures = 3;
  ring.reset();
  EXPECT_EQ(log_.n_cancelled, 4u);
  EXPECT_EQ(log_.n_next_failures, 0u);
}

// Reads go on in whole units of alignment.
TEST_F(OverlappedRingTest, ShortReadsGoOnUntilAllIsRead) {
  log_.most_bytes = 1000;
  const ReadSource source{.ops = &system_file_ops(),
                          .name = "model.qsf",
                          .size_bytes = kPortFileBytes,
                          .handle = 7,
                          .cached_handle = 7,
                          .alignment = 512};
  RingReader reader(source, ring_of(2), 2, {});
  reader.start({.offset = 0, .to = memory_, .tag = 9});
  const ReadDone done = reader.wait();
  EXPECT_EQ(done.tag, 9u);
  ASSERT_TRUE(done.status.ok()) << done.status.message();
  for (std::size_t i = 0; i < kPortFileBytes; ++i) ASSERT_EQ(memory_[i], byte_at(i)) << i;
}

TEST_F(OverlappedRingTest, ATruncatedFileIsNamed) {
  const ReadSource source{.ops = &system_file_ops(),
                          .name = "model.qsf",
                          .size_bytes = 2 * kPortFileBytes,
                          .handle = 7,
                          .cached_handle = 7};
  RingReader reader(source, ring_of(1), 1, {});
  reader.start({.offset = kPortFileBytes, .to = memory_, .tag = 1});
  const ReadDone done = reader.wait();
  ASSERT_FALSE(done.status.ok());
  EXPECT_THAT(std::string(done.status.message()), HasSubstr("truncated meanwhile"));
}

TEST(WindowsErrorsTest, MeanWhatErrnoMeans) {
  EXPECT_EQ(errno_of_windows(0), 0);
  EXPECT_EQ(errno_of_windows(2), ENOENT);
  EXPECT_EQ(errno_of_windows(5), EACCES);
  EXPECT_EQ(errno_of_windows(80), EEXIST);
  EXPECT_EQ(errno_of_windows(112), ENOSPC);
  EXPECT_EQ(errno_of_windows(99'999), EIO);
  EXPECT_EQ(read_result_of_windows(38), 0);
  EXPECT_EQ(read_result_of_windows(995), -ECANCELED);
}

}  // namespace
}  // namespace qsf
