// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>

#include "io/posix_file_ops.h"

namespace qsf {

int or_errno(int result) noexcept {
  return result < 0 ? -errno : result;
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool is_file_offset(std::uint64_t offset) noexcept {
  return offset <= static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
}

int PosixFileOps::open_read(const std::string& path) {
  // Without O_NONBLOCK the open of a FIFO waits for a writer. The flag must not stay: with it,
  // io_uring fails reads of regular files that are not in the page cache.
  const int handle = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (handle < 0) return -errno;
  if (::fcntl(handle, F_SETFL, 0) == 0) return handle;
  const int error = errno;
  ::close(handle);
  return -error;
}

int PosixFileOps::create_new(const std::string& path) {
  return or_errno(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

int PosixFileOps::create_scratch(const std::string& path) {
  return or_errno(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

PathKind PosixFileOps::path_kind(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return PathKind::kMissing;
  if (S_ISREG(info.st_mode)) return PathKind::kRegular;
  return S_ISDIR(info.st_mode) ? PathKind::kDirectory : PathKind::kOther;
}

int PosixFileOps::check_regular(int handle) {
  struct stat info;
  if (::fstat(handle, &info) != 0) return -errno;
  if (S_ISDIR(info.st_mode)) return -EISDIR;
  return S_ISREG(info.st_mode) ? 0 : -EINVAL;
}

std::int64_t PosixFileOps::file_bytes(int handle) {
  struct stat info;
  return ::fstat(handle, &info) != 0 ? -errno : static_cast<std::int64_t>(info.st_size);
}

int PosixFileOps::map(int handle, std::uint64_t bytes, ByteSpan& mapping) {
  if (!is_file_offset(bytes)) return -EFBIG;
  const auto n = static_cast<std::size_t>(bytes);
  void* pages = ::mmap(nullptr, n, PROT_READ, MAP_SHARED, handle, 0);
  if (pages == MAP_FAILED) return -errno;
  mapping = {static_cast<const std::byte*>(pages), n};
  return 0;
}

void PosixFileOps::unmap(ByteSpan mapping) {
  ::munmap(const_cast<std::byte*>(mapping.data()), mapping.size());
}

int PosixFileOps::advise_mapping(ByteSpan part, FileAdvice advice) {
  const int what = advice == FileAdvice::kRandom     ? MADV_RANDOM
                   : advice == FileAdvice::kWillNeed ? MADV_WILLNEED
                                                     : MADV_DONTNEED;
  return or_errno(::madvise(const_cast<std::byte*>(part.data()), part.size(), what));
}

std::int64_t PosixFileOps::read_at(int handle, MutableByteSpan to, std::uint64_t offset) {
  if (!is_file_offset(offset)) return 0;
  const ssize_t n = ::pread(handle, to.data(), to.size(), static_cast<off_t>(offset));
  return n < 0 ? -errno : static_cast<std::int64_t>(n);
}

std::int64_t PosixFileOps::write_at(int handle, ByteSpan from, std::uint64_t offset) {
  if (!is_file_offset(offset)) return -EFBIG;
  const ssize_t n = ::pwrite(handle, from.data(), from.size(), static_cast<off_t>(offset));
  return n < 0 ? -errno : static_cast<std::int64_t>(n);
}

int PosixFileOps::resize(int handle, std::uint64_t bytes) {
  if (!is_file_offset(bytes)) return -EFBIG;
  return or_errno(::ftruncate(handle, static_cast<off_t>(bytes)));
}

int PosixFileOps::sync(int handle) {
  return or_errno(::fsync(handle));
}

int PosixFileOps::close(int handle) {
  return or_errno(::close(handle));
}

int PosixFileOps::rename(const std::string& from, const std::string& to) {
  return or_errno(std::rename(from.c_str(), to.c_str()));
}

int PosixFileOps::remove(const std::string& path) {
  return or_errno(::unlink(path.c_str()));
}

int PosixFileOps::sync_directory_of(const std::string& path) {
  const int handle = ::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return -errno;
  int result = or_errno(::fsync(handle));
  // Some network file systems cannot sync a directory and say EINVAL; nothing is left to do
  // there.
  if (result == -EINVAL) result = 0;
  ::close(handle);
  return result;
}

}  // namespace qsf
