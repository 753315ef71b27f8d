// SPDX-License-Identifier: MIT
//
// FileOps: the operating system's file calls, as an interface.
//
// File, AtomicFile and ReadDevice make every call through it, so tests can make any call fail,
// return short or be interrupted (io/testing/faulty_file.h).

#ifndef QSF_IO_FILE_OPS_H_
#define QSF_IO_FILE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "io/read_ring.h"

namespace qsf {

// The kind of object at a path.
enum class PathKind { kMissing, kRegular, kDirectory, kOther };

// Properties of the storage of an open file.
struct FileStorage {
  std::uint64_t disk_id = 0;              // identifies the disk; 0: unknown
  std::uint32_t direct_alignment = 4096;  // of direct reads; 0: not supported
  bool is_in_memory = false;              // tmpfs: its pages are memory, not a cache
  bool is_remote = false;  // reads come from a server: none are made only to be timed
};

// Advice to the page cache about a range.
enum class FileAdvice { kRandom, kWillNeed, kDontNeed };

// One call moves at most this much: below the 2 GiB limit of one Linux read or write, and a
// multiple of every alignment.
inline constexpr std::size_t kMaxTransferBytes = std::size_t{1} << 30;

// Direct transfers that return less than one unit of alignment are repeated this often: a disk does
// that only at the end of the file, a network file system perhaps once.
inline constexpr unsigned kMaxStalls = 4;

// Every function returns a negative errno on failure. None retries or logs.
// Threads  any; one handle may be read or written by several threads at once
class FileOps {
 public:
  virtual ~FileOps() = default;

  // Opens an existing file for reading, without waiting (for the writer of a FIFO); returns a
  // handle
  // >= 0.
  virtual int open_read(const std::string& path) = 0;
  // Creates a file that must not exist yet, for writing; returns a handle >= 0.
  virtual int create_new(const std::string& path) = 0;
  // Creates a file without a name in the directory of `path`, for writing. It disappears when it is
  // closed or the process ends, unless give_name() was called. Returns a handle >= 0; -EOPNOTSUPP
  // where the system cannot create such a file or name it later.
  virtual int create_unnamed(const std::string& path) = 0;
  // Gives a file of create_unnamed() a name that must not exist yet.
  virtual int give_name(int handle, const std::string& path) = 0;
  // Creates a file that must not exist yet, for reading and writing, for its owner alone; returns a
  // handle >= 0.
  virtual int create_scratch(const std::string& path) = 0;
  virtual PathKind path_kind(const std::string& path) = 0;
  // Returns 0, or the errno of a handle that is not a readable regular file (EISDIR, EINVAL).
  virtual int check_regular(int handle) = 0;
  virtual std::int64_t file_bytes(int handle) = 0;
  // Opens the file of `handle` again for reading, even when it was renamed or removed; with
  // `direct` past the page cache. Returns a new handle >= 0 with its own settings.
  virtual int reopen(int handle, bool direct) = 0;
  // The same for reading and writing. Requires  a handle of create_scratch
  virtual int reopen_for_writing(int handle, bool direct) = 0;
  virtual FileStorage storage(int handle) = 0;
  // A hint; a range of 0 bytes reaches to the end of the file.
  virtual int advise(int handle, std::uint64_t offset, std::uint64_t bytes, FileAdvice advice) = 0;
  // Returns the share of the first `bytes` of a file that the page cache holds, by samples; 1 where
  // the system does not tell.
  virtual double cached_share(int /*handle*/, std::uint64_t /*bytes*/) { return 1.0; }
  // Maps the first `bytes` of a file for reading, until unmap().
  virtual int map(int handle, std::uint64_t bytes, ByteSpan& mapping) = 0;
  virtual void unmap(ByteSpan mapping) = 0;
  // A hint about a part of a mapping.
  virtual int advise_mapping(ByteSpan part, FileAdvice advice) = 0;
  // The name of its rings, for reports.
  virtual std::string_view ring_name() const noexcept { return "io_uring"; }
  // Makes a ring for `depth` reads in flight; -ENOSYS where there is none, -EPERM where it is
  // forbidden.
  virtual int open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) = 0;
  // Returns the bytes read, 0 at the end of the file; may return fewer than asked for.
  virtual std::int64_t read_at(int handle, MutableByteSpan to, std::uint64_t offset) = 0;
  // Returns the bytes written, at least 1; may return fewer than asked for.
  virtual std::int64_t write_at(int handle, ByteSpan from, std::uint64_t offset) = 0;
  // Makes the file `bytes` long and takes its space on the disk; -EOPNOTSUPP where the file system
  // cannot.
  virtual int allocate(int handle, std::uint64_t bytes) = 0;
  virtual int resize(int handle, std::uint64_t bytes) = 0;
  virtual int sync(int handle) = 0;
  virtual int close(int handle) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int remove(const std::string& path) = 0;
  // Makes a rename inside the directory that holds `path` durable.
  virtual int sync_directory_of(const std::string& path) = 0;
};

// Returns the operating system's calls. The object is never destroyed.
FileOps& system_file_ops() noexcept;

}  // namespace qsf

#endif  // QSF_IO_FILE_OPS_H_
