// SPDX-License-Identifier: MIT
//
// The ReadRing of Windows: overlapped reads whose ends arrive at a completion port.
//
// The port stands behind an interface, since Wine ends every read at once: only a port of a test
// has reads that are pending, short or cancelled.

#ifndef QSF_IO_OVERLAPPED_RING_H_
#define QSF_IO_OVERLAPPED_RING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/read_ring.h"

namespace qsf {

struct PortPacket {
  std::size_t slot = 0;
  std::int64_t result = 0;  // as RingDone's
};

// Functions return 0 or a negative errno.
// Threads  one at a time
class ReadPort {
 public:
  virtual ~ReadPort() = default;
  // Starts a read. After 0 a packet will come, at once or later, and until then the system may
  // write to `to`; after a failure none will. Requires  no read of that slot is in flight
  virtual int start(std::size_t slot, int handle, MutableByteSpan to, std::uint64_t offset) = 0;
  // Waits for a packet.
  virtual int next(PortPacket& packet) = 0;
  // Asks the system to end the reads in flight; their packets come all the same.
  virtual void cancel() = 0;
};

class OverlappedRing final : public ReadRing {
 public:
  // Requires  the port has `depth` slots
  OverlappedRing(std::unique_ptr<ReadPort> port, unsigned depth);
  ~OverlappedRing() override;

  // Windows has no registered memory for reads of files; the pages of each read are looked up.
  int register_memory(MutableByteSpan memory) override;
  int submit(int handle, MutableByteSpan to, std::uint64_t offset, std::uint64_t tag) override;
  int wait(RingDone& done) override;

 private:
  struct Slot {
    bool in_flight = false;
    std::uint64_t tag = 0;
  };

  int take(RingDone& done);

  std::unique_ptr<ReadPort> port_;
  std::vector<Slot> slots_;
  unsigned n_in_flight_ = 0;
  std::vector<RingDone> ended_;  // reads that met the end of the file when they were started
};

}  // namespace qsf

#endif  // QSF_IO_OVERLAPPED_RING_H_
