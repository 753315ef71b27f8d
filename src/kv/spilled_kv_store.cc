// SPDX-License-Identifier: MIT

#include "kv/spilled_kv_store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/bit_cast.h"
#include "base/check.h"
#include "kv/kv_block.h"
#include "platform/clock.h"

namespace qsf {
namespace {

// Most bytes of one read or write, in whole pages (at least one): a good size for disks (decision
// 013).
constexpr std::uint64_t kRunBytes = std::uint64_t{1} << 20;

// A cancellation comes from a signal handler, which can set a flag but wake no thread.
constexpr std::chrono::milliseconds kCancelPoll{20};

unsigned n_windows(const KvShape& shape) noexcept {
  return std::min(shape.n_layers, 2U);
}

Status of_keys(Status status) {
  return std::move(status).with_context("keys and values");
}

}  // namespace

std::uint64_t SpilledKvStore::page_stride(const KvShape& shape) noexcept {
  return align_up(shape.layer_bytes(), std::uint64_t{kDirectAlign});
}

std::uint64_t SpilledKvStore::file_bytes(const KvShape& shape, std::uint32_t n_pages) noexcept {
  return saturating_mul(saturating_mul(page_stride(shape), n_pages), shape.n_layers);
}

std::uint64_t SpilledKvStore::region_bytes(const KvShape& shape, std::uint32_t n_pages) noexcept {
  const std::uint64_t windows =
      saturating_mul(saturating_mul(page_stride(shape), n_pages), n_windows(shape));
  return saturating_add(windows, kDirectAlign);
}

std::uint64_t SpilledKvStore::heap_bytes(std::uint32_t n_pages) noexcept {
  return sizeof(SpilledKvStore) + 2 * sizeof(Window) + std::uint64_t{4} * n_pages;
}

Result<std::unique_ptr<SpilledKvStore>> SpilledKvStore::open(const KvShape& shape,
                                                             std::uint32_t n_pages,
                                                             std::unique_ptr<ScratchFile> file,
                                                             MutableByteSpan region) {
  QSF_CHECK(region.size() >= region_bytes(shape, n_pages));
  const std::string path = file->path();
  std::unique_ptr<SpilledKvStore> store(
      new SpilledKvStore(shape, n_pages, std::move(file), region));
  std::byte* const first = store->windows_.front().base;
  const std::uint64_t window_bytes = store->stride_ * n_pages;
  QSF_ASSIGN_OR_RETURN(
      store->queue_, store->device().make_queue(
                         {first, static_cast<std::size_t>(window_bytes * store->windows_.size())}));
  const int error = store->thread_.start(run_thread, store.get());
  if (error != 0) {
    return out_of_budget("%s: the system did not start the thread that reads it: %s", path.c_str(),
                         std::strerror(error));
  }
  return store;
}

SpilledKvStore::SpilledKvStore(const KvShape& shape, std::uint32_t n_pages,
                               std::unique_ptr<ScratchFile> file, MutableByteSpan region)
    : shape_(shape),
      n_pages_(n_pages),
      stride_(page_stride(shape)),
      file_(std::move(file)),
      windows_(n_windows(shape)),
      page_uses_(n_pages),
      is_lost_(n_pages) {
  const auto address = bit_cast<std::uintptr_t>(region.data());
  std::byte* base = region.data() + (align_up(address, std::uintptr_t{kDirectAlign}) - address);
  for (Window& window : windows_) {
    window.base = base;
    window.holds.resize(n_pages);
    base += stride_ * n_pages;
  }
}

SpilledKvStore::~SpilledKvStore() {
  if (!thread_.is_started()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status SpilledKvStore::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

KvSpillStats SpilledKvStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// The ring is full only when cancelled passes left many copies behind on a slow disk.
void SpilledKvStore::submit(const Job& job) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return n_jobs_ < jobs_.size(); });
    jobs_[(first_job_ + n_jobs_++) % jobs_.size()] = job;
    ++windows_[job.window].n_jobs;
    if (job.work == Work::kWrite) ++n_writes_;
  }
  changed_.notify_all();
}

