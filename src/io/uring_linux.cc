// SPDX-License-Identifier: MIT
//
// The ReadRing of the Linux kernel, by liburing. Without QSF_WITH_URING no ring can be opened.

#include <cerrno>

#include "io/read_ring.h"

#ifdef QSF_WITH_URING

#include <liburing.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace qsf {
namespace {

// The kernel takes at most this much as one registered buffer.
constexpr std::size_t kMaxBufferBytes = std::size_t{1} << 30;

// The tag of an entry that replaces one that the kernel refused.
constexpr std::uint64_t kNobody = UINT64_MAX;

// The interval at which a closing ring looks for completed reads.
constexpr std::chrono::milliseconds kEndPoll{1};

class Uring final : public ReadRing {
 public:
  Uring() = default;
  ~Uring() override {
    if (!is_open_) return;
    end_reads();
    ::io_uring_queue_exit(&ring_);
  }

  int open(unsigned depth) {
    const int result = ::io_uring_queue_init(depth, &ring_, 0);
    if (result < 0) return result;
    is_open_ = true;
    // Linux 5.1 to 5.5 have rings, but not this operation.
    io_uring_probe* probe = ::io_uring_get_probe_ring(&ring_);
    const bool reads = probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    ::io_uring_free_probe(probe);
    return reads ? 0 : -ENOSYS;
  }

  int register_memory(MutableByteSpan memory) override {
    std::vector<iovec> buffers;
    for (std::size_t at = 0; at < memory.size(); at += kMaxBufferBytes) {
      buffers.push_back({memory.data() + at, std::min(memory.size() - at, kMaxBufferBytes)});
    }
    const int result =
        ::io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (result == 0) registered_ = memory;
    return result;
  }

  int submit(int handle, MutableByteSpan to, std::uint64_t offset, std::uint64_t tag) override {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) return -EBUSY;
    const auto n_bytes = static_cast<unsigned>(to.size());
    const int buffer = buffer_of(to);
    if (buffer >= 0) {
      ::io_uring_prep_read_fixed(entry, handle, to.data(), n_bytes, offset, buffer);
    } else {
      ::io_uring_prep_read(entry, handle, to.data(), n_bytes, offset);
    }
    ::io_uring_sqe_set_data64(entry, tag);
    const int result = ::io_uring_submit(&ring_);
    if (::io_uring_sq_ready(&ring_) == 0) {
      ++n_in_flight_;
      return 0;
    }
    // The kernel has not taken the entry and will see it with the next one: it must not read then.
    ::io_uring_prep_nop(entry);
    ::io_uring_sqe_set_data64(entry, kNobody);
    return result < 0 ? result : -EAGAIN;
  }

  int wait(RingDone& done) override {
    for (;;) {
      io_uring_cqe* entry = nullptr;
      const int result = ::io_uring_wait_cqe(&ring_, &entry);
      if (result < 0) return result;
      if (take(entry, done)) return 0;
    }
  }

 private:
  // Takes a completion off the ring; returns whether it belongs to a read.
  bool take(io_uring_cqe* entry, RingDone& done) noexcept {
    done = {.tag = ::io_uring_cqe_get_data64(entry), .result = entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    if (done.tag == kNobody) return false;
    --n_in_flight_;
    return true;
  }

  // Closing a ring does not end reads that the disk has started: they would continue to write to
  // memory that may be in other use by then. Completions appear in memory shared with the kernel,
  // even when calls to the ring fail.
  void end_reads() noexcept {
    RingDone ignored;
    while (n_in_flight_ > 0) {
      io_uring_cqe* entry = nullptr;
      if (::io_uring_peek_cqe(&ring_, &entry) == 0) {
        take(entry, ignored);
      } else {
        std::this_thread::sleep_for(kEndPoll);
      }
    }
  }

  // Returns which registered buffer holds all of the span, -1 when none does.
  int buffer_of(MutableByteSpan span) const noexcept {
    const std::byte* begin = registered_.data();
    if (span.empty() || registered_.empty()) return -1;
    if (span.data() < begin || span.data() + span.size() > begin + registered_.size()) return -1;
    const auto first = static_cast<std::size_t>(span.data() - begin);
    const std::size_t buffer = first / kMaxBufferBytes;
    if ((first + span.size() - 1) / kMaxBufferBytes != buffer) return -1;
    return static_cast<int>(buffer);
  }

  io_uring ring_{};
  bool is_open_ = false;
  unsigned n_in_flight_ = 0;
  MutableByteSpan registered_;
};

}  // namespace

int open_uring(unsigned depth, std::unique_ptr<ReadRing>& ring) {
  auto opened = std::make_unique<Uring>();
  const int result = opened->open(depth);
  if (result == 0) ring = std::move(opened);
  return result;
}

}  // namespace qsf

#else

namespace qsf {

int open_uring(unsigned, std::unique_ptr<ReadRing>&) {
  return -ENOSYS;
}

}  // namespace qsf

#endif
