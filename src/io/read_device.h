// SPDX-License-Identifier: MIT
//
// ReadDevice: how the bytes of one open file are read.
//
// Weights are read again with every pass, so the page cache would only take the memory that the
// weights were promised: a read goes past it (O_DIRECT) where the file system lets it, and what
// went through it for lack of that is dropped at once. docs/decisions/013-read-paths.md tells
// which path is taken when, and what each costs.

#ifndef QSF_IO_READ_DEVICE_H_
#define QSF_IO_READ_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "io/async_reader.h"
#include "io/file.h"

namespace qsf {

struct ReadSource;

enum class ReadPath : std::uint8_t { kUring, kPread, kMmap };

// Returns "io_uring", "pread" or "mmap".
std::string_view read_path_name(ReadPath path) noexcept;

inline constexpr unsigned kMaxReadDepth = 256;

struct ReadDeviceOptions {
  std::optional<ReadPath> path;  // none: the best that works here, io_uring, else pread
  // Past the page cache; where the file system refuses, through it, and dropped after each read.
  // false: through it, as keep_cached says.
  bool direct = true;
  bool keep_cached = true;  // of reads that were asked to go through the page cache: left in it
  unsigned depth = 0;       // reads in flight; 0: kDefaultReadDepth
  // A longer read is made of several of io_uring, of this size; a multiple of kDirectAlign. 0: any
  // read is one. Blocking reads go whole: each has a thread.
  std::uint32_t block_bytes = 0;
};

// Deep enough for an NVMe disk in blocks of 1 MiB (decision 013); a probe knows better.
inline constexpr unsigned kDefaultReadDepth = 8;

class ReadDevice {
 public:
  // Opens the file a second time: the same file, whatever its name means by now. What was asked for
  // and does not work here is replaced by what does, and fall_back() says so.
  // Requires  `file` and its FileOps outlive the device; depth <= kMaxReadDepth
  // Fails     kIo when not even a plain read works
  static Result<ReadDevice> open(const File& file, const ReadDeviceOptions& options = {});

  ReadDevice(ReadDevice&& other) noexcept;
  ReadDevice& operator=(ReadDevice&& other) noexcept;
  ~ReadDevice();

  ReadPath path() const noexcept;
  bool is_direct() const noexcept;
  // Returns whether the file lies in memory (tmpfs), so that its pages are part of what the machine
  // has to hold; such a file is never read directly.
  bool is_in_memory() const noexcept;
  // Returns a number of the disk, for what is remembered of it; 0 when there is none.
  std::uint64_t disk_id() const noexcept;
  // Reads that should be in flight over all queues.
  unsigned depth() const noexcept;
  // What offset, address and length of a read have to be multiples of: a divisor of kDirectAlign, 1
  // when reads are not direct.
  std::uint32_t alignment() const noexcept;
  // Returns why the device is not what was asked for, or not the best there is; empty when it is.
  std::string_view fall_back() const noexcept;
  // Returns how many threads should read, each with a queue of its own: 1 of io_uring, depth() of
  // blocking reads, 2 of a mapped file.
  unsigned n_queues() const noexcept;

  // Makes a queue. io_uring registers `registered`, the memory that most reads go to, which pins it
  // until the queue is gone: it should hold what is read into again and again, not what may be
  // given back to the system. Where that is refused the queue works without, and its note() says
  // why.
  // Requires  the device outlives the queue
  // Fails     kIo when the system refuses a queue (a limit of handles or of memory)
  // Threads   any number at once
  Result<std::unique_ptr<AsyncReader>> make_queue(MutableByteSpan registered) const;

  // Makes a queue of one read at a time, by a blocking call of the thread that waits for it. It
  // takes no ring, which would be memory of the system's.
  // Requires  the device outlives the queue
  // Threads   any number at once
  std::unique_ptr<AsyncReader> make_blocking_queue() const;

  // Returns the whole file when the path is kMmap, else nothing. Touching bytes of a file that
  // shrank, or that the disk cannot read, kills the process (SIGBUS); queues of this device report
  // either as an error.
  ByteSpan mapping() const noexcept;

  // Fails    kCorrupt when the file is shorter than it was when it was opened
  // Threads  any
  Status check_size() const;

  // Forgets the cached pages of a range that is not needed soon; does nothing where reads are
  // direct or are left in the cache. Threads  any
  void drop(std::uint64_t offset, std::uint64_t bytes) const noexcept;

  // Says that a range is needed soon, which starts reading a mapped file; else does nothing.
  // Threads  any
  void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept;

 private:
  struct State;
  explicit ReadDevice(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace qsf

#endif  // QSF_IO_READ_DEVICE_H_
