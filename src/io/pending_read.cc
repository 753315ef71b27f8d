// SPDX-License-Identifier: MIT

#include "io/pending_read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace qsf {

Status check_range(const ReadSource& source, std::uint64_t offset, std::uint64_t bytes) {
  if (offset <= source.size_bytes && bytes <= source.size_bytes - offset) return ok_status();
  return corrupt("%s: %llu bytes at offset %llu, but the file has %llu bytes; it is truncated",
                 source.name.c_str(), static_cast<unsigned long long>(bytes),
                 static_cast<unsigned long long>(offset),
                 static_cast<unsigned long long>(source.size_bytes));
}

PendingRead::PendingRead(const ReadSource& source, const ReadRequest& request)
    : source_(&source), request_(request) {
  Status in_range = check_range(source, request.offset, request.to.size());
  if (!in_range.ok()) {
    fail(std::move(in_range));
  } else if (request.to.empty()) {
    is_done_ = true;
  }
}

MutableByteSpan PendingRead::to() const noexcept {
  const MutableByteSpan rest = request_.to.subspan(static_cast<std::size_t>(done_bytes_));
  return rest.first(std::min(rest.size(), kMaxTransferBytes));
}

void PendingRead::take(std::int64_t result) {
  if (result > 0) {
    advance(static_cast<std::uint64_t>(result));
  } else if (result == 0) {
    fail(
        corrupt("%s: the file ends at offset %llu but had %llu bytes when it was opened; it was "
                "truncated meanwhile",
                source_->name.c_str(), static_cast<unsigned long long>(offset()),
                static_cast<unsigned long long>(source_->size_bytes)));
  } else if (result == -EAGAIN || (result == -EINVAL && source_->direct())) {
    stall(static_cast<int>(-result));
  } else if (result != -EINTR) {
    fail(io_error("%s: reading %zu bytes at offset %llu failed: %s", source_->name.c_str(),
                  to().size(), static_cast<unsigned long long>(offset()),
                  std::strerror(static_cast<int>(-result))));
  }
}

void PendingRead::read_blocking() {
  while (!is_done_) take(source_->ops->read_at(source_->handle, to(), offset()));
}

// A direct read continues at the last complete unit of alignment.
void PendingRead::advance(std::uint64_t bytes) {
  const std::uint64_t before = done_bytes_;
  done_bytes_ = std::min<std::uint64_t>(before + bytes, request_.to.size());
  if (done_bytes_ == request_.to.size()) {
    is_done_ = true;
    if (source_->drop_cached) {
      source_->ops->advise(source_->handle, request_.offset, request_.to.size(),
                           FileAdvice::kDontNeed);
    }
    return;
  }
  if (source_->direct()) done_bytes_ -= done_bytes_ % source_->alignment;
  if (done_bytes_ == before) {
    stall(0);
  } else {
    n_stalls_ = 0;
  }
}

// EINVAL means that this file system refuses direct reads after all: asking again is of no use.
void PendingRead::stall(int error) {
  if (error != EINVAL && ++n_stalls_ < kMaxStalls) return;
  finish_through_cache();
}

void PendingRead::finish_through_cache() {
  used_cache_ = source_->direct();
  const std::uint64_t first = offset();
  const std::uint64_t bytes = request_.to.size() - done_bytes_;
  ReadSource cached = *source_;
  cached.handle = source_->cached_handle;
  cached.alignment = 1;
  cached.drop_cached = used_cache_ || source_->drop_cached;
  PendingRead rest(cached, {.offset = first,
                            .to = request_.to.subspan(static_cast<std::size_t>(done_bytes_)),
                            .tag = request_.tag});
  // Blocking, and EAGAIN from a blocking read of a file does not repeat itself for ever.
  for (unsigned n_refused = 0; !rest.is_done();) {
    const std::int64_t n = cached.ops->read_at(cached.handle, rest.to(), rest.offset());
    if (n == -EAGAIN && ++n_refused >= kMaxStalls) {
      return fail(io_error("%s: reading %llu bytes at offset %llu failed: %s",
                           source_->name.c_str(), static_cast<unsigned long long>(bytes),
                           static_cast<unsigned long long>(first), std::strerror(EAGAIN)));
    }
    if (n != -EAGAIN) rest.take(n);
  }
  done_bytes_ = request_.to.size();
  is_done_ = true;
  status_ = rest.outcome().status;
}

void PendingRead::fail(Status status) {
  status_ = std::move(status);
  is_done_ = true;
}

ReadDone PendingRead::outcome() {
  return {.tag = request_.tag, .status = std::move(status_)};
}

}  // namespace qsf
