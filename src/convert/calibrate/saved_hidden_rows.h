// SPDX-License-Identifier: MIT
//
// SavedHiddenRows: the hidden rows (residual stream) of every window between two layers, on disk,
// so that a run through some layers continues where another ended.
//
// Without a folder the rows are in one unlinked file, in which the outputs of a layer overwrite its
// inputs. In a folder there are two files, used in turn, and a state file with their layers and
// checksums: an interrupted run leaves the rows that it began with.

#ifndef QSF_CONVERT_CALIBRATE_SAVED_HIDDEN_ROWS_H_
#define QSF_CONVERT_CALIBRATE_SAVED_HIDDEN_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "io/async_reader.h"
#include "io/scratch_file.h"

namespace qsf {

class SavedHiddenRows {
 public:
  // Returns the memory used: one window.
  static std::uint64_t memory_bytes(std::uint64_t window_floats) noexcept;

  // Creates a file of so many windows and unlinks it.
  // Requires  `ops` outlives the rows
  // Fails     as ScratchFile::create
  static Result<std::unique_ptr<SavedHiddenRows>> create(const std::string& path,
                                                         std::size_t n_windows,
                                                         std::size_t window_floats,
                                                         FileOps& ops = system_file_ops());
  // The same in an existing folder, with the rows saved there before.
  // Fails  as ScratchFile::open_named; kCorrupt on damaged files
  static Result<std::unique_ptr<SavedHiddenRows>> open_in(const std::string& folder,
                                                          std::size_t n_windows,
                                                          std::size_t window_floats,
                                                          FileOps& ops = system_file_ops());
  // Returns the names of its files in a folder.
  static std::vector<std::string> file_names();

  // Begins a run that reads and writes the windows one by one. Returns its first layer: the last
  // layer up to `layer` with saved input rows; 0, which needs no rows, when there is none.
  // Fails  kIo
  Result<std::uint32_t> start(std::uint32_t layer);
  // Ends a run: all windows are written and are the inputs of `layer`. Fails  kIo
  Status finish(std::uint32_t layer);

  // The buffer of read() and write(). Shapes  [window_floats]
  std::span<float> window() noexcept;
  // Requires  index < n_windows; of read(): start() did not return 0, this window is not written
  // Fails     kIo, naming place and reason; read() in a folder also kCorrupt on a wrong checksum
  Status read(std::size_t index);
  Status write(std::size_t index);

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept {
      ::operator delete[](bytes, std::align_val_t{kDirectAlign});
    }
  };
  struct Place {
    std::unique_ptr<ScratchFile> file;
    std::unique_ptr<AsyncReader> queue;  // behind the file, which outlives it
    std::uint32_t layer = 0;             // whose inputs the rows are; 0: no rows
    std::vector<std::uint32_t> crcs;     // of its windows
  };
  SavedHiddenRows(std::vector<Place> places, std::size_t n_windows, std::size_t window_floats);
  MutableByteSpan bytes() noexcept { return {memory_.get(), stride_}; }
  Status read_state();
  Status write_state() const;

  std::vector<Place> places_;
  std::string state_path_;  // empty: no state file
  FileOps* ops_ = nullptr;  // of that file
  std::size_t from_ = 0;    // the place that is read
  std::size_t to_ = 0;      // the place that is written
  std::size_t window_floats_;
  std::size_t stride_;                         // bytes from one window to the next
  std::unique_ptr<std::byte[], Free> memory_;  // [stride_]
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_SAVED_HIDDEN_ROWS_H_
