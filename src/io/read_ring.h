// SPDX-License-Identifier: MIT
//
// ReadRing: io_uring as far as reading needs it, behind the seam of FileOps, so that a test can
// make its reads fail, come back short or never be allowed.

#ifndef QSF_IO_READ_RING_H_
#define QSF_IO_READ_RING_H_

#include <cstdint>

#include "base/bytes.h"

namespace qsf {

struct RingDone {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes read, 0 at the end of the file, or a negative errno
};

// Functions return 0 or a negative errno; none retries.
// Threads  one at a time
class ReadRing {
 public:
  ReadRing() = default;
  ReadRing(const ReadRing&) = delete;
  ReadRing& operator=(const ReadRing&) = delete;
  // Guarantees  nothing is written to the memory of its reads any more: waits for those in flight
  virtual ~ReadRing() = default;

  // Lets reads into this memory skip looking up its pages each time, and pins it until the ring is
  // gone. Succeeds at most once.
  virtual int register_memory(MutableByteSpan memory) = 0;

  // Starts a read. Where it fails, nothing was started. Requires  less in flight than the ring's
  // depth
  virtual int submit(int handle, MutableByteSpan to, std::uint64_t offset, std::uint64_t tag) = 0;

  // Waits for a read to end. Where it fails, reads in flight may go on until the ring is gone.
  // Requires  something in flight
  virtual int wait(RingDone& done) = 0;
};

}  // namespace qsf

#endif  // QSF_IO_READ_RING_H_
