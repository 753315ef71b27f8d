// SPDX-License-Identifier: MIT
//
// ReadDevice: how the bytes of one open file are read.
//
// Weights are read again in every pass, so the page cache would only take memory from the budget.
// Reads bypass it (O_DIRECT) where the file system allows; pages of other reads are dropped at
// once. docs/decisions/013-read-paths.md has the choice of the path and the cost of each.

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

// Returns "io_uring" (on Windows "overlapped"), "pread" or "mmap".
std::string_view read_path_name(ReadPath path) noexcept;

inline constexpr unsigned kMaxReadDepth = 256;

struct ReadDeviceOptions {
  std::optional<ReadPath> path;  // none: io_uring where it works, else pread
  // Bypass the page cache; where the file system refuses, use it and drop the pages after each
  // read. false: use the page cache, and keep_cached applies.
  bool direct = true;
  bool keep_cached = true;  // leave pages in the page cache when direct is false
  // With direct reads fill_cache() works; where they are refused, pages are kept.
  bool fill_cache = false;
  unsigned depth = 0;  // reads in flight; 0: kDefaultReadDepth
  // With io_uring a longer read is split into reads of this size, a multiple of kDirectAlign; 0: no
  // splitting. Blocking reads are not split: each has a thread.
  std::uint32_t block_bytes = 0;
};

// Enough for an NVMe disk with blocks of 1 MiB (decision 013); a disk probe gives a better value.
inline constexpr unsigned kDefaultReadDepth = 8;

class ReadDevice {
 public:
  // Opens the file a second time, even when it was renamed or removed. Options that do not work
  // here are replaced, and fall_back() says so. Requires  `file` and its FileOps outlive the
  // device; depth <= kMaxReadDepth Fails     kIo when no way of reading works
  static Result<ReadDevice> open(const File& file, const ReadDeviceOptions& options = {});

  ReadDevice(ReadDevice&& other) noexcept;
  ReadDevice& operator=(ReadDevice&& other) noexcept;
  ~ReadDevice();

  ReadPath path() const noexcept;
  bool is_direct() const noexcept;
  // Returns whether the file lies in memory (tmpfs). Its pages count as used memory, and direct
  // reads are not used.
  bool is_in_memory() const noexcept;
  // Returns a number that identifies the disk, for saved measurements; 0 when unknown.
  std::uint64_t disk_id() const noexcept;
  // Reads that should be in flight over all queues.
  unsigned depth() const noexcept;
  // The alignment of offset, address and length of a read: a divisor of kDirectAlign, 1 when reads
  // are not direct.
  std::uint32_t alignment() const noexcept;
  // Returns why the device differs from the options or from the best path; empty when it does not.
  std::string_view fall_back() const noexcept;
  // Returns the number of threads that should read, each with its own queue: 1 with io_uring,
  // depth() with blocking reads, 2 with a mapped file.
  unsigned n_queues() const noexcept;

  // Makes a queue. io_uring registers `registered`, the memory of most reads, and pins it until the
  // queue is destroyed: it should be memory that is read into repeatedly and not returned to the
  // system. Where registration is refused the queue works without it, and its note() says why.
  // Requires  the device outlives the queue
  // Fails     kIo when the system refuses a queue (a limit of handles or of memory)
  // Threads   any number at once
  Result<std::unique_ptr<AsyncReader>> make_queue(MutableByteSpan registered) const;

  // Makes a queue of one read at a time: a blocking call of the thread that waits for it. It needs
  // no ring and thus no memory of the kernel. Requires  the device outlives the queue Threads   any
  // number at once
  std::unique_ptr<AsyncReader> make_blocking_queue() const;

  // Returns the whole file when the path is kMmap, else an empty span. An access to bytes of a file
  // that shrank, or that the disk cannot read, kills the process (SIGBUS); queues of this device
  // report both as errors.
  ByteSpan mapping() const noexcept;

  // Fails    kCorrupt when the file is shorter than it was when it was opened
  // Threads  any
  Status check_size() const;

  // Drops the cached pages of a range that is not needed soon; does nothing where reads are direct
  // or cached pages are kept. Threads  any
  void drop(std::uint64_t offset, std::uint64_t bytes) const noexcept;

  // Has the system read the next megabytes of the file into the page cache, for whoever opens it
  // next. Returns whether there are more; false without the option or direct reads. Threads  any
  bool fill_cache() const noexcept;

  // Starts reading a range of a mapped file that is needed soon; does nothing on other paths.
  // Threads  any
  void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept;

 private:
  struct State;
  explicit ReadDevice(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace qsf

#endif  // QSF_IO_READ_DEVICE_H_
