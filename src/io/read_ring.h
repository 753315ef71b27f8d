// SPDX-License-Identifier: MIT
//
// ReadRing: many reads in flight by one thread, by io_uring of Linux, overlapped reads of Windows
// or the reading Worker of a page. Behind FileOps, so that tests can make its reads fail, return
// short or be forbidden.

#ifndef QSF_IO_READ_RING_H_
#define QSF_IO_READ_RING_H_

#include <cstdint>
#include <memory>

#include "base/bytes.h"

namespace qsf {

struct RingDone {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes read, 0 at the end of the file, or a negative errno
};

// Functions return 0 or a negative errno and do not retry.
// Threads  one at a time
class ReadRing {
 public:
  ReadRing() = default;
  ReadRing(const ReadRing&) = delete;
  ReadRing& operator=(const ReadRing&) = delete;
  // Waits for the reads in flight, so that nothing is written to their memory afterwards.
  virtual ~ReadRing() = default;

  // Registers memory: reads into it need no page lookup. The memory is pinned until the ring is
  // destroyed. Succeeds at most once.
  virtual int register_memory(MutableByteSpan memory) = 0;

  // Starts a read; on failure nothing was started. Requires  less in flight than the ring's depth
  virtual int submit(int handle, MutableByteSpan to, std::uint64_t offset, std::uint64_t tag) = 0;

  // Waits for a read to end. After a failure, reads in flight may continue until the ring is
  // destroyed. Requires  a read in flight
  virtual int wait(RingDone& done) = 0;
};

// Makes a ring of the Linux kernel for `depth` reads in flight. Returns 0 or a negative errno:
// ENOSYS where the kernel or this build has no io_uring, EPERM where it is forbidden. Requires
// depth > 0
int open_uring(unsigned depth, std::unique_ptr<ReadRing>& ring);

// Makes a ring of overlapped reads of Windows, in the same way.
int open_overlapped(unsigned depth, std::unique_ptr<ReadRing>& ring);

// Makes a ring of reads by the reading Worker of a page, in the same way; ENOSYS without threads.
int open_page_ring(unsigned depth, std::unique_ptr<ReadRing>& ring);

}  // namespace qsf

#endif  // QSF_IO_READ_RING_H_
