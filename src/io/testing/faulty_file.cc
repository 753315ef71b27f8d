// SPDX-License-Identifier: MIT

#include "io/testing/faulty_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <thread>
#include <utility>

namespace qsf {
namespace {

void sleep_us(std::uint32_t us) {
  if (us != 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace

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

int FaultyFileOps::create_unnamed(const std::string& path) {
  if (plan.create_errno != 0) return -plan.create_errno;
  return plan.create_unnamed_errno != 0 ? -plan.create_unnamed_errno : base_.create_unnamed(path);
}

int FaultyFileOps::give_name(int handle, const std::string& path) {
  return plan.give_name_errno != 0 ? -plan.give_name_errno : base_.give_name(handle, path);
}

int FaultyFileOps::create_scratch(const std::string& path) {
  return plan.create_errno != 0 ? -plan.create_errno : base_.create_scratch(path);
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
  return note_reopened(base_.reopen(handle, direct), direct);
}

int FaultyFileOps::reopen_for_writing(int handle, bool direct) {
  if (plan.reopen_errno != 0) return -plan.reopen_errno;
  if (direct && plan.direct_open_errno != 0) return -plan.direct_open_errno;
  return note_reopened(base_.reopen_for_writing(handle, direct), direct);
}

int FaultyFileOps::note_reopened(int handle, bool direct) {
  if (handle >= 0 && direct) {
    const std::lock_guard lock(mutex_);
    direct_handles_.insert(handle);
  }
  return handle;
}

FileStorage FaultyFileOps::storage(int handle) {
  FileStorage storage = base_.storage(handle);
  if (plan.direct_alignment != UINT32_MAX) storage.direct_alignment = plan.direct_alignment;
  if (plan.in_memory) storage.is_in_memory = true;
  return storage;
}

int FaultyFileOps::advise(int handle, std::uint64_t offset, std::uint64_t bytes,
                          FileAdvice advice) {
  if (advice == FileAdvice::kDontNeed) drops_.fetch_add(1);
  if (advice == FileAdvice::kWillNeed) announced_bytes_.fetch_add(bytes);
  if (advice == FileAdvice::kRandom) {
    const std::lock_guard lock(mutex_);
    random_handles_.insert(handle);
  }
  return base_.advise(handle, offset, bytes, advice);
}

double FaultyFileOps::cached_share(int handle, std::uint64_t bytes) {
  return plan.cached_share >= 0 ? plan.cached_share : base_.cached_share(handle, bytes);
}

FaultyFileOps::ReadFault FaultyFileOps::fault_of_read(int handle, std::size_t n_bytes,
                                                      std::uint64_t offset) {
  const auto answer = [](std::int64_t result) {
    return ReadFault{.result = result, .is_answer = true};
  };
  if (interrupted()) return answer(-EINTR);
  if (plan.direct_read_errno != 0 && is_direct(handle)) return answer(-plan.direct_read_errno);
  std::size_t shown = n_bytes;
  if (plan.max_transfer_bytes != 0) shown = std::min(shown, plan.max_transfer_bytes);
  if (offset >= plan.truncate_at) return answer(0);
  shown = static_cast<std::size_t>(std::min<std::uint64_t>(shown, plan.truncate_at - offset));
  if (offset <= plan.read_error_at && plan.read_error_at - offset < shown) return answer(-EIO);
  return {.shown = shown};
}

std::int64_t FaultyFileOps::read_at(int handle, MutableByteSpan to, std::uint64_t offset) {
  const ReadFault fault = fault_of_read(handle, to.size(), offset);
  sleep_us(plan.read_delay_us);
  if (fault.is_answer) return fault.result;
  {
    const std::lock_guard lock(mutex_);
    const bool reads_ahead = !direct_handles_.contains(handle) && !random_handles_.contains(handle);
    reads_with_readahead_ += reads_ahead ? 1 : 0;
  }
  // A direct read keeps the length that its alignment demands; it becomes short afterwards.
  if (!is_direct(handle)) to = to.first(fault.shown);
  const std::int64_t n = base_.read_at(handle, to, offset);
  return std::min(n, static_cast<std::int64_t>(fault.shown));
}

// Reads that the plan answers never reach the ring below, and overtake those that do.
class FaultyFileOps::Ring final : public ReadRing {
 public:
  Ring(FaultyFileOps& ops, std::unique_ptr<ReadRing> base) noexcept
      : ops_(&ops), base_(std::move(base)) {}

  int register_memory(MutableByteSpan memory) override {
    return memory.size() > ops_->plan.lockable_bytes ? -ENOMEM : base_->register_memory(memory);
  }
  int submit(int handle, MutableByteSpan to, std::uint64_t offset, std::uint64_t tag) override {
    if (ops_->plan.ring_submit_errno != 0) return -ops_->plan.ring_submit_errno;
    const ReadFault fault = ops_->fault_of_read(handle, to.size(), offset);
    if (fault.is_answer) {
      answers_.push_back({.tag = tag, .result = fault.result});
      return 0;
    }
    if (!ops_->is_direct(handle)) to = to.first(fault.shown);
    const int result = base_->submit(handle, to, offset, tag);
    if (result == 0) shown_[tag] = fault.shown;
    return result;
  }
  int wait(RingDone& done) override {
    if (ops_->interrupted()) return -EINTR;
    sleep_us(ops_->plan.read_delay_us);
    if (!answers_.empty()) {
      done = answers_.front();
      answers_.pop_front();
      return 0;
    }
    if (ops_->plan.ring_wait_errno != 0) return -ops_->plan.ring_wait_errno;
    const int result = base_->wait(done);
    if (result == 0)
      done.result = std::min(done.result, static_cast<std::int64_t>(shown_[done.tag]));
    return result;
  }

 private:
  FaultyFileOps* ops_;
  std::unique_ptr<ReadRing> base_;
  std::deque<RingDone> answers_;
  std::map<std::uint64_t, std::size_t> shown_;  // bytes at most of each read in the ring below
};

int FaultyFileOps::open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) {
  if (plan.ring_errno != 0) return -plan.ring_errno;
  if (n_rings_.load() >= plan.max_rings) return -EMFILE;
  std::unique_ptr<ReadRing> base;
  const int result = base_.open_ring(depth, base);
  if (result != 0) return result;
  ring = std::make_unique<Ring>(*this, std::move(base));
  n_rings_.fetch_add(1);
  return 0;
}

int FaultyFileOps::map(int handle, std::uint64_t bytes, ByteSpan& mapping) {
  return plan.map_errno != 0 ? -plan.map_errno : base_.map(handle, bytes, mapping);
}
void FaultyFileOps::unmap(ByteSpan mapping) {
  base_.unmap(mapping);
}
int FaultyFileOps::advise_mapping(ByteSpan part, FileAdvice advice) {
  return base_.advise_mapping(part, advice);
}

std::int64_t FaultyFileOps::write_at(int handle, ByteSpan from, std::uint64_t offset) {
  if (interrupted()) return -EINTR;
  if (plan.max_transfer_bytes != 0) {
    from = from.first(std::min(from.size(), plan.max_transfer_bytes));
  }
  if (offset <= plan.write_error_at && plan.write_error_at - offset < from.size()) return -EIO;
  const std::uint64_t written = written_bytes_.load();
  if (written >= plan.disk_bytes) return -ENOSPC;
  if (from.size() > plan.disk_bytes - written) {
    from = from.first(static_cast<std::size_t>(plan.disk_bytes - written));
  }
  // A direct write is of whole units at a whole one, also where the disk is full behind them.
  if (is_direct(handle) && offset % 4096 != 0) return -EINVAL;
  if (is_direct(handle)) from = from.first(from.size() - from.size() % 512);
  if (from.empty()) return -ENOSPC;
  const std::int64_t n = base_.write_at(handle, from, offset);
  if (n > 0) written_bytes_.fetch_add(static_cast<std::uint64_t>(n));
  return n;
}

int FaultyFileOps::allocate(int handle, std::uint64_t bytes) {
  if (plan.allocate_errno != 0) return -plan.allocate_errno;
  return bytes > plan.disk_bytes ? -ENOSPC : base_.allocate(handle, bytes);
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
    random_handles_.erase(handle);
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
int MemoryFileOps::create_unnamed(const std::string&) {
  return -EROFS;
}
int MemoryFileOps::give_name(int, const std::string&) {
  return -EROFS;
}
int MemoryFileOps::create_scratch(const std::string&) {
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
int MemoryFileOps::reopen_for_writing(int, bool) {
  return -EROFS;
}
FileStorage MemoryFileOps::storage(int) {
  return {.disk_id = 0, .direct_alignment = 0, .is_in_memory = true};
}
int MemoryFileOps::advise(int, std::uint64_t, std::uint64_t, FileAdvice) {
  return 0;
}

int MemoryFileOps::map(int, std::uint64_t bytes, ByteSpan& mapping) {
  if (bytes > bytes_.size()) return -EINVAL;
  mapping = bytes_.first(static_cast<std::size_t>(bytes));
  return 0;
}
void MemoryFileOps::unmap(ByteSpan) {}
int MemoryFileOps::advise_mapping(ByteSpan, FileAdvice) {
  return 0;
}
int MemoryFileOps::open_ring(unsigned, std::unique_ptr<ReadRing>&) {
  return -ENOSYS;
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
int MemoryFileOps::allocate(int, std::uint64_t) {
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
