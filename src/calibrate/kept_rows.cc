// SPDX-License-Identifier: MIT

#include "calibrate/kept_rows.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"

namespace qsf {

std::uint64_t KeptRows::memory_bytes(std::uint64_t window_floats) noexcept {
  return align_up(window_floats * sizeof(float), kDirectAlign);
}

Result<std::unique_ptr<KeptRows>> KeptRows::create(const std::string& path, std::size_t n_windows,
                                                   std::size_t window_floats, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(
      std::unique_ptr<ScratchFile> file,
      ScratchFile::create(path, n_windows * memory_bytes(window_floats), std::nullopt, ops));
  return std::unique_ptr<KeptRows>(new KeptRows(std::move(file), window_floats));
}

KeptRows::KeptRows(std::unique_ptr<ScratchFile> file, std::size_t window_floats)
    : file_(std::move(file)),
      queue_(file_->device().make_blocking_queue()),
      window_floats_(window_floats),
      stride_(memory_bytes(window_floats)),
      memory_(new (std::align_val_t{kDirectAlign}) std::byte[stride_]) {
  // What is behind the last row of a shorter window reaches the disk as well.
  std::ranges::fill(bytes(), std::byte{0});
}

std::span<float> KeptRows::window() noexcept {
  return {reinterpret_cast<float*>(memory_.get()), window_floats_};
}

Status KeptRows::read(std::size_t index) {
  queue_->start({.offset = index * stride_, .to = bytes(), .tag = 0});
  return queue_->wait().status;
}

Status KeptRows::write(std::size_t index) {
  return file_->write(index * stride_, bytes());
}

}  // namespace qsf
