// SPDX-License-Identifier: MIT
//
// AsyncReader: a queue of reads into the caller's memory.
//
// The pager keeps as many reads in flight as suits the disk. It makes no system calls: ReadDevice
// chooses the implementation of a queue (io_uring or blocking reads).

#ifndef QSF_IO_ASYNC_READER_H_
#define QSF_IO_ASYNC_READER_H_

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace qsf {

// The alignment of every direct read: offset, length and address.
inline constexpr std::uint32_t kDirectAlign = 4096;

struct ReadRequest {
  std::uint64_t offset = 0;
  MutableByteSpan to;
  std::uint64_t tag = 0;  // returned with the outcome
};

struct ReadDone {
  std::uint64_t tag = 0;
  Status status;  // names file, offset, bytes and the system's reason
};

// Short and interrupted reads are continued: a read is complete or it has failed. After a failure
// the memory is undefined. Threads  one, not necessarily the one that made the queue
class AsyncReader {
 public:
  AsyncReader() = default;
  AsyncReader(const AsyncReader&) = delete;
  AsyncReader& operator=(const AsyncReader&) = delete;
  // Waits for the reads in flight.
  virtual ~AsyncReader() = default;

  // Returns how many reads this queue keeps in flight at once; at least 1.
  virtual unsigned depth() const noexcept = 0;
  virtual unsigned in_flight() const noexcept = 0;

  // Starts a read; wait() returns its outcome.
  // Shapes    of a direct device offset, address and length are multiples of kDirectAlign
  // Requires  in_flight() < depth(); the caller does not touch the memory until wait() returns the
  // tag
  virtual void start(const ReadRequest& request) = 0;

  // Waits until a read ends and returns it; reads end in any order.
  // Requires  in_flight() > 0
  // Fails     the read's status: kCorrupt when the range passes the end of the file, also when the
  //           file shrank since it was opened; kIo when reading fails
  virtual ReadDone wait() = 0;

  // Returns how and why this queue differs from its device's description; empty when it does not.
  virtual std::string_view note() const noexcept = 0;
};

}  // namespace qsf

#endif  // QSF_IO_ASYNC_READER_H_
