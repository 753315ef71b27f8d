// SPDX-License-Identifier: MIT
//
// ScratchFile: a file that is read and written in any order, past the page cache.
//
// create() makes a new file and removes its name at once, so nothing is left behind when the
// process ends and no existing file is overwritten. open_named() keeps the name, for data that
// outlives the process. The disk space is allocated at once where the file system supports it.

#ifndef QSF_IO_SCRATCH_FILE_H_
#define QSF_IO_SCRATCH_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "io/file.h"
#include "io/read_device.h"

namespace qsf {

class ScratchFile {
 public:
  // Makes a file of `n_bytes`, which read as zeros. Direct reads and writes are used where the file
  // system allows; else device().fall_back() says why.
  // Requires  `ops` outlives the file; n_bytes a multiple of kDirectAlign
  // Fails     kInvalidArgument when the name is empty or belongs to a file, which stays as it is;
  //           kIo when the file cannot be made, opened again, or the disk lacks the space
  static Result<std::unique_ptr<ScratchFile>> create(const std::string& path, std::uint64_t n_bytes,
                                                     std::optional<ReadPath> read_path,
                                                     FileOps& ops = system_file_ops());
  // As create(), for a file that keeps its name. An existing file of n_bytes is opened with its
  // contents; a file of another size is replaced.
  static Result<std::unique_ptr<ScratchFile>> open_named(const std::string& path,
                                                         std::uint64_t n_bytes,
                                                         FileOps& ops = system_file_ops());
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const noexcept { return file_.path(); }
  // The device that reads the file. Reads see the data of every completed write().
  const ReadDevice& device() const noexcept { return *device_; }

  // Writes all of `from`; interrupted and short writes are continued.
  // Shapes   offset, address and length are multiples of kDirectAlign
  // Fails    kIo, naming place and reason, such as a full disk
  // Threads  one at a time
  Status write(std::uint64_t offset, ByteSpan from);
  // Returns when the written data is durable. Fails  kIo
  Status sync();

 private:
  explicit ScratchFile(File file) noexcept;
  Status open_device(std::optional<ReadPath> read_path);
  Status take_space(std::uint64_t n_bytes);
  Status open_for_writing(bool direct);

  File file_;
  std::optional<ReadDevice> device_;
  int write_handle_ = -1;
  bool direct_ = false;
};

}  // namespace qsf

#endif  // QSF_IO_SCRATCH_FILE_H_
