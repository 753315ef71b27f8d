// SPDX-License-Identifier: MIT
//
// File calls for tests: a disk that fails on demand, and files in memory.
//
// Tests and fuzzers pass them to File::open and AtomicFile::create.

#ifndef QSF_IO_TESTING_FAULTY_FILE_H_
#define QSF_IO_TESTING_FAULTY_FILE_H_

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "io/file_ops.h"

namespace qsf {

// The planned faults; none by default. The fields may be changed between calls.
struct FaultPlan {
  std::size_t max_transfer_bytes = 0;  // short reads and writes: at most this many bytes a call
  std::uint32_t interrupt_every = 0;   // every n-th read, write or sync fails with EINTR first
  std::uint64_t read_error_at = UINT64_MAX;  // a read that covers this offset fails with EIO
  std::uint64_t truncate_at = UINT64_MAX;    // reads see the end of the file here, after opening
  int direct_read_errno = 0;                 // reads of handles that were opened directly
  std::uint64_t disk_bytes = UINT64_MAX;     // writes past this many bytes in all fail with ENOSPC
  int open_errno = 0;
  int reopen_errno = 0;                         // opening the same file once more, either way
  int direct_open_errno = 0;                    // the same for direct reads alone
  std::uint32_t direct_alignment = UINT32_MAX;  // what the file system says; UINT32_MAX: its own
  bool in_memory = false;                       // as if on tmpfs
  double cached_share = -1;                     // of a file in the page cache; below 0: its own
  int map_errno = 0;
  int ring_errno = 0;                     // no io_uring: ENOSYS, EPERM
  unsigned max_rings = UINT_MAX;          // more than these fail with EMFILE
  int ring_submit_errno = 0;              // a ring that takes no read
  int ring_wait_errno = 0;                // a ring that breaks
  std::size_t lockable_bytes = SIZE_MAX;  // registering more memory than this fails with ENOMEM
  std::uint32_t read_delay_us = 0;        // a slow disk: every read takes this much longer
  int create_errno = 0;
  int create_unnamed_errno = 0;  // EOPNOTSUPP: a file system that has no files without names
  int allocate_errno = 0;
  std::uint64_t write_error_at = UINT64_MAX;  // a write that covers this offset fails with EIO
  int sync_errno = 0;
  int close_errno = 0;
  int give_name_errno = 0;
  int rename_errno = 0;
  int sync_directory_errno = 0;
};

// Passes every call on to `base` unless the plan says otherwise.
// Threads  reads and writes from any; the plan is changed while nobody calls
class FaultyFileOps final : public FileOps {
 public:
  explicit FaultyFileOps(FaultPlan what = {}, FileOps& base = system_file_ops()) noexcept
      : plan(what), base_(base) {}

  FaultPlan plan;
  std::uint64_t calls() const noexcept { return calls_.load(); }
  // How often the page cache was told to forget something of a file.
  std::uint64_t drops() const noexcept { return drops_.load(); }
  // The bytes that the page cache was told to read.
  std::uint64_t announced_bytes() const noexcept { return announced_bytes_.load(); }
  // Reads by handles for which the system may read ahead into the page cache.
  std::uint64_t reads_with_readahead() const noexcept { return reads_with_readahead_.load(); }

  int open_read(const std::string& path) override;
  int create_new(const std::string& path) override;
  int create_unnamed(const std::string& path) override;
  int give_name(int handle, const std::string& path) override;
  int create_scratch(const std::string& path) override;
  PathKind path_kind(const std::string& path) override;
  int check_regular(int handle) override;
  std::int64_t file_bytes(int handle) override;
  int reopen(int handle, bool direct) override;
  int reopen_for_writing(int handle, bool direct) override;
  FileStorage storage(int handle) override;
  int advise(int handle, std::uint64_t offset, std::uint64_t bytes, FileAdvice advice) override;
  double cached_share(int handle, std::uint64_t bytes) override;
  int map(int handle, std::uint64_t bytes, ByteSpan& mapping) override;
  void unmap(ByteSpan mapping) override;
  int advise_mapping(ByteSpan part, FileAdvice advice) override;
  int open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) override;
  std::int64_t read_at(int handle, MutableByteSpan to, std::uint64_t offset) override;
  std::int64_t write_at(int handle, ByteSpan from, std::uint64_t offset) override;
  int allocate(int handle, std::uint64_t bytes) override;
  int resize(int handle, std::uint64_t bytes) override;
  int sync(int handle) override;
  int close(int handle) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  int sync_directory_of(const std::string& path) override;

 private:
  class Ring;

  // What the plan makes of a read: `result` instead of it, or `shown` bytes of its range at most.
  struct ReadFault {
    std::int64_t result = 0;
    bool is_answer = false;
    std::size_t shown = 0;
  };

  bool interrupted() noexcept;
  bool is_direct(int handle);
  int note_reopened(int handle, bool direct);
  ReadFault fault_of_read(int handle, std::size_t n_bytes, std::uint64_t offset);

  FileOps& base_;
  std::mutex mutex_;
  std::set<int> direct_handles_;  // held by mutex_
  std::set<int> random_handles_;  // the same; advised by FileAdvice::kRandom
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> drops_{0};
  std::atomic<std::uint64_t> announced_bytes_{0};
  std::atomic<std::uint64_t> reads_with_readahead_{0};
  std::atomic<std::uint64_t> written_bytes_{0};
  std::atomic<unsigned> n_rings_{0};  // made so far
};

// One read-only file whose content is `bytes`, under any name; writing fails with EROFS.
// Requires  the bytes outlive it
// Threads   any
class MemoryFileOps final : public FileOps {
 public:
  explicit MemoryFileOps(ByteSpan bytes) noexcept : bytes_(bytes) {}

  int open_read(const std::string& path) override;
  int create_new(const std::string& path) override;
  int create_unnamed(const std::string& path) override;
  int give_name(int handle, const std::string& path) override;
  int create_scratch(const std::string& path) override;
  PathKind path_kind(const std::string& path) override;
  int check_regular(int handle) override;
  std::int64_t file_bytes(int handle) override;
  int reopen(int handle, bool direct) override;
  int reopen_for_writing(int handle, bool direct) override;
  FileStorage storage(int handle) override;
  int advise(int handle, std::uint64_t offset, std::uint64_t bytes, FileAdvice advice) override;
  int map(int handle, std::uint64_t bytes, ByteSpan& mapping) override;
  void unmap(ByteSpan mapping) override;
  int advise_mapping(ByteSpan part, FileAdvice advice) override;
  int open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) override;
  std::int64_t read_at(int handle, MutableByteSpan to, std::uint64_t offset) override;
  std::int64_t write_at(int handle, ByteSpan from, std::uint64_t offset) override;
  int allocate(int handle, std::uint64_t bytes) override;
  int resize(int handle, std::uint64_t bytes) override;
  int sync(int handle) override;
  int close(int handle) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  int sync_directory_of(const std::string& path) override;

 private:
  ByteSpan bytes_;
};

}  // namespace qsf

#endif  // QSF_IO_TESTING_FAULTY_FILE_H_