// Returns whether the condition became true; else the pass was cancelled, and nothing more of it is
// written.
template <typename Condition>
bool SpilledKvStore::wait_until(const Condition& done) {
  std::unique_lock lock(mutex_);
  if (done()) return true;
  const std::uint64_t start = monotonic_ns();
  while (!done() && !is_cancelled_) {
    is_cancelled_ = cancel_ != nullptr && cancel_->load();
    if (!is_cancelled_) changed_.wait_for(lock, kCancelPoll);
  }
  stats_.wait_ns += monotonic_ns() - start;
  if (is_cancelled_) status_ = cancelled("cancelled while waiting for keys and values");
  return !is_cancelled_;
}

// An incomplete pass may have changed a window but not the file: in slots of its own rows, which
// are not read before they are stored again.
void SpilledKvStore::begin_pass(std::span<const Row> rows, const KvCache& kv,
                                const std::atomic<bool>* cancel) {
  in_pass_ = true;
  acquired_ = kNoLayer;
  cancel_ = cancel;
  is_cancelled_ = false;
  if (!wait_until([this] { return n_jobs_ == 0; })) return;
  {
    const std::lock_guard lock(mutex_);
    status_ = ok_status();
  }
  note_pages(rows, kv);
  for (unsigned i = 0; i < windows_.size(); ++i) {
    const auto window = static_cast<unsigned>((next_window_ + i) % windows_.size());
    submit({.work = Work::kRead, .window = window, .layer = i});
  }
}

// Rows of a sequence are stored from the first slot that the pass brings to its last one.
void SpilledKvStore::note_pages(std::span<const Row> rows, const KvCache& kv) {
  std::fill(page_uses_.begin(), page_uses_.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < rows.size();) {
    const SequenceId sequence = rows[i].sequence;
    const std::uint32_t first_slot = rows[i].kv_slot;
    while (i < rows.size() && rows[i].sequence == sequence) ++i;
    for (std::uint32_t p = 0; p < kv.n_held_pages(sequence); ++p) {
      const HeldPage held = kv.held_page(sequence, p);
      std::uint8_t& uses = page_uses_[held.page];
      if (held.first_slot < first_slot) uses |= kHasRows;
      if (held.first_slot + kKvPageSlots > first_slot) uses |= kIsStored;
    }
  }
  for (std::uint32_t page = 0; page < n_pages_; ++page) {
    if (page_uses_[page] == kIsStored) is_lost_[page] = 0;
    if ((page_uses_[page] & kHasRows) == 0 || is_lost_[page] == 0) continue;
    const std::lock_guard lock(mutex_);
    status_ = lost_;
  }
}

KvLayerPages SpilledKvStore::acquire_layer(std::uint32_t layer) {
  const Window& window = windows_[next_window_];
  if (acquired_ == layer) return {window.base, stride_};
  QSF_CHECK(in_pass_ && acquired_ == kNoLayer);
  if (is_cancelled_ || !wait_until([&window] { return window.n_jobs == 0; })) return {};
  QSF_CHECK(window.layer == layer);
  acquired_ = layer;
  // Unused slots are masked, not skipped: a new page must hold finite numbers.
  for (std::uint32_t page = 0; page < n_pages_; ++page) {
    if (page_uses_[page] != kIsStored) continue;
    std::memset(window.base + page * stride_, 0, static_cast<std::size_t>(stride_));
  }
  return {window.base, stride_};
}

void SpilledKvStore::release_layer(std::uint32_t layer) {
  if (is_cancelled_) return;
  QSF_CHECK(acquired_ == layer);
  acquired_ = kNoLayer;
  const auto ahead = static_cast<std::uint32_t>(windows_.size());
  const bool is_next_pass = layer + ahead >= shape_.n_layers;
  submit({.work = Work::kWrite, .window = next_window_});
  submit({.work = is_next_pass ? Work::kReadForNextPass : Work::kRead,
          .window = next_window_,
          .layer = (layer + ahead) % shape_.n_layers});
  next_window_ = (next_window_ + 1) % ahead;
}

