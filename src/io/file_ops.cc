// SPDX-License-Identifier: MIT
//
// FileOps on POSIX.

#include "io/file_ops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>

namespace qsf {
namespace {

int or_errno(int result) noexcept {
  return result < 0 ? -errno : result;
}

class SystemFileOps final : public FileOps {
 public:
  int open_read(const std::string& path) override {
    return or_errno(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  int create_new(const std::string& path) override {
    return or_errno(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  }
  PathKind path_kind(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return PathKind::kMissing;
    if (S_ISREG(info.st_mode)) return PathKind::kRegular;
    return S_ISDIR(info.st_mode) ? PathKind::kDirectory : PathKind::kOther;
  }
  int check_regular(int handle) override {
    struct stat info;
    if (::fstat(handle, &info) != 0) return -errno;
    if (S_ISDIR(info.st_mode)) return -EISDIR;
    return S_ISREG(info.st_mode) ? 0 : -EINVAL;
  }
  std::int64_t file_bytes(int handle) override {
    struct stat info;
    return ::fstat(handle, &info) != 0 ? -errno : static_cast<std::int64_t>(info.st_size);
  }
  std::int64_t read_at(int handle, MutableByteSpan to, std::uint64_t offset) override {
    if (offset > kMaxOffset) return 0;
    const ssize_t n = ::pread(handle, to.data(), to.size(), static_cast<off_t>(offset));
    return n < 0 ? -errno : static_cast<std::int64_t>(n);
  }
  std::int64_t write_at(int handle, ByteSpan from, std::uint64_t offset) override {
    if (offset > kMaxOffset) return -EFBIG;
    const ssize_t n = ::pwrite(handle, from.data(), from.size(), static_cast<off_t>(offset));
    return n < 0 ? -errno : static_cast<std::int64_t>(n);
  }
  int resize(int handle, std::uint64_t bytes) override {
    if (bytes > kMaxOffset) return -EFBIG;
    return or_errno(::ftruncate(handle, static_cast<off_t>(bytes)));
  }
  int sync(int handle) override { return or_errno(::fsync(handle)); }
  int close(int handle) override { return or_errno(::close(handle)); }
  int rename(const std::string& from, const std::string& to) override {
    return or_errno(std::rename(from.c_str(), to.c_str()));
  }
  int remove(const std::string& path) override { return or_errno(::unlink(path.c_str())); }
  int sync_directory_of(const std::string& path) override {
    const std::size_t slash = path.rfind('/');
    const std::string directory = slash == std::string::npos ? "."
                                  : slash == 0               ? "/"
                                                             : path.substr(0, slash);
    const int handle = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return -errno;
    int result = or_errno(::fsync(handle));
    // Some network file systems cannot sync a directory and say EINVAL; nothing is left to do
    // there.
    if (result == -EINVAL) result = 0;
    ::close(handle);
    return result;
  }

 private:
  static constexpr std::uint64_t kMaxOffset =
      static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
};

}  // namespace

FileOps& system_file_ops() noexcept {
  static SystemFileOps ops;
  return ops;
}

}  // namespace qsf
