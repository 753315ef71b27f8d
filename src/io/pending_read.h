// SPDX-License-Identifier: MIT
//
// PendingRead: one read on its way, from the request to its outcome.
//
// What every path has in common: continuing short reads, repeating interrupted ones, and naming
// what went wrong. A path asks where to read next and reports what the system answered.

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
  int handle = -1;               // what is read
  int cached_handle = -1;        // the same file through the page cache; may be `handle`
  std::uint32_t alignment = 1;   // of a direct handle; 1: it is not direct
  bool drop_cached = false;      // reads leave nothing in the page cache

  bool direct() const noexcept { return alignment > 1; }
};

// The note of a queue some of whose direct reads had to be finished otherwise.
inline constexpr std::string_view kReadThroughCache =
    "direct reads: the file system refused some, which went through the page cache instead";

// Fails  kCorrupt when `bytes` at `offset` pass the end of the file as it was opened
Status check_range(const ReadSource& source, std::uint64_t offset, std::uint64_t bytes);

class PendingRead {
 public:
  PendingRead() = default;
  // Requires  `source` outlives the read
  PendingRead(const ReadSource& source, const ReadRequest& request);

  // Whether the outcome is known, also right after construction: a range past the end of the file
  // needs no read.
  bool is_done() const noexcept { return is_done_; }
  // Whether a direct read had to be finished through the page cache.
  bool used_cache() const noexcept { return used_cache_; }

  // What to read next. Requires  not is_done()
  std::uint64_t offset() const noexcept { return request_.offset + done_bytes_; }
  MutableByteSpan to() const noexcept;

  // Takes the system's answer to that: bytes read, 0 for the end of the file, or a negative errno.
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
