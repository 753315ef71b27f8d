// SPDX-License-Identifier: MIT

#include "io/faulty_file.h"

#include <algorithm>
#include <cerrno>

namespace qsf {

bool FaultyFileOps::interrupted() noexcept {
  const std::uint64_t call = calls_.fetch_add(1) + 1;
  return plan.interrupt_every != 0 && call % plan.interrupt_every == 0;
}

int FaultyFileOps::open_read(const std::string& path) {
  return plan.open_errno != 0 ? -plan.open_errno : base_.open_read(path);
}

int FaultyFileOps::create_new(const std::string& path) {
  return plan.create_errno != 0 ? -plan.create_errno : base_.create_new(path);
}

PathKind FaultyFileOps::path_kind(const std::string& path) {
  return base_.path_kind(path);
}
int FaultyFileOps::check_regular(int handle) {
  return base_.check_regular(handle);
}
std::int64_t FaultyFileOps::file_bytes(int handle) {
  const std::int64_t bytes = base_.file_bytes(handle);
  if (bytes < 0 || static_cast<std::uint64_t>(bytes) <= plan.truncate_at) return bytes;
  return static_cast<std::int64_t>(plan.truncate_at);
}

bool FaultyFileOps::is_direct(int handle) {
  const std::lock_guard lock(mutex_);
  return direct_handles_.contains(handle);
}

int FaultyFileOps::reopen(int handle, bool direct) {
  if (plan.reopen_errno != 0) return -plan.reopen_errno;
  if (direct && plan.direct_open_errno != 0) return -plan.direct_open_errno;
  const int opened = base_.reopen(handle, direct);
  if (opened >= 0 && direct) {
    const std::lock_guard lock(mutex_);
    direct_handles_.insert(opened);
  }
  return opened;
}

FileStorage FaultyFileOps::storage(int handle) {
  FileStorage storage = base_.storage(handle);
  if (plan.direct_alignment != UINT32_MAX) storage.direct_alignment = plan.direct_alignment;
  if (plan.in_memory) storage.is_in_memory = true;
  return storage;
}

int FaultyFileOps::advise(int handle, std::uint64_t offset, std::uint64_t bytes,
                          FileAdvice advice) {
  return base_.advise(handle, offset, bytes, advice);
}

// A part of the range, or an errno instead: what the plan makes of a read. A direct one must keep
// its length for the disk to take it, so its shortness is made afterwards.
std::int64_t FaultyFileOps::read_at(int handle, MutableByteSpan to, std::uint64_t offset) {
  if (interrupted()) return -EINTR;
  const bool direct = is_direct(handle);
  if (direct && plan.direct_read_errno != 0) return -plan.direct_read_errno;
  std::size_t shown = to.size();
  if (plan.max_transfer_bytes != 0) shown = std::min(shown, plan.max_transfer_bytes);
  if (offset >= plan.truncate_at) return 0;
  shown = static_cast<std::size_t>(std::min<std::uint64_t>(shown, plan.truncate_at - offset));
  if (offset <= plan.read_error_at && plan.read_error_at - offset < shown) return -EIO;
  if (!direct) to = to.first(shown);
  const std::int64_t n = base_.read_at(handle, to, offset);
  return std::min(n, static_cast<std::int64_t>(shown));
}

std::int64_t FaultyFileOps::write_at(int handle, ByteSpan from, std::uint64_t offset) {
  if (interrupted()) return -EINTR;
  if (plan.max_transfer_bytes != 0) {
    from = from.first(std::min(from.size(), plan.max_transfer_bytes));
  }
  const std::uint64_t written = written_bytes_.load();
  if (written >= plan.disk_bytes) return -ENOSPC;
  if (from.size() > plan.disk_bytes - written) {
    from = from.first(static_cast<std::size_t>(plan.disk_bytes - written));
  }
  const std::int64_t n = base_.write_at(handle, from, offset);
  if (n > 0) written_bytes_.fetch_add(static_cast<std::uint64_t>(n));
  return n;
}

int FaultyFileOps::resize(int handle, std::uint64_t bytes) {
  return base_.resize(handle, bytes);
}

int FaultyFileOps::sync(int handle) {
  if (interrupted()) return -EINTR;
  return plan.sync_errno != 0 ? -plan.sync_errno : base_.sync(handle);
}

int FaultyFileOps::close(int handle) {
  {
    const std::lock_guard lock(mutex_);
    direct_handles_.erase(handle);
  }
  const int result = base_.close(handle);
  return plan.close_errno != 0 ? -plan.close_errno : result;
}

int FaultyFileOps::rename(const std::string& from, const std::string& to) {
  return plan.rename_errno != 0 ? -plan.rename_errno : base_.rename(from, to);
}

int FaultyFileOps::remove(const std::string& path) {
  return base_.remove(path);
}

int FaultyFileOps::sync_directory_of(const std::string& path) {
  return plan.sync_directory_errno != 0 ? -plan.sync_directory_errno
                                        : base_.sync_directory_of(path);
}

int MemoryFileOps::open_read(const std::string&) {
  return 0;
}
int MemoryFileOps::create_new(const std::string&) {
  return -EROFS;
}
PathKind MemoryFileOps::path_kind(const std::string&) {
  return PathKind::kRegular;
}
int MemoryFileOps::check_regular(int) {
  return 0;
}

std::int64_t MemoryFileOps::file_bytes(int) {
  return static_cast<std::int64_t>(bytes_.size());
}

int MemoryFileOps::reopen(int, bool direct) {
  return direct ? -EINVAL : 0;
}
FileStorage MemoryFileOps::storage(int) {
  return {.disk_id = 0, .direct_alignment = 0, .is_in_memory = true};
}
int MemoryFileOps::advise(int, std::uint64_t, std::uint64_t, FileAdvice) {
  return 0;
}

std::int64_t MemoryFileOps::read_at(int, MutableByteSpan to, std::uint64_t offset) {
  if (offset >= bytes_.size()) return 0;
  const std::size_t n = std::min(to.size(), bytes_.size() - static_cast<std::size_t>(offset));
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), n, to.begin());
  return static_cast<std::int64_t>(n);
}

std::int64_t MemoryFileOps::write_at(int, ByteSpan, std::uint64_t) {
  return -EROFS;
}
int MemoryFileOps::resize(int, std::uint64_t) {
  return -EROFS;
}
int MemoryFileOps::sync(int) {
  return 0;
}
int MemoryFileOps::close(int) {
  return 0;
}
int MemoryFileOps::rename(const std::string&, const std::string&) {
  return -EROFS;
}
int MemoryFileOps::remove(const std::string&) {
  return -EROFS;
}
int MemoryFileOps::sync_directory_of(const std::string&) {
  return 0;
}

}  // namespace qsf