Status SpilledKvStore::end_pass() {
  QSF_CHECK(in_pass_ && acquired_ == kNoLayer);
  if (!is_cancelled_) wait_until([this] { return n_writes_ == 0; });
  Status result = status();
  in_pass_ = !result.ok();
  return result;
}

void SpilledKvStore::copy_page(std::uint32_t from_page, std::uint32_t to_page) {
  QSF_CHECK(from_page < n_pages_ && to_page < n_pages_);
  submit({.work = Work::kCopy, .from_page = from_page, .to_page = to_page});
}

void SpilledKvStore::move_rows(std::span<const RowMove> moves) {
  QSF_CHECK(moves.size() <= moves_.size());
  if (moves.empty()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return n_moves_ == 0; });
    std::copy(moves.begin(), moves.end(), moves_.begin());
    n_moves_ = static_cast<std::uint32_t>(moves.size());
  }
  submit({.work = Work::kMove});
}

void* SpilledKvStore::run_thread(void* self) {
  static_cast<SpilledKvStore*>(self)->run();
  return nullptr;
}

void SpilledKvStore::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_stopping_ || n_jobs_ > 0; });
    if (is_stopping_) return;
    const Job job = jobs_[first_job_];
    // After a failure windows hold undefined bytes, which must not reach the file.
    const bool skips = job.work == Work::kWrite && !status_.ok();
    lock.unlock();
    Status done = skips ? ok_status() : do_job(job);
    lock.lock();
    if (!done.ok() && status_.ok()) status_ = of_keys(std::move(done));
    first_job_ = static_cast<unsigned>((first_job_ + 1) % jobs_.size());
    --n_jobs_;
    --windows_[job.window].n_jobs;
    if (job.work == Work::kWrite) --n_writes_;
    if (job.work == Work::kMove) n_moves_ = 0;
    stats_.bytes_read = bytes_read_;
    stats_.bytes_written = bytes_written_;
    changed_.notify_all();
  }
}

Status SpilledKvStore::do_job(const Job& job) {
  Window& window = windows_[job.window];
  switch (job.work) {
    case Work::kRead: return read_pages(window, job.layer, kHasRows);
    case Work::kReadForNextPass: {
      // The pass that needs the missing pages reads them again and reports the error.
      static_cast<void>(read_pages(window, job.layer, kHasRows | kIsStored));
      return ok_status();
    }
    case Work::kWrite: return write_pages(window);
    case Work::kCopy:
    case Work::kMove: copy_or_move(job);
  }
  return ok_status();
}

// The pass that reads a page which was to be copied, or whose rows were to be moved, reports the
// error.
void SpilledKvStore::copy_or_move(const Job& job) {
  for (Window& window : windows_) window.layer = kNoLayer;
  const bool copies = job.work == Work::kCopy;
  Status done = copies ? copy_layers(job.from_page, job.to_page) : move_in_layers();
  if (copies) {
    is_lost_[job.to_page] = done.ok() ? is_lost_[job.from_page] : 1;
  } else {
    for (const RowMove& move : std::span(moves_).first(n_moves_)) {
      if (!done.ok() || is_lost_[move.from_page] != 0) is_lost_[move.to_page] = 1;
    }
  }
  if (done.ok()) return;
  lost_ = of_keys(std::move(done))
              .with_context(
                  "a sequence lost rows when its page was to be copied or its rows to be "
                  "moved; begin it anew");
}

std::uint64_t SpilledKvStore::file_offset(std::uint32_t layer, std::uint32_t page) const noexcept {
  return (std::uint64_t{layer} * n_pages_ + page) * stride_;
}

MutableByteSpan SpilledKvStore::bytes_of(const Window& window, Run run) const noexcept {
  return {window.base + run.first * stride_, static_cast<std::size_t>(run.n * stride_)};
}

// Calls action(run) for neighbouring pages that are wanted, in runs of kRunBytes at most.
template <typename Wanted, typename Action>
void SpilledKvStore::for_runs(const Wanted& wanted, const Action& action) {
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kRunBytes / stride_));
  for (std::uint32_t page = 0; page < n_pages_;) {
    Run run = {page, 0};
    while (run.n < most && page < n_pages_ && wanted(page)) {
      ++run.n;
      ++page;
    }
    if (run.n > 0) {
      action(run);
    } else {
      ++page;
    }
  }
}

