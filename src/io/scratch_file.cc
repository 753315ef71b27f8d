// SPDX-License-Identifier: MIT

#include "io/scratch_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

unsigned long long llu(std::uint64_t value) {
  return value;
}

// Runs a call of the system again as long as it was interrupted.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result == -EINTR) result = call();
  return result;
}

Status create_scratch_failed(const std::string& path, int error) {
  if (error == EEXIST) {
    return invalid_argument("%s: exists already; choose the name of a file that does not exist",
                            path.c_str());
  }
  return io_error("%s: cannot be created: %s", path.c_str(), std::strerror(error));
}

bool is_full(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

}  // namespace

Result<std::unique_ptr<ScratchFile>> ScratchFile::create(const std::string& path,
                                                         std::uint64_t n_bytes,
                                                         std::optional<ReadPath> read_path,
                                                         FileOps& ops) {
  QSF_CHECK(n_bytes % kDirectAlign == 0);
  if (path.empty()) return invalid_argument("the name of the scratch file is empty");
  const int handle = uninterrupted([&] { return ops.create_scratch(path); });
  if (handle < 0) return create_scratch_failed(path, -handle);
  // From here on only the handle keeps the file.
  const int removed = ops.remove(path);
  QSF_ASSIGN_OR_RETURN(File empty, File::adopt(path, handle, ops));
  std::unique_ptr<ScratchFile> scratch(new ScratchFile(std::move(empty)));
  if (removed < 0) {
    return io_error("%s: its name cannot be removed: %s", path.c_str(), std::strerror(-removed));
  }
  QSF_RETURN_IF_ERROR(scratch->take_space(n_bytes));
  QSF_RETURN_IF_ERROR(scratch->open_device(read_path));
  return scratch;
}

Result<std::unique_ptr<ScratchFile>> ScratchFile::open_named(const std::string& path,
                                                             std::uint64_t n_bytes, FileOps& ops) {
  QSF_CHECK(n_bytes % kDirectAlign == 0 && !path.empty());
  auto opened = File::open(path, ops);
  if (!opened && opened.error().code() != StatusCode::kNotFound) return std::move(opened).error();
  const bool is_there = opened && opened->size_bytes() == n_bytes;
  if (!is_there) {
    if (opened) ops.remove(path);
    const int handle = uninterrupted([&] { return ops.create_scratch(path); });
    if (handle < 0) return create_scratch_failed(path, -handle);
    opened = File::adopt(path, handle, ops);
    if (!opened) return std::move(opened).error();
  }
  std::unique_ptr<ScratchFile> scratch(new ScratchFile(std::move(*opened)));
  if (!is_there) QSF_RETURN_IF_ERROR(scratch->take_space(n_bytes));
  QSF_RETURN_IF_ERROR(scratch->open_device(std::nullopt));
  return scratch;
}

// Opens the ways to read and write a file that has only a handle so far.
Status ScratchFile::open_device(std::optional<ReadPath> read_path) {
  // A mapping would be the page cache, where a direct write is not seen.
  if (read_path == ReadPath::kMmap) read_path.reset();
  QSF_ASSIGN_OR_RETURN(ReadDevice device,
                       ReadDevice::open(file_, {.path = read_path, .direct = true}));
  device_.emplace(std::move(device));
  return open_for_writing(device_->is_direct());
}

ScratchFile::ScratchFile(File file) noexcept : file_(std::move(file)) {}

ScratchFile::~ScratchFile() {
  if (write_handle_ >= 0) file_.ops().close(write_handle_);
}

// Where space cannot be taken in advance the file has holes, and the disk may turn out to be full
// at a later write.
Status ScratchFile::take_space(std::uint64_t n_bytes) {
  FileOps& ops = file_.ops();
  int result = uninterrupted([&] { return ops.allocate(file_.handle(), n_bytes); });
  if (result == -EOPNOTSUPP || result == -ENOSYS || result == -EINVAL) {
    result = uninterrupted([&] { return ops.resize(file_.handle(), n_bytes); });
  }
  if (result < 0 && is_full(-result)) {
    return io_error(
        "%s: the disk has no room for %llu bytes (%s); free some space or name a file elsewhere",
        path().c_str(), llu(n_bytes), std::strerror(-result));
  }
  if (result < 0) {
    return io_error("%s: setting its length to %llu bytes failed: %s", path().c_str(), llu(n_bytes),
                    std::strerror(-result));
  }
  return file_.refresh_size();
}

Status ScratchFile::open_for_writing(bool direct) {
  FileOps& ops = file_.ops();
  direct_ = direct;
  write_handle_ = uninterrupted([&] { return ops.reopen_for_writing(file_.handle(), direct); });
  if (write_handle_ >= 0) return ok_status();
  return io_error("%s: cannot be opened for writing: %s", path().c_str(),
                  std::strerror(-write_handle_));
}

Status ScratchFile::write(std::uint64_t offset, ByteSpan from) {
  QSF_DCHECK(offset % kDirectAlign == 0 && from.size() % kDirectAlign == 0);
  FileOps& ops = file_.ops();
  const std::uint64_t first = offset;
  const std::size_t n_bytes = from.size();
  unsigned n_stalls = 0;
  while (!from.empty()) {
    const std::size_t part = std::min(from.size(), kMaxTransferBytes);
    std::int64_t n = ops.write_at(write_handle_, from.first(part), offset);
    if (n == -EINTR) continue;
    // A direct write continues at a multiple of its alignment.
    if (n > 0 && direct_ && static_cast<std::size_t>(n) < from.size()) n -= n % kDirectAlign;
    if (n == 0 && ++n_stalls < kMaxStalls) continue;
    if (n < 0 && is_full(static_cast<int>(-n))) {
      return io_error(
          "%s: writing %zu bytes at offset %llu failed: the disk is full (%s); free "
          "some space and go on",
          path().c_str(), n_bytes, llu(first), std::strerror(static_cast<int>(-n)));
    }
    if (n <= 0) {
      return io_error("%s: writing %zu bytes at offset %llu failed: %s", path().c_str(), n_bytes,
                      llu(first), std::strerror(n == 0 ? EIO : static_cast<int>(-n)));
    }
    n_stalls = 0;
    from = from.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  if (direct_) return ok_status();
  // Written through the page cache, where a budget counts it until it is on the disk.
  QSF_RETURN_IF_ERROR(sync());
  ops.advise(write_handle_, first, n_bytes, FileAdvice::kDontNeed);
  return ok_status();
}

Status ScratchFile::sync() {
  const int synced = uninterrupted([&] { return file_.ops().sync(write_handle_); });
  if (synced == 0) return ok_status();
  return io_error("%s: syncing the file failed: %s", path().c_str(), std::strerror(-synced));
}

}  // namespace qsf
