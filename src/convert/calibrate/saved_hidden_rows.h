// SPDX-License-Identifier: MIT
//
// SavedHiddenRows: the rows of the residual stream of every window at one place between layers, on
// the disk, so that a run through some layers goes on where another ended, whatever the memory.
//
// Rows of this process alone lie in one file without a name, where those behind some layers take
// the place of those in front of them. In a folder there are two such places, by turns, and a file
// that says which layers they go into, with their checksums: a run that is interrupted leaves the
// rows it began with.

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
  // What it takes of memory: one window.
  static std::uint64_t memory_bytes(std::uint64_t window_floats) noexcept;

  // Makes a file of so many windows under a name that it loses at once.
  // Requires  `ops` outlives the rows
  // Fails     as ScratchFile::create
  static Result<std::unique_ptr<SavedHiddenRows>> create(const std::string& path,
                                                         std::size_t n_windows,
                                                         std::size_t window_floats,
                                                         FileOps& ops = system_file_ops());
  // The same in a folder that exists, with what was kept there before.
  // Fails  as ScratchFile::open_named; kCorrupt when what is there is damaged
  static Result<std::unique_ptr<SavedHiddenRows>> open_in(const std::string& folder,
                                                          std::size_t n_windows,
                                                          std::size_t window_floats,
                                                          FileOps& ops = system_file_ops());
  // The names of its files in a folder.
  static std::vector<std::string> file_names();

  // Begins a run whose windows are read from rows that are kept, one by one, and written to where
  // finish() will find them. Returns the layer that it begins with: the last up to `layer` whose
  // rows are kept; 0, for which no rows are, where there is none.
  // Fails  kIo
  Result<std::uint32_t> start(std::uint32_t layer);
  // All windows are written, and go into `layer`. Fails  kIo
  Status finish(std::uint32_t layer);

  // The window that read() fills and write() takes. Shapes  [window_floats]
  std::span<float> window() noexcept;
  // Requires  index < n_windows; of read(): start() did not return 0, this window is not written
  // Fails     kIo, naming place and reason; of read() in a folder kCorrupt on other rows than were
  //           written
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
    std::uint32_t layer = 0;             // that its rows go into; 0: there are none
    std::vector<std::uint32_t> crcs;     // of its windows
  };
  SavedHiddenRows(std::vector<Place> places, std::size_t n_windows, std::size_t window_floats);
  MutableByteSpan bytes() noexcept { return {memory_.get(), stride_}; }
  Status read_state();
  Status write_state() const;

  std::vector<Place> places_;
  std::string state_path_;  // empty: no file says what is kept
  FileOps* ops_ = nullptr;  // of that file
  std::size_t from_ = 0;    // the place that is read
  std::size_t to_ = 0;      // the place that is written
  std::size_t window_floats_;
  std::size_t stride_;                         // bytes from one window to the next
  std::unique_ptr<std::byte[], Free> memory_;  // [stride_]
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_SAVED_HIDDEN_ROWS_H_
