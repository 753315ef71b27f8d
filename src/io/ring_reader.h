// SPDX-License-Identifier: MIT
//
// RingReader: a queue of reads on io_uring, as many in flight as the device likes, by one thread.
//
// A ring that breaks is given up, which ends what the kernel does with it; what was in it and all
// that follows is read by blocking calls, one at a time.

#ifndef QSF_IO_RING_READER_H_
#define QSF_IO_RING_READER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/async_reader.h"
#include "io/pending_read.h"
#include "io/read_ring.h"

namespace qsf {

class RingReader final : public AsyncReader {
 public:
  // Registers `memory` with the ring, or as much of it as the system lets, which note() then tells.
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

}  // namespace qsf

#endif  // QSF_IO_RING_READER_H_
