// SPDX-License-Identifier: MIT
//
// KeptRows: the rows of the residual stream of every window at one place between layers, on the
// disk, so that a run through some layers goes on where another ended, whatever the memory.

#ifndef QSF_CALIBRATE_KEPT_ROWS_H_
#define QSF_CALIBRATE_KEPT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "base/result.h"
#include "base/status.h"
#include "io/async_reader.h"
#include "io/scratch_file.h"

namespace qsf {

class KeptRows {
 public:
  // What it takes of memory: one window.
  static std::uint64_t memory_bytes(std::uint64_t window_floats) noexcept;

  // Makes a file of so many windows under a name that it loses at once.
  // Requires  `ops` outlives the rows
  // Fails     as ScratchFile::create
  static Result<std::unique_ptr<KeptRows>> create(const std::string& path, std::size_t n_windows,
                                                  std::size_t window_floats,
                                                  FileOps& ops = system_file_ops());

  // The window that read() fills and write() takes. Shapes  [window_floats]
  std::span<float> window() noexcept;
  // Requires  index < n_windows; of read(): the window was written
  // Fails     kIo, naming place and reason
  Status read(std::size_t index);
  Status write(std::size_t index);

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept {
      ::operator delete[](bytes, std::align_val_t{kDirectAlign});
    }
  };
  KeptRows(std::unique_ptr<ScratchFile> file, std::size_t window_floats);
  MutableByteSpan bytes() noexcept { return {memory_.get(), stride_}; }

  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<AsyncReader> queue_;  // behind the file, which outlives it
  std::size_t window_floats_;
  std::size_t stride_;                         // bytes from one window to the next
  std::unique_ptr<std::byte[], Free> memory_;  // [stride_]
};

}  // namespace qsf

#endif  // QSF_CALIBRATE_KEPT_ROWS_H_
