// SPDX-License-Identifier: MIT
//
// AsyncReader: a queue of reads into memory of the caller's.
//
// The pager keeps as many reads in flight as the disk likes and never calls the system: what stands
// behind a queue (io_uring or a blocking read) is ReadDevice's business.

#ifndef QSF_IO_ASYNC_READER_H_
#define QSF_IO_ASYNC_READER_H_

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace qsf {

// Where every direct read begins and ends, in the file and in memory.
inline constexpr std::uint32_t kDirectAlign = 4096;

struct ReadRequest {
  std::uint64_t offset = 0;
  MutableByteSpan to;
  std::uint64_t tag = 0;  // handed back with the outcome
};

struct ReadDone {
  std::uint64_t tag = 0;
  Status status;  // names file, offset, bytes and the system's reason
};

// Short and interrupted reads are continued: a read is whole or it has failed, and what it left in
// memory when it failed means nothing.
// Threads  one, which need not be the one that made the queue
class AsyncReader {
 public:
  AsyncReader() = default;
  AsyncReader(const AsyncReader&) = delete;
  AsyncReader& operator=(const AsyncReader&) = delete;
  // Waits for what is in flight.
  virtual ~AsyncReader() = default;

  // Returns how many reads this queue keeps in flight at once; at least 1.
  virtual unsigned depth() const noexcept = 0;
  virtual unsigned in_flight() const noexcept = 0;

  // Begins a read; its outcome comes out of wait().
  // Shapes    of a direct device offset, address and length are multiples of kDirectAlign
  // Requires  in_flight() < depth(); the memory is left alone until wait() returned the tag
  virtual void start(const ReadRequest& request) = 0;

  // Waits until a read is over and returns it; the order is that of the disk.
  // Requires  in_flight() > 0
  // Fails     the read's status: kCorrupt when the range passes the end of the file, also when the
  //           file shrank since it was opened; kIo when reading fails
  virtual ReadDone wait() = 0;

  // Returns what this queue does otherwise than its device says, and why; empty when nothing.
  virtual std::string_view note() const noexcept = 0;
};

}  // namespace qsf

#endif  // QSF_IO_ASYNC_READER_H_
