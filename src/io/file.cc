// SPDX-License-Identifier: MIT

#include "io/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace qsf {
namespace {

Status open_failed(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return not_found("%s: no such file; check the path", path.c_str());
  }
  if (error == EISDIR) return io_error("%s: is a directory, expected a file", path.c_str());
  // EINVAL is check_regular's; opening a socket fails with ENXIO.
  if (error == EINVAL || error == ENXIO) {
    return io_error(
        "%s: is a pipe, socket or device, not a regular file; copy its data into a file",
        path.c_str());
  }
  return io_error("%s: cannot be opened: %s", path.c_str(), std::strerror(error));
}

}  // namespace

Result<File> File::open(const std::string& path, FileOps& ops) {
  int handle;
  do {
    handle = ops.open_read(path);
  } while (handle == -EINTR);
  if (handle < 0) return open_failed(path, -handle);
  return adopt(path, handle, ops);
}

Result<File> File::adopt(const std::string& path, int handle, FileOps& ops) {
  File file(ops, path, handle, 0);  // owns the handle from here on
  const int regular = ops.check_regular(handle);
  if (regular < 0) return open_failed(path, -regular);
  QSF_RETURN_IF_ERROR(file.refresh_size());
  return file;
}

Status File::refresh_size() {
  const std::int64_t bytes = ops_->file_bytes(handle_);
  if (bytes < 0) return open_failed(path_, static_cast<int>(-bytes));
  size_bytes_ = static_cast<std::uint64_t>(bytes);
  return ok_status();
}

File::File(FileOps& ops, std::string path, int handle, std::uint64_t size_bytes) noexcept
    : ops_(&ops), path_(std::move(path)), handle_(handle), size_bytes_(size_bytes) {}

File::File(File&& other) noexcept
    : ops_(other.ops_),
      path_(std::move(other.path_)),
      handle_(std::exchange(other.handle_, -1)),
      size_bytes_(other.size_bytes_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(ops_, other.ops_);
  std::swap(path_, other.path_);
  std::swap(handle_, other.handle_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

File::~File() {
  if (handle_ >= 0) ops_->close(handle_);
}

Status File::read_exact_at(std::uint64_t offset, MutableByteSpan to) const {
  const std::size_t wanted = to.size();
  if (offset > size_bytes_ || wanted > size_bytes_ - offset) {
    return corrupt("%s: %zu bytes at offset %llu, but the file has %llu bytes; it is truncated",
                   path_.c_str(), wanted, static_cast<unsigned long long>(offset),
                   static_cast<unsigned long long>(size_bytes_));
  }
  while (!to.empty()) {
    const std::size_t part = std::min(to.size(), kMaxTransferBytes);
    const std::int64_t n = ops_->read_at(handle_, to.first(part), offset);
    if (n == -EINTR) continue;
    if (n < 0) {
      return io_error("%s: reading %zu bytes at offset %llu failed: %s", path_.c_str(), part,
                      static_cast<unsigned long long>(offset), std::strerror(static_cast<int>(-n)));
    }
    if (n == 0) {
      return corrupt(
          "%s: the file ends at offset %llu but had %llu bytes when it was opened; it "
          "was truncated meanwhile",
          path_.c_str(), static_cast<unsigned long long>(offset),
          static_cast<unsigned long long>(size_bytes_));
    }
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return ok_status();
}

void File::expect_random_reads() const noexcept {
  static_cast<void>(ops_->advise(handle_, 0, 0, FileAdvice::kRandom));
}

void File::drop_cached() const noexcept {
  static_cast<void>(ops_->advise(handle_, 0, size_bytes_, FileAdvice::kDontNeed));
}

Result<std::vector<std::byte>> File::read_all(std::uint64_t max_bytes) const {
  if (size_bytes_ > max_bytes) {
    return corrupt("%s: %llu bytes, expected at most %llu", path_.c_str(),
                   static_cast<unsigned long long>(size_bytes_),
                   static_cast<unsigned long long>(max_bytes));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_bytes_));
  QSF_RETURN_IF_ERROR(read_exact_at(0, bytes));
  return bytes;
}

}  // namespace qsf
