// SPDX-License-Identifier: MIT
//
// AtomicFile: a file that appears complete under its name, or not at all.
//
// Bytes go to a file without a name on the target's file system; commit() makes them durable and
// gives the file its name. Until then a killed process, a full disk or any other failure leaves the
// target unchanged and no other file behind. Where the system has no files without names, a
// temporary name beside the target is used: the destructor removes it, a killed process leaves it.
// A file that replaces another also has such a name for a moment.

#ifndef QSF_IO_ATOMIC_FILE_H_
#define QSF_IO_ATOMIC_FILE_H_

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "io/file_ops.h"

namespace qsf {

class AtomicFile {
 public:
  // Creates the file to write to. An existing regular file at `path` is replaced on commit and not
  // before; a symbolic link at `path` is replaced by the file.
  // Requires  `ops` outlives the AtomicFile
  // Fails     kIo when `path` is a directory or a device, or when its directory does not exist or
  //           cannot be written
  static Result<AtomicFile> create(const std::string& path, FileOps& ops = system_file_ops());

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Leaves nothing unless commit() succeeded.
  ~AtomicFile();

  const std::string& path() const noexcept { return path_; }

  // Writes all of `from` at `offset`; a gap before it reads as zeros.
  // Fails    kIo, with what to do when the disk is full
  // Threads  any number at once, for ranges that do not overlap
  Status write_at(std::uint64_t offset, ByteSpan from);

  // Sets the length, cutting or appending zeros.
  Status resize(std::uint64_t bytes);

  // Writes the data to the disk and drops it from the page cache, where a memory budget would count
  // it. Fails  kIo
  Status drop_cached();

  // Makes the bytes durable, gives them their name and makes that durable. May be called once.
  // Guarantees  on failure the target is unchanged, except when only the last step fails: then the
  //             file is complete under its name and the message says so
  Status commit();

 private:
  AtomicFile(FileOps& ops, std::string path, std::string temporary_path, int handle) noexcept;
  int give_name();
  void abandon() noexcept;
  int sync() noexcept;  // 0, or a negative errno

  FileOps* ops_;
  std::string path_;
  std::string temporary_path_;  // empty: the file has no name
  int handle_;                  // -1 once closed
};

// Returns the final name of a file with this temporary name; `name` itself where it is not such a
// name. A killed process may leave a file with a temporary name.
std::string final_name(const std::string& name);

// Writes `bytes` as the whole content of `path`, atomically.
Status write_file(const std::string& path, ByteSpan bytes, FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_IO_ATOMIC_FILE_H_
