// SPDX-License-Identifier: MIT

#include "io/split_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace qsf {

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
