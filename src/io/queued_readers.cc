// SPDX-License-Identifier: MIT

#include "io/queued_readers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

// Less registered memory than one block is not worth its entry.
constexpr std::size_t kLeastRegisteredBytes = std::size_t{1} << 20;

}  // namespace

RingReader::RingReader(const ReadSource& source, std::unique_ptr<ReadRing> ring, unsigned depth,
                       MutableByteSpan memory)
    : source_(&source), ring_(std::move(ring)), slots_(depth) {
  if (!memory.empty()) register_memory(memory);
}

// Where RLIMIT_MEMLOCK is too low for all of the memory, half of it may fit: reads use all parts of
// the memory in turn, and reads into the registered part are faster.
void RingReader::register_memory(MutableByteSpan memory) {
  int error = ring_->register_memory(memory);
  if (error == 0) return;
  note_ = std::string(source_->ops->ring_name()) + ": " + std::to_string(memory.size()) +
          " bytes of buffers were not registered (" + std::strerror(-error) +
          (error == -ENOMEM ? "; ulimit -l bounds them)" : ")");
  std::size_t bytes = memory.size() / 2;
  for (; error == -ENOMEM && bytes >= kLeastRegisteredBytes; bytes /= 2) {
    bytes -= bytes % kDirectAlign;
    error = ring_->register_memory(memory.first(bytes));
    if (error == 0) note_ += ", but " + std::to_string(bytes) + " of them";
  }
}

RingReader::~RingReader() {
  while (n_in_flight_ > 0) wait();
}

void RingReader::start(const ReadRequest& request) {
  QSF_CHECK(n_in_flight_ < slots_.size());
  const auto is_free = [](const Entry& entry) { return entry.state == Slot::kFree; };
  const auto slot = static_cast<std::size_t>(std::find_if(slots_.begin(), slots_.end(), is_free) -
                                             slots_.begin());
  slots_[slot].read = PendingRead(*source_, request);
  ++n_in_flight_;
  go_on(slot);
}

// Submits the rest of a read, until it is in the ring or done. Without a ring wait() reads it.
void RingReader::go_on(std::size_t slot) {
  PendingRead& read = slots_[slot].read;
  slots_[slot].state = Slot::kStarted;
  while (!read.is_done() && ring_ != nullptr) {
    const int submitted = ring_->submit(source_->handle, read.to(), read.offset(), slot);
    if (submitted == 0) return;
    if (submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY) {
      read.take(submitted == -EBUSY ? -EAGAIN : submitted);
    } else {
      give_up_ring(-submitted);
    }
  }
  if (read.is_done()) slots_[slot].state = Slot::kDone;
}

// The ring is destroyed before any read returns: until then the kernel may write to its memory.
void RingReader::give_up_ring(int error) {
  ring_.reset();
  add_note(std::string(source_->ops->ring_name()) + ": the ring broke (" + std::strerror(error) +
           "); reading one at a time (pread)");
}

void RingReader::add_note(std::string_view text) {
  if (!note_.empty()) note_ += "; ";
  note_ += text;
}

ReadDone RingReader::hand_out(std::size_t slot) {
  Entry& entry = slots_[slot];
  if (entry.read.used_cache() && !used_cache_) {
    used_cache_ = true;
    add_note(kReadThroughCache);
  }
  entry.state = Slot::kFree;
  --n_in_flight_;
  return entry.read.outcome();
}

ReadDone RingReader::wait() {
  QSF_CHECK(n_in_flight_ > 0);
  const auto first = [this](Slot state) {
    return std::find_if(slots_.begin(), slots_.end(),
                        [state](const Entry& entry) { return entry.state == state; });
  };
  for (;;) {
    const auto done = first(Slot::kDone);
    if (done != slots_.end()) return hand_out(static_cast<std::size_t>(done - slots_.begin()));
    if (ring_ == nullptr) {
      const auto next = first(Slot::kStarted);
      next->read.read_blocking();
      next->state = Slot::kDone;
      continue;
    }
    RingDone answer;
    const int waited = ring_->wait(answer);
    if (waited == -EINTR || waited == -EAGAIN) continue;
    if (waited < 0) {
      give_up_ring(-waited);
      continue;
    }
    slots_[static_cast<std::size_t>(answer.tag)].read.take(answer.result);
    go_on(static_cast<std::size_t>(answer.tag));
  }
}

void BlockingReader::start(const ReadRequest& request) {
  QSF_CHECK(!is_waiting_);
  request_ = request;
  is_waiting_ = true;
}

ReadDone BlockingReader::wait() {
  QSF_CHECK(is_waiting_);
  is_waiting_ = false;
  PendingRead read(*source_, request_);
  read.read_blocking();
  if (read.used_cache()) note_ = kReadThroughCache;
  return read.outcome();
}

SplitReader::SplitReader(std::unique_ptr<AsyncReader> blocks, std::uint32_t block_bytes)
    : blocks_(std::move(blocks)), block_bytes_(block_bytes), entries_(blocks_->depth()) {
  QSF_CHECK(block_bytes != 0 && block_bytes % kDirectAlign == 0);
}

SplitReader::~SplitReader() {
  while (n_in_flight_ > 0) wait();
}

void SplitReader::start(const ReadRequest& request) {
  QSF_CHECK(n_in_flight_ < entries_.size());
  const auto free = std::find_if(entries_.begin(), entries_.end(),
                                 [](const Entry& entry) { return !entry.in_use; });
  *free = Entry{};
  free->in_use = true;
  free->request = request;
  free->number = n_started_++;
  ++n_in_flight_;
  fill();
}

// Returns the oldest request with bytes that no block was started for, or null.
SplitReader::Entry* SplitReader::next_to_begin() noexcept {
  Entry* next = nullptr;
  for (Entry& entry : entries_) {
    if (!entry.in_use || entry.started_bytes == entry.request.to.size()) continue;
    if (next == nullptr || entry.number < next->number) next = &entry;
  }
  return next;
}

void SplitReader::fill() {
  while (blocks_->in_flight() < blocks_->depth()) {
    Entry* const entry = next_to_begin();
    if (entry == nullptr) return;
    const ReadRequest& request = entry->request;
    const std::size_t n_bytes =
        std::min<std::size_t>(block_bytes_, request.to.size() - entry->started_bytes);
    blocks_->start({.offset = request.offset + entry->started_bytes,
                    .to = request.to.subspan(entry->started_bytes, n_bytes),
                    .tag = static_cast<std::uint64_t>(entry - entries_.data())});
    entry->started_bytes += n_bytes;
    ++entry->blocks_in_flight;
  }
}

ReadDone SplitReader::wait() {
  QSF_CHECK(n_in_flight_ > 0);
  for (;;) {
    const auto over = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
      return entry.in_use && entry.is_over();
    });
    if (over != entries_.end()) {
      over->in_use = false;
      --n_in_flight_;
      return {.tag = over->request.tag, .status = std::move(over->status)};
    }
    ReadDone block = blocks_->wait();
    Entry& entry = entries_[static_cast<std::size_t>(block.tag)];
    --entry.blocks_in_flight;
    if (!block.status.ok() && entry.status.ok()) {
      entry.status = std::move(block.status);
      entry.started_bytes = entry.request.to.size();
    }
    fill();
  }
}

}  // namespace qsf
