// SPDX-License-Identifier: MIT
//
// What FileOps needs of Linux beyond POSIX.

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/posix_file_ops.h"
#include "io/read_ring.h"
#include "platform/memory.h"

namespace qsf {
namespace {

class LinuxFileOps final : public PosixFileOps {
 public:
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
    if (offset + bytes < offset || !is_file_offset(offset + bytes)) return -EFBIG;
    const int what = advice == FileAdvice::kRandom     ? POSIX_FADV_RANDOM
                     : advice == FileAdvice::kWillNeed ? POSIX_FADV_WILLNEED
                                                       : POSIX_FADV_DONTNEED;
    return -::posix_fadvise(handle, static_cast<off_t>(offset), static_cast<off_t>(bytes), what);
  }
  // In a mapping of the file: a read that must not wait starts the kernel's read-ahead.
  double cached_share(int handle, std::uint64_t bytes) override {
    constexpr std::uint64_t kMostSamples = 256;
    ByteSpan mapping;
    if (bytes == 0 || map(handle, bytes, mapping) < 0) return 1.0;
    const std::uint64_t n_pages = (bytes + page_bytes() - 1) / page_bytes();
    const std::uint64_t n_samples = std::min(n_pages, kMostSamples);
    std::uint64_t n_cached = 0;
    for (std::uint64_t i = 0; i < n_samples; ++i) {
      const auto at = static_cast<std::size_t>(i * n_pages / n_samples * page_bytes());
      unsigned char page = 1;  // what is not told counts as cached
      static_cast<void>(::mincore(const_cast<std::byte*>(mapping.data() + at), 1, &page));
      n_cached += page & 1U;
    }
    unmap(mapping);
    return static_cast<double>(n_cached) / static_cast<double>(n_samples);
  }
  int open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) override {
    return open_uring(depth, ring);
  }
  int allocate(int handle, std::uint64_t bytes) override {
    if (!is_file_offset(bytes)) return -EFBIG;
    return or_errno(::fallocate(handle, 0, 0, static_cast<off_t>(bytes)));
  }

 private:
  static std::string link_of(int handle) {
    return "/proc/self/fd/" + std::to_string(handle);
  }
  static int open_link(int handle, int access, bool direct) {
    const int flags = access | O_CLOEXEC | (direct ? O_DIRECT : 0);
    return or_errno(::open(link_of(handle).c_str(), flags));
  }
};

}  // namespace

FileOps& system_file_ops() noexcept {
  static LinuxFileOps ops;
  return ops;
}

}  // namespace qsf