Status SpilledKvStore::read_pages(Window& window, std::uint32_t layer, unsigned uses) {
  if (window.layer != layer) {
    std::fill(window.holds.begin(), window.holds.end(), std::uint8_t{0});
    window.layer = layer;
  }
  Status status;
  const auto keep_first = [&status](Status next) {
    if (status.ok()) status = std::move(next);
  };
  for_runs(
      [&](std::uint32_t page) { return (page_uses_[page] & uses) != 0 && window.holds[page] == 0; },
      [&](Run run) {
        if (queue_->in_flight() == queue_->depth()) keep_first(finish_read(window));
        if (!status.ok()) return;
        queue_->start({.offset = file_offset(layer, run.first),
                       .to = bytes_of(window, run),
                       .tag = std::uint64_t{run.first} << 32U | run.n});
      });
  while (queue_->in_flight() > 0) keep_first(finish_read(window));
  return status;
}

Status SpilledKvStore::finish_read(Window& window) {
  ReadDone done = queue_->wait();
  QSF_RETURN_IF_ERROR(std::move(done.status));
  const auto first = static_cast<std::uint32_t>(done.tag >> 32U);
  const auto n = static_cast<std::uint32_t>(done.tag);
  std::fill_n(window.holds.begin() + first, n, std::uint8_t{1});
  bytes_read_ += n * stride_;
  return ok_status();
}

Status SpilledKvStore::write_pages(Window& window) {
  Status status;
  for_runs([&](std::uint32_t page) { return (page_uses_[page] & kIsStored) != 0; },
           [&](Run run) {
             if (!status.ok()) return;
             status = file_->write(file_offset(window.layer, run.first), bytes_of(window, run));
             if (!status.ok()) return;
             std::fill_n(window.holds.begin() + run.first, run.n, std::uint8_t{1});
             bytes_written_ += run.n * stride_;
           });
  return status;
}

Status SpilledKvStore::copy_layers(std::uint32_t from_page, std::uint32_t to_page) {
  Window& window = windows_.front();
  for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    const MutableByteSpan bytes = bytes_of(window, {from_page, 1});
    queue_->start({.offset = file_offset(layer, from_page), .to = bytes, .tag = 0});
    QSF_RETURN_IF_ERROR(queue_->wait().status);
    bytes_read_ += stride_;
    QSF_RETURN_IF_ERROR(file_->write(file_offset(layer, to_page), bytes));
    bytes_written_ += stride_;
  }
  return ok_status();
}

// Pages are read once a layer, where the moves name them first.
Status SpilledKvStore::move_in_layers() {
  Window& window = windows_.front();
  const std::span<const RowMove> moves = std::span(moves_).first(n_moves_);
  const auto read = [&](std::uint32_t layer, std::uint32_t page) {
    if (std::exchange(window.holds[page], std::uint8_t{1}) != 0) return ok_status();
    queue_->start(
        {.offset = file_offset(layer, page), .to = bytes_of(window, {page, 1}), .tag = 0});
    bytes_read_ += stride_;
    return queue_->wait().status;
  };
  for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    std::fill(window.holds.begin(), window.holds.end(), std::uint8_t{0});
    for (const RowMove& move : moves) {
      QSF_RETURN_IF_ERROR(read(layer, move.from_page));
      QSF_RETURN_IF_ERROR(read(layer, move.to_page));
    }
    qsf::move_rows(shape_.of_layer(layer), {window.base, stride_}, moves);
    for (const RowMove& move : moves) {
      if (std::exchange(window.holds[move.to_page], std::uint8_t{0}) == 0) continue;
      QSF_RETURN_IF_ERROR(
          file_->write(file_offset(layer, move.to_page), bytes_of(window, {move.to_page, 1})));
      bytes_written_ += stride_;
    }
  }
  return ok_status();
}

}  // namespace qsf
