// SPDX-License-Identifier: MIT
//
// What FileOps needs of macOS beyond POSIX. Compiled, and never run (docs/installing.md).
//
// Based on: fcntl(2), statfs(2) and msync(2) of Apple's manual.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "io/posix_file_ops.h"
#include "io/read_ring.h"

namespace qsf {
namespace {

class MacosFileOps final : public PosixFileOps {
 public:
  int create_unnamed(const std::string&) override { return -EOPNOTSUPP; }
  int give_name(int, const std::string&) override { return -EOPNOTSUPP; }
  int reopen(int handle, bool direct) override { return open_again(handle, O_RDONLY, direct); }
  int reopen_for_writing(int handle, bool direct) override {
    return open_again(handle, O_RDWR, direct);
  }
  FileStorage storage(int handle) override {
    FileStorage result;
    struct stat info;
    if (::fstat(handle, &info) == 0) result.disk_id = static_cast<std::uint64_t>(info.st_dev);
    struct statfs system;
    if (::fstatfs(handle, &system) == 0) {
      result.is_in_memory = std::strcmp(system.f_fstypename, "tmpfs") == 0;
    }
    return result;
  }
  int advise(int handle, std::uint64_t offset, std::uint64_t bytes, FileAdvice advice) override {
    if (offset + bytes < offset || !is_file_offset(offset + bytes)) return -EFBIG;
    if (advice == FileAdvice::kRandom) return or_errno(::fcntl(handle, F_RDAHEAD, 0));
    if (bytes == 0) {
      const std::int64_t size = file_bytes(handle);
      if (size <= static_cast<std::int64_t>(offset)) return size < 0 ? static_cast<int>(size) : 0;
      bytes = static_cast<std::uint64_t>(size) - offset;
    }
    if (advice == FileAdvice::kDontNeed) return drop_pages(handle, offset, bytes);
    struct radvisory range = {};
    range.ra_offset = static_cast<off_t>(offset);
    range.ra_count =
        static_cast<int>(std::min<std::uint64_t>(bytes, std::numeric_limits<int>::max()));
    return or_errno(::fcntl(handle, F_RDADVISE, &range));
  }
  int open_ring(unsigned, std::unique_ptr<ReadRing>&) override { return -ENOSYS; }
  int allocate(int handle, std::uint64_t bytes) override {
    if (!is_file_offset(bytes)) return -EFBIG;
    const std::int64_t size = file_bytes(handle);
    if (size < 0) return static_cast<int>(size);
    fstore_t space = {};
    space.fst_flags = F_ALLOCATEALL;
    space.fst_posmode = F_PEOFPOSMODE;  // behind the end of the file
    space.fst_length = static_cast<off_t>(bytes) - size;
    if (space.fst_length > 0 && ::fcntl(handle, F_PREALLOCATE, &space) != 0) {
      return errno == ENOTSUP ? -EOPNOTSUPP : -errno;
    }
    return resize(handle, bytes);
  }
  // fsync() leaves the bytes in the cache of the drive.
  int sync(int handle) override {
    if (::fcntl(handle, F_FULLFSYNC) == 0) return 0;
    return errno == ENOTSUP || errno == ENOTTY ? PosixFileOps::sync(handle) : -errno;
  }

 private:
  // By its path, if that still leads to the file. One that was renamed or removed meanwhile shares
  // the settings of the old handle.
  static int open_again(int handle, int access, bool direct) {
    char path[MAXPATHLEN];
    int again = -1;
    if (::fcntl(handle, F_GETPATH, path) == 0) {
      again = ::open(path, access | O_CLOEXEC);
      if (again >= 0 && !is_same_file(handle, again)) {
        ::close(again);
        again = -1;
      }
    }
    if (again < 0) again = ::fcntl(handle, F_DUPFD_CLOEXEC, 0);
    if (again < 0) return -errno;
    if (!direct || ::fcntl(again, F_NOCACHE, 1) == 0) return again;
    const int error = errno;
    ::close(again);
    return -error;
  }
  static bool is_same_file(int one, int other) {
    struct stat a;
    struct stat b;
    return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
  }
  // No advice drops pages of a file, but a mapping that is invalidated does.
  static int drop_pages(int handle, std::uint64_t offset, std::uint64_t bytes) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = offset / page * page;
    const auto n = static_cast<std::size_t>(offset + bytes - begin);
    void* pages = ::mmap(nullptr, n, PROT_READ, MAP_SHARED, handle, static_cast<off_t>(begin));
    if (pages == MAP_FAILED) return -errno;
    const int result = or_errno(::msync(pages, n, MS_INVALIDATE));
    ::munmap(pages, n);
    return result;
  }
};

}  // namespace

FileOps& system_file_ops() noexcept {
  static MacosFileOps ops;
  return ops;
}

}  // namespace qsf
