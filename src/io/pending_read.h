// SPDX-License-Identifier: MIT
//
// PendingRead: the state of one read, from the request to its outcome.
//
// It continues short reads, repeats interrupted ones and makes the error messages, for every read
// path. A path asks for the next range to read and reports the system's result.

#ifndef QSF_IO_PENDING_READ_H_
#define QSF_IO_PENDING_READ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "io/async_reader.h"
#include "io/file_ops.h"

namespace qsf {

// The file behind a device's queues.
struct ReadSource {
  FileOps* ops = nullptr;
  std::string name;              // for messages
  std::uint64_t size_bytes = 0;  // when it was opened
  int handle = -1;               // of the reads
  int cached_handle = -1;        // of the same file through the page cache; may be `handle`
  std::uint32_t alignment = 1;   // of direct reads; 1: reads are not direct
  bool drop_cached = false;      // reads leave nothing in the page cache

  bool direct() const noexcept { return alignment > 1; }
};

// The note of a queue that finished some direct reads through the page cache.
inline constexpr std::string_view kReadThroughCache =
    "direct reads: the file system refused some, which went through the page cache instead";

// Fails  kCorrupt when `bytes` at `offset` pass the end of the file
Status check_range(const ReadSource& source, std::uint64_t offset, std::uint64_t bytes);

class PendingRead {
 public:
  PendingRead() = default;
  // Requires  `source` outlives the read
  PendingRead(const ReadSource& source, const ReadRequest& request);

  // Whether the outcome is known. It may be right after construction: a range past the end of the
  // file needs no read.
  bool is_done() const noexcept { return is_done_; }
  // Whether a direct read was finished through the page cache.
  bool used_cache() const noexcept { return used_cache_; }

  // The next range to read. Requires  not is_done()
  std::uint64_t offset() const noexcept { return request_.offset + done_bytes_; }
  MutableByteSpan to() const noexcept;

  // Records the result of that read: bytes read, 0 at the end of the file, or a negative errno.
  void take(std::int64_t result);

  // Reads by blocking calls until the outcome is known.
  void read_blocking();

  // Requires  is_done(); called once
  ReadDone outcome();

 private:
  void advance(std::uint64_t bytes);
  void stall(int error);
  void finish_through_cache();
  void fail(Status status);

  const ReadSource* source_ = nullptr;
  ReadRequest request_;
  std::uint64_t done_bytes_ = 0;
  unsigned n_stalls_ = 0;
  bool is_done_ = false;
  bool used_cache_ = false;
  Status status_;
};

}  // namespace qsf

#endif  // QSF_IO_PENDING_READ_H_
