// SPDX-License-Identifier: MIT
//
// The queues of reads behind ReadDevice: blocking reads, io_uring, and a queue that splits requests
// into blocks.

#ifndef QSF_IO_QUEUED_READERS_H_
#define QSF_IO_QUEUED_READERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/async_reader.h"
#include "io/pending_read.h"
#include "io/read_ring.h"

namespace qsf {

// The queue of a thread that reads with blocking calls, one at a time. Depth comes from several
// such threads.
class BlockingReader final : public AsyncReader {
 public:
  // Requires  `source` outlives the reader
  explicit BlockingReader(const ReadSource& source) noexcept : source_(&source) {}

  unsigned depth() const noexcept override { return 1; }
  unsigned in_flight() const noexcept override { return is_waiting_ ? 1 : 0; }
  void start(const ReadRequest& request) override;
  ReadDone wait() override;
  std::string_view note() const noexcept override { return note_; }

 private:
  const ReadSource* source_;
  ReadRequest request_;
  bool is_waiting_ = false;
  std::string_view note_;
};

// A queue of reads on io_uring: as many in flight as the device allows, by one thread.
//
// After a failure of the ring, the ring is closed, which ends the kernel's reads; the reads in
// flight and all later ones are done with blocking calls, one at a time.
class RingReader final : public AsyncReader {
 public:
  // Registers `memory` with the ring, or as much of it as the system allows; note() says so then.
  // Requires  `source` outlives the reader; the ring takes `depth` reads
  RingReader(const ReadSource& source, std::unique_ptr<ReadRing> ring, unsigned depth,
             MutableByteSpan memory);
  ~RingReader() override;

  unsigned depth() const noexcept override { return static_cast<unsigned>(slots_.size()); }
  unsigned in_flight() const noexcept override { return n_in_flight_; }
  void start(const ReadRequest& request) override;
  ReadDone wait() override;
  std::string_view note() const noexcept override { return note_; }

 private:
  enum class Slot { kFree, kStarted, kDone };
  struct Entry {
    Slot state = Slot::kFree;
    PendingRead read;
  };

  void register_memory(MutableByteSpan memory);
  void go_on(std::size_t slot);
  void give_up_ring(int error);
  void add_note(std::string_view text);
  ReadDone hand_out(std::size_t slot);

  const ReadSource* source_;
  std::unique_ptr<ReadRing> ring_;  // null when it was given up
  std::vector<Entry> slots_;
  unsigned n_in_flight_ = 0;
  bool used_cache_ = false;
  std::string note_;
};

// A queue that reads in blocks of the size that suits the disk, whatever the size of a request.
// Keeps as many blocks in flight as the queue below allows, oldest request first.
class SplitReader final : public AsyncReader {
 public:
  // Requires  block_bytes is a multiple of kDirectAlign, not 0
  SplitReader(std::unique_ptr<AsyncReader> blocks, std::uint32_t block_bytes);
  ~SplitReader() override;

  unsigned depth() const noexcept override { return blocks_->depth(); }
  unsigned in_flight() const noexcept override { return n_in_flight_; }
  void start(const ReadRequest& request) override;
  ReadDone wait() override;
  std::string_view note() const noexcept override { return blocks_->note(); }

 private:
  struct Entry {
    bool in_use = false;
    ReadRequest request;
    std::uint64_t number = 0;       // requests are begun in this order
    std::size_t started_bytes = 0;  // all of them once a block failed
    unsigned blocks_in_flight = 0;
    Status status;  // of the first block that failed
    bool is_over() const noexcept {
      return blocks_in_flight == 0 && started_bytes == request.to.size();
    }
  };

  Entry* next_to_begin() noexcept;
  void fill();

  std::unique_ptr<AsyncReader> blocks_;
  std::uint32_t block_bytes_;
  std::vector<Entry> entries_;  // [depth()]
  unsigned n_in_flight_ = 0;
  std::uint64_t n_started_ = 0;
};

}  // namespace qsf

#endif  // QSF_IO_QUEUED_READERS_H_
