// SPDX-License-Identifier: MIT
//
// File: a file open for reading at explicit offsets.
//
// All reading in the project uses it or the asynchronous readers built on its handle, so tests
// inject faults in one place. It owns the handle and closes it.

#ifndef QSF_IO_FILE_H_
#define QSF_IO_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "io/file_ops.h"

namespace qsf {

class File {
 public:
  // Opens a regular file for reading and records its size. Never waits: a pipe, socket or device is
  // refused.
  // Requires  `ops` outlives the File
  // Fails     kNotFound when there is no such file; kIo when it cannot be opened or is not a
  //           regular file
  static Result<File> open(const std::string& path, FileOps& ops = system_file_ops());

  // Takes over a handle of `ops` to a regular file that was opened under this name.
  // Requires  `ops` outlives the File
  // Fails     kIo when its size cannot be read; the handle is closed then
  static Result<File> adopt(const std::string& path, int handle, FileOps& ops);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::string& path() const noexcept { return path_; }
  // Bytes of the file when it was opened or when refresh_size() was last called.
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  // Reads the size again, after the file was changed on purpose. Fails  kIo
  Status refresh_size();
  // The operating system's handle, for asynchronous readers; valid as long as the File.
  int handle() const noexcept { return handle_; }
  FileOps& ops() const noexcept { return *ops_; }

  // Fills `to` with the bytes at `offset`; interrupted and short reads are continued.
  // Fails    kCorrupt when the range passes the end of the file (also when the file shrank since it
  //          was opened), kIo when reading fails; `to` is then undefined
  // Threads  any number at once
  Status read_exact_at(std::uint64_t offset, MutableByteSpan to) const;

  // Asks the system to read nothing ahead into the page cache. Threads  any
  void expect_random_reads() const noexcept;

  // Drops the file's pages from the page cache where the system allows it. Threads  any
  void drop_cached() const noexcept;

  // Reads the whole file into memory.
  // Fails  as read_exact_at; kCorrupt when it holds more than `max_bytes`
  Result<std::vector<std::byte>> read_all(std::uint64_t max_bytes) const;

 private:
  File(FileOps& ops, std::string path, int handle, std::uint64_t size_bytes) noexcept;

  FileOps* ops_;
  std::string path_;
  int handle_;
  std::uint64_t size_bytes_;
};

}  // namespace qsf

#endif  // QSF_IO_FILE_H_
