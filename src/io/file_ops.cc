// SPDX-License-Identifier: MIT
//
// FileOps on POSIX.

#include "io/file_ops.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>

#include "io/read_ring.h"

namespace qsf {
namespace {

int or_errno(int result) noexcept {
  return result < 0 ? -errno : result;
}

// Returns the directory that a file of that name lies in.
std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

class SystemFileOps final : public FileOps {
 public:
  int open_read(const std::string& path) override {
    // Without O_NONBLOCK the open of a FIFO waits for a writer. The flag must not stay: with it,
    // io_uring fails reads of regular files that are not in the page cache.
    const int handle = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (handle < 0) return -errno;
    if (::fcntl(handle, F_SETFL, 0) == 0) return handle;
    const int error = errno;
    ::close(handle);
    return -error;
  }
  int create_new(const std::string& path) override {
    return or_errno(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  }
  int create_unnamed(const std::string& path) override {
    const int handle = ::open(directory_of(path).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    // Kernels without O_TMPFILE see a directory that is to be written.
    if (handle < 0) return errno == EISDIR || errno == EINVAL ? -EOPNOTSUPP : -errno;
    if (::access(link_of(handle).c_str(), F_OK) == 0) return handle;
    ::close(handle);
    return -EOPNOTSUPP;
  }
  // By the link that the kernel keeps for every handle: the call that needs no link is root's.
  int give_name(int handle, const std::string& path) override {
    return or_errno(
        ::linkat(AT_FDCWD, link_of(handle).c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW));
  }
  int create_scratch(const std::string& path) override {
    return or_errno(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
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
  // Through the link that the kernel keeps for every handle: the file itself, also when it was
  // renamed, replaced or removed since.
  int reopen(int handle, bool direct) override { return open_link(handle, O_RDONLY, direct); }
  int reopen_for_writing(int handle, bool direct) override {
    return open_link(handle, O_RDWR, direct);
  }
  FileStorage storage(int handle) override {
    FileStorage result;
    struct stat info;
    // File systems without a block device (NFS, overlayfs, btrfs) get a new number at each mount.
    if (::fstat(handle, &info) == 0 && major(info.st_dev) != 0) result.disk_id = info.st_dev;
    struct statfs system;
    if (::fstatfs(handle, &system) == 0) {
      const auto magic = static_cast<unsigned long>(system.f_type);
      result.is_in_memory = magic == TMPFS_MAGIC || magic == RAMFS_MAGIC;
    }
#ifdef STATX_DIOALIGN
    struct statx detail;
    if (::statx(handle, "", AT_EMPTY_PATH, STATX_DIOALIGN, &detail) == 0 &&
        (detail.stx_mask & STATX_DIOALIGN) != 0) {
      result.direct_alignment = std::max(detail.stx_dio_mem_align, detail.stx_dio_offset_align);
    }
#endif
    return result;
  }
  int advise(int handle, std::uint64_t offset, std::uint64_t bytes, FileAdvice advice) override {
    if (offset > kMaxOffset || bytes > kMaxOffset - offset) return -EFBIG;
    const int what = advice == FileAdvice::kRandom     ? POSIX_FADV_RANDOM
                     : advice == FileAdvice::kWillNeed ? POSIX_FADV_WILLNEED
                                                       : POSIX_FADV_DONTNEED;
    return -::posix_fadvise(handle, static_cast<off_t>(offset), static_cast<off_t>(bytes), what);
  }
  int map(int handle, std::uint64_t bytes, ByteSpan& mapping) override {
    if (bytes > kMaxOffset) return -EFBIG;
    const auto n = static_cast<std::size_t>(bytes);
    void* pages = ::mmap(nullptr, n, PROT_READ, MAP_SHARED, handle, 0);
    if (pages == MAP_FAILED) return -errno;
    mapping = {static_cast<const std::byte*>(pages), n};
    return 0;
  }
  void unmap(ByteSpan mapping) override {
    ::munmap(const_cast<std::byte*>(mapping.data()), mapping.size());
  }
  int advise_mapping(ByteSpan part, FileAdvice advice) override {
    const int what = advice == FileAdvice::kRandom     ? MADV_RANDOM
                     : advice == FileAdvice::kWillNeed ? MADV_WILLNEED
                                                       : MADV_DONTNEED;
    return or_errno(::madvise(const_cast<std::byte*>(part.data()), part.size(), what));
  }
  int open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) override {
    return open_uring(depth, ring);
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
  int allocate(int handle, std::uint64_t bytes) override {
    if (bytes > kMaxOffset) return -EFBIG;
    return or_errno(::fallocate(handle, 0, 0, static_cast<off_t>(bytes)));
  }
  int resize(int handle, std::uint64_t bytes) override {
    if (bytes > kMaxOffset) return -EFBIG;
    return or_errno(::ftruncate(handle, static_cast<off_t>(bytes)));
  }
  int sync(int handle) override {
    return or_errno(::fsync(handle));
  }
  int close(int handle) override {
    return or_errno(::close(handle));
  }
  int rename(const std::string& from, const std::string& to) override {
    return or_errno(std::rename(from.c_str(), to.c_str()));
  }
  int remove(const std::string& path) override {
    return or_errno(::unlink(path.c_str()));
  }
  int sync_directory_of(const std::string& path) override {
    const int handle = ::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return -errno;
    int result = or_errno(::fsync(handle));
    // Some network file systems cannot sync a directory and say EINVAL; nothing is left to do
    // there.
    if (result == -EINVAL) result = 0;
    ::close(handle);
    return result;
  }

 private:
  static std::string link_of(int handle) {
    return "/proc/self/fd/" + std::to_string(handle);
  }
  static int open_link(int handle, int access, bool direct) {
    const int flags = access | O_CLOEXEC | (direct ? O_DIRECT : 0);
    return or_errno(::open(link_of(handle).c_str(), flags));
  }

  static constexpr std::uint64_t kMaxOffset =
      static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
};

}  // namespace

FileOps& system_file_ops() noexcept {
  static SystemFileOps ops;
  return ops;
}

}  // namespace qsf
