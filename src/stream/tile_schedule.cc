// SPDX-License-Identifier: MIT

#include "stream/tile_schedule.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/check.h"
#include "base/ranges.h"
#include "platform/clock.h"
#include "platform/memory.h"

namespace qsf {
namespace {

// A cancellation comes from a signal handler, which can set a flag but wake no thread.
constexpr std::chrono::milliseconds kCancelPoll{20};

// A ring may be made, or made of other tiles, when residents are dropped.
std::uint32_t max_slots(const TileTable& table) noexcept {
  return table.n_tiles();
}

ExpertCache make_expert_cache(const TileTable& table, std::uint64_t read_once_bytes) {
  if (!table.has_experts()) return {};
  const std::uint64_t largest = *ranges::max_element(table.expert_bytes());
  const std::uint64_t by_bytes = read_once_bytes / std::max<std::uint64_t>(largest, 1);
  const std::uint64_t read_once_slots = std::max<std::uint64_t>(
      kLeastExpertSlots, std::min<std::uint64_t>(by_bytes, table.expert_slots().size() / 8));
  return {table.expert_bytes(), table.reader().spec().n_experts, table.expert_slots(),
          static_cast<std::uint32_t>(read_once_slots)};
}

ExpertPrefetch make_prefetch(const TileTable& table) {
  const ModelSpec& spec = table.reader().spec();
  if (!table.has_experts()) return {};
  return {spec.n_layers, spec.n_experts_used, table.residency().expert_pass_bytes};
}

}  // namespace

TileSchedule::TileSchedule(const TileTable& table, const ReadDevice& device, MutableByteSpan region,
                           const std::atomic<bool>* cancel)
    : table_(table),
      device_(device),
      region_(region),
      ring_offset_(table.ring_offset()),
      cancel_(cancel),
      uses_(table.n_all_tiles()),
      ring_(table.residency().ring_bytes, max_slots(table)),
      next_vectors_(table.n_tiles()),
      experts_(make_expert_cache(table, kReadOnceBytes)),
      prefetch_(make_prefetch(table)),
      open_ns_(monotonic_ns()) {
  for (TileId id = 0; id < table.n_all_tiles(); ++id) {
    uses_[id].resident = table.tile(id).resident;
    if (table.is_vectors(id)) {
      ++n_vectors_unsettled_;
    } else if (uses_[id].resident) {
      ++n_residents_unsettled_;
    }
  }
  wanted_.reserve(table.reader().spec().n_experts);
  plan_.add({0, table.head_end()});
  cursor_ = first_streamed();
}

std::uint64_t TileSchedule::heap_bytes(const TileTable& table) noexcept {
  return sizeof(TileSchedule) + table.n_all_tiles() * sizeof(TileUse) +
         TileRing::heap_bytes(max_slots(table)) +
         table.reader().spec().n_experts * sizeof(ExpertId) +
         (table.has_experts() ? ExpertPrefetch::heap_bytes(table.reader().spec().n_layers,
                                                           table.reader().spec().n_experts_used)
                              : 0) +
         ExpertCache::heap_bytes(static_cast<std::uint32_t>(table.expert_bytes().size()),
                                 static_cast<std::uint32_t>(table.expert_slots().size()));
}

// Returns the position of the plan's next streamed tile after `position`, after the last one the
// first of the next pass; kNoPosition without one.
std::uint32_t TileSchedule::next_streamed(std::uint32_t position) const {
  const std::span<const TileId> order = table_.order();
  std::uint32_t p = position;
  for (std::uint32_t n = 0; n < plan_.n_tiles(); ++n) {
    p = plan_.next(p);
    const TileUse& use = uses_[order[p]];
    if (!use.resident && use.state != TileState::kFailed) return p;
  }
  return kNoPosition;
}

// Returns the position of the first streamed tile of a pass, kNoPosition when there is none.
std::uint32_t TileSchedule::first_streamed() const {
  return next_streamed(kNoPosition);
}

// Returns the tile to be read next, or kNoTile while there is nothing to read or no room for it.
// Vectors come first, because they are waited for together; then the tile that is waited for, and
// those of experts that the pass wants; then resident and streamed tiles in the order of the plan,
// and residents alone, also those outside of the plan, while the ring is full.
TileId TileSchedule::pick() {
  if (next_vectors_ < table_.n_all_tiles()) return next_vectors_;
  if (urgent_ != kNoTile && uses_[urgent_].state == TileState::kAbsent &&
      !(no_slot_ && is_of_expert(urgent_))) {
    return urgent_;
  }
  if (const TileId of_expert = pick_of_expert(); of_expert != kNoTile) return of_expert;
  const std::span<const TileId> order = table_.order();
  const TileId resident = pick_resident();
  if (cursor_ != kNoPosition && uses_[order[cursor_]].state == TileState::kFailed) {
    cursor_ = next_streamed(cursor_);
  }
  if (cursor_ == kNoPosition) return resident != kNoTile ? resident : pick_guessed();
  const TileId streamed = order[cursor_];
  // A ring that holds all streamed tiles has come round to one that is still there.
  const bool can_stream =
      uses_[streamed].state == TileState::kAbsent && ring_.has_room(table_.place_bytes(streamed));
  if (!can_stream) return resident;
  const bool is_first = resident != kNoTile && resident_cursor_ < cursor_;
  return is_first && plan_.contains(resident_cursor_) ? resident : streamed;
}

TileId TileSchedule::pick_resident() {
  const std::span<const TileId> order = table_.order();
  for (; resident_cursor_ < order.size(); ++resident_cursor_) {
    const TileUse& use = uses_[order[resident_cursor_]];
    if (use.resident && use.state == TileState::kAbsent) return order[resident_cursor_];
  }
  return kNoTile;
}

// Makes a job of a tile, or returns false when its expert gets no slot.
bool TileSchedule::take(TileId id, ReadJob& job) {
  TileUse& use = uses_[id];
  bool guessed = false;
  if (is_of_expert(id)) {
    const ExpertId expert = expert_of(id);
    guessed = experts_.is_guessed(expert) && !experts_.is_wanted(expert) && id != urgent_;
    if (!(guessed ? take_guess_slot(expert) : take_expert_slot(expert))) return false;
    if (guessed) ++n_guess_jobs_;
    experts_.hold(expert_of(id));
    ++n_expert_jobs_;
    stats_.expert_bytes_read += align_up(table_.info(id).stored_bytes, kTileAlign);
  }
  use.state = TileState::kReading;
  if (id == next_vectors_) ++next_vectors_;
  if (id == urgent_) urgent_ = kNoTile;
  if (!use.resident && !is_of_expert(id)) {
    use.slot = ring_.take(id, table_.place_bytes(id));
    cursor_ = next_streamed(cursor_);
    ++n_ring_jobs_;
  }
  const std::uint64_t now_ns = monotonic_ns();
  if (n_reading_++ == 0) reading_since_ns_ = now_ns;
  use.event = kNoEvent;
  if (n_events_ < trace_.size()) {
    use.event = n_events_++;
    trace_[use.event] = {.tile = id, .read_start_ns = now_ns};
  }
  job = {.tile = id,
         .slot = use.slot,
         .place = place_of(id, use.slot),
         .first = !use.checked,
         .guessed = guessed};
  return true;
}

TileSchedule::Claim TileSchedule::claim(bool wait, ReadJob& job,
                                        std::optional<std::chrono::milliseconds> longest) {
  Lock lock(mutex_);
  for (;;) {
    if (stopping_) return Claim::kStop;
    const TileId id = pick();
    if (id != kNoTile) {
      if (!take(id, job)) continue;
      wake_readers();
      return Claim::kJob;
    }
    if (!wait) return Claim::kNothing;
    ++n_idle_readers_;
    if (longest.has_value()) {
      wait = work_ready_.wait_for(lock, *longest) != std::cv_status::timeout;
    } else {
      work_ready_.wait(lock);
    }
    --n_idle_readers_;
  }
}

// One thread is enough: it wakes the next when it finds a job.
void TileSchedule::wake_readers() {
  if (n_idle_readers_ > 0 && pick() != kNoTile) work_ready_.notify_one();
}

bool TileSchedule::read_ended(const ReadJob& job) {
  const Lock lock(mutex_);
  const std::uint64_t now_ns = monotonic_ns();
  if (--n_reading_ == 0) stats_.read_ns += now_ns - reading_since_ns_;
  stats_.bytes_read += align_up(table_.info(job.tile).stored_bytes, kTileAlign);
  ++stats_.tiles_read;
  if (stopping_ || !is_in_ring(job.tile, job.slot)) return false;
  if (TileEvent* event = event_of(job.tile)) event->read_end_ns = now_ns;
  return true;
}

void TileSchedule::complete(const ReadJob& job, const PrepareTimes& times, Status status) {
  const Lock lock(mutex_);
  if (stopping_) return;
  stats_.check_ns += times.check_ns;
  stats_.decompress_ns += times.decompress_ns;
  TileUse& use = uses_[job.tile];
  if (job.slot != kNoSlot) --n_ring_jobs_;
  if (is_of_expert(job.tile)) {
    --n_expert_jobs_;
    if (job.guessed) --n_guess_jobs_;
    experts_.release(expert_of(job.tile));
    no_slot_ = false;
  }
  if (!is_in_ring(job.tile, job.slot)) {
    ring_.give_back(job.slot);
  } else {
    if (use.resident) {
      --(table_.is_vectors(job.tile) ? n_vectors_unsettled_ : n_residents_unsettled_);
    }
    if (status.ok()) {
      use.state = TileState::kReady;
      use.checked = true;
      if (use.resident) loaded_bytes_ += table_.info(job.tile).stored_bytes;
      if (TileEvent* event = event_of(job.tile)) event->ready_ns = monotonic_ns();
    } else {
      use.state = TileState::kFailed;
      if (job.slot != kNoSlot) ring_.give_back(std::exchange(use.slot, kNoSlot));
      failures_.emplace_back(job.tile, std::move(status));
    }
  }
  if (caller_waits_) tile_settled_.notify_one();
  wake_readers();
}

void TileSchedule::note_queue(std::string_view note) {
  const Lock lock(mutex_);
  queue_note_ = note;
}

std::string TileSchedule::reading_note() const {
  const Lock lock(mutex_);
  return queue_note_;
}

void TileSchedule::stop() {
  const Lock lock(mutex_);
  stopping_ = true;
  work_ready_.notify_all();
}

void TileSchedule::wait_for_tiles(Lock& lock) {
  if (waiting_reader_ != nullptr) {
    lock.unlock();
    waiting_reader_->read_one();
    return lock.lock();
  }
  caller_waits_ = true;
  tile_settled_.wait_for(lock, kCancelPoll);
  caller_waits_ = false;
}

Status TileSchedule::failure_of(TileId id) const {
  for (const auto& [tile, status] : failures_) {
    if (tile == id) return status;
  }
  return ok_status();
}

// Returns the failed tile in [begin, end) that comes first in the file, or kNoTile.
TileId TileSchedule::first_failed(TileId begin, TileId end) const {
  TileId first = kNoTile;
  for (const auto& [tile, status] : failures_) {
    if (tile >= begin && tile < end) first = std::min(first, tile);
  }
  return first;
}

bool TileSchedule::is_settled_before(TileId id) const {
  return std::all_of(uses_.begin(), uses_.begin() + id, [](const TileUse& use) {
    return !use.resident || use.state == TileState::kReady || use.state == TileState::kFailed;
  });
}

Status TileSchedule::wait_for_vectors() {
  Lock lock(mutex_);
  while (n_vectors_unsettled_ > 0) {
    if (is_cancelled()) {
      return cancelled("%s: loading was cancelled", table_.reader().file().path().c_str());
    }
    wait_for_tiles(lock);
  }
  return failure_of(first_failed(table_.n_tiles(), table_.n_all_tiles()));
}

Status TileSchedule::load(LoadProgress on_progress, void* user) {
  const std::uint64_t total = table_.residency().resident_stored_bytes;
  std::uint64_t reported = 0;
  Lock lock(mutex_);
  for (;;) {
    if (is_cancelled()) {
      return cancelled("%s: loading was cancelled after %llu of %llu bytes",
                       table_.reader().file().path().c_str(),
                       static_cast<unsigned long long>(loaded_bytes_),
                       static_cast<unsigned long long>(total));
    }
    // Tiles are read in another order than the file's, but the error is the first of the file.
    const TileId failed = first_failed(0, table_.n_tiles());
    if (failed != kNoTile && is_settled_before(failed)) return failure_of(failed);
    if (on_progress != nullptr && loaded_bytes_ != reported) {
      reported = loaded_bytes_;
      lock.unlock();
      on_progress(reported, total, user);
      lock.lock();
      continue;
    }
    if (n_residents_unsettled_ == 0) break;
    wait_for_tiles(lock);
  }
  stats_.load_ns = monotonic_ns() - open_ns_;
  return ok_status();
}

void TileSchedule::start_pass(const AccessPlan& plan) {
  const Lock lock(mutex_);
  plan_ = plan;
  end_guesses();
  prefetch_.start_pass();
  experts_.start_pass();
  wanted_.clear();
  next_wanted_ = 0;
  no_slot_ = false;
  const std::span<const TileId> order = table_.order();
  const std::uint32_t first = first_streamed();
  if (first == kNoPosition) {
    cursor_ = kNoPosition;
    return;
  }
  const TileId id = order[first];
  if (uses_[id].slot == kNoSlot) {
    restart_at(id);
    return;
  }
  pass_over_older(uses_[id].slot);
  // Read-ahead followed the plan before: it goes on behind the tiles that both begin with.
  cursor_ = first;
  while (uses_[order[cursor_]].slot != kNoSlot) {
    cursor_ = next_streamed(cursor_);
    if (cursor_ == first) break;
  }
  wake_readers();
}

// Frees the slot of a tile that is not held.
void TileSchedule::leave_ring(TileId id) {
  TileUse& use = uses_[id];
  if (table_.tile(id).mapped) {
    device_.drop(table_.info(id).file_offset, table_.info(id).stored_bytes);
  }
  ring_.give_back(std::exchange(use.slot, kNoSlot));
  use.state = TileState::kAbsent;
}

void TileSchedule::pass_over(RingSlot slot) {
  const TileId id = ring_.tile(slot);
  TileUse& use = uses_[id];
  if (!ring_.is_taken(slot) || !is_in_ring(id, slot) || use.holds > 0) return;
  if (use.state == TileState::kReady) {
    leave_ring(id);
  } else {  // the read continues; its result is dropped
    use.slot = kNoSlot;
    use.state = TileState::kAbsent;
  }
}

// Skips the tiles that were read before the one in `slot`; all tiles for kNoSlot.
void TileSchedule::pass_over_older(RingSlot slot) {
  for (std::uint32_t age = 0; age < ring_.n_slots();) {
    const RingSlot older = ring_.slot(age);
    if (older == slot) return;
    const std::uint32_t n_before = ring_.n_slots();
    pass_over(older);
    // Slots given back at the front move the others up.
    age = ring_.n_slots() < n_before ? 0 : age + 1;
  }
}

// Restarts the ring at a tile that is not in it; all other tiles leave the ring.
void TileSchedule::restart_at(TileId id) {
  const std::uint32_t position = table_.tile(id).position;
  if (cursor_ != position) ++stats_.ring_restarts;
  pass_over_older(kNoSlot);
  cursor_ = position;
  wake_readers();
}

// Returns whether the next tile can never get room: nothing is being read, and it does not fit.
bool TileSchedule::is_stuck(TileId id) const {
  if (is_of_expert(id)) return n_expert_jobs_ == 0 && no_slot_;
  return n_ring_jobs_ == 0 && !ring_.has_room(table_.place_bytes(id));
}

bool TileSchedule::lacks_room(TileId id) {
  const Lock lock(mutex_);
  const TileUse& use = uses_[id];
  if (use.state != TileState::kAbsent || use.resident) return false;
  if (!is_of_expert(id)) return !ring_.has_room(table_.place_bytes(id));
  const ExpertId expert = expert_of(id);
  return experts_.slot_of(expert) == kNoExpertSlot && experts_.find_slot(expert) == kNoExpertSlot;
}

Status TileSchedule::no_room_for(TileId id) const {
  const auto bytes = static_cast<unsigned long long>(table_.place_bytes(id));
  if (is_of_expert(id)) {
    return out_of_budget(
        "a weight tile of %llu bytes: the %u experts in memory are all in use; release tiles first",
        bytes, experts_.n_slots());
  }
  return out_of_budget(
      "a weight tile of %llu bytes does not fit the ring of %llu bytes, %llu of them in use; "
      "release tiles first",
      bytes, static_cast<unsigned long long>(ring_.size_bytes()),
      static_cast<unsigned long long>(held_ring_bytes_));
}

void TileSchedule::hold(TileId id) {
  TileUse& use = uses_[id];
  const bool is_first = use.holds++ == 0;
  if (is_first && is_of_expert(id)) experts_.hold(expert_of(id));
  if (is_first && use.slot != kNoSlot) held_ring_bytes_ += ring_.bytes(use.slot);
  if (use.slot != kNoSlot) pass_over_older(use.slot);
  if (TileEvent* event = event_of(id); event != nullptr && event->acquired_ns == 0) {
    event->acquired_ns = monotonic_ns();
  }
}

// Has a tile read that is waited for. Returns false when it can never get room.
bool TileSchedule::begin_missing(TileId id) {
  const TileUse& use = uses_[id];
  if (use.resident || is_of_expert(id)) {
    if (use.state == TileState::kAbsent) urgent_ = id;
    wake_readers();
    return !(use.state == TileState::kAbsent && !use.resident && is_stuck(id));
  }
  if (use.slot != kNoSlot) {
    pass_over_older(use.slot);
    wake_readers();
    return true;
  }
  restart_at(id);
  return !is_stuck(id);
}

Status TileSchedule::acquire(TileId id) {
  QSF_CHECK(id < table_.n_tiles());
  Lock lock(mutex_);
  TileUse& use = uses_[id];
  const std::uint64_t start_ns = use.state == TileState::kReady ? 0 : monotonic_ns();
  while (use.state != TileState::kReady) {
    if (use.state == TileState::kFailed) return failure_of(id);
    if (is_cancelled()) return cancelled("cancelled while waiting for a weight tile");
    if (!begin_missing(id)) return no_room_for(id);
    wait_for_tiles(lock);
  }
  if (start_ns != 0) stats_.wait_ns += monotonic_ns() - start_ns;
  ++stats_.tiles_acquired;
  hold(id);
  wake_readers();
  return ok_status();
}

std::uint32_t TileSchedule::acquire_ready(TileId first, std::uint32_t max_tiles) {
  QSF_CHECK(first <= table_.n_tiles());
  const Lock lock(mutex_);
  max_tiles = std::min(max_tiles, table_.n_tiles() - first);
  std::uint32_t n = 0;
  for (; n < max_tiles; ++n) {
    const TileUse& use = uses_[first + n];
    if (use.state != TileState::kReady) break;
    // The other half of the ring is for tiles that are read while these are computed with.
    const bool adds = use.slot != kNoSlot && use.holds == 0;
    if (adds && held_ring_bytes_ > 0 &&
        held_ring_bytes_ + ring_.bytes(use.slot) > ring_.size_bytes() / 2) {
      break;
    }
    hold(first + n);
  }
  stats_.tiles_acquired += n;
  if (n > 0) wake_readers();
  return n;
}

void TileSchedule::release(TileId first, std::uint32_t n_tiles) {
  QSF_CHECK(first <= table_.n_tiles() && n_tiles <= table_.n_tiles() - first);
  const Lock lock(mutex_);
  for (TileId id = first; id < first + n_tiles; ++id) {
    TileUse& use = uses_[id];
    QSF_CHECK(use.holds > 0);
    if (--use.holds > 0) continue;
    if (is_of_expert(id)) {
      experts_.release(expert_of(id));
      no_slot_ = false;
    }
    if (TileEvent* event = event_of(id)) {
      event->released_ns = monotonic_ns();
      use.event = kNoEvent;
    }
    if (use.slot == kNoSlot) continue;
    held_ring_bytes_ -= ring_.bytes(use.slot);
    leave_ring(id);
  }
  wake_readers();
}

// Makes a resident tile a streamed one. Requires  it is not held and not being read
void TileSchedule::stop_keeping(TileId id) {
  TileUse& use = uses_[id];
  QSF_CHECK(use.resident && use.holds == 0 && use.state != TileState::kReading);
  use.resident = false;
  if (urgent_ == id) urgent_ = kNoTile;  // of a wait that was cancelled: its place is gone
  if (use.state == TileState::kAbsent) --n_residents_unsettled_;
  if (use.state == TileState::kReady) {
    use.state = TileState::kAbsent;
    loaded_bytes_ -= table_.info(id).stored_bytes;
  }
}

// Where everything was resident there is no ring: the places of the last layers' tiles, which lie
// side by side before the staging, become one. False when they are too few.
bool TileSchedule::make_ring(Lock& lock) {
  const WeightLimits& limits = table_.residency().limits;
  const std::uint64_t least = kLeastRingTiles * table_.largest_place_bytes();
  const std::uint64_t wanted =
      std::max(least, std::min(limits.ring_bytes != 0 ? limits.ring_bytes : kDefaultRingBytes,
                               table_.residency().pinned_bytes / 4));
  const std::span<const TileId> layers = table_.order().first(table_.head_begin());
  // Mapped tiles have no place here. They take their share of a ring's bytes, but give it none
  // unless all of them are mapped, and no byte of it is ever used.
  const bool copies = std::any_of(layers.begin(), layers.end(),
                                  [this](TileId id) { return !table_.tile(id).mapped; });
  std::size_t first = layers.size();
  std::uint64_t bytes = 0;
  for (; first > 0 && bytes < wanted; --first) {
    const TileId id = layers[first - 1];
    if (table_.tile(id).mapped != copies) bytes += table_.place_bytes(id);
  }
  if (bytes < least) return false;
  for (const TileId id : layers.subspan(first)) {
    while (uses_[id].state == TileState::kReading) wait_for_tiles(lock);
    stop_keeping(id);
  }
  ring_offset_ = copies ? table_.staging_offset() - bytes : table_.ring_offset();
  ring_.resize(bytes);
  return true;
}

std::uint64_t TileSchedule::drop_residents(std::uint64_t bytes) {
  Lock lock(mutex_);
  const std::uint64_t of_experts = drop_experts(bytes);
  if (of_experts >= bytes) return of_experts;
  bytes -= of_experts;
  if (ring_.size_bytes() == 0 && !make_ring(lock)) return of_experts;
  const std::span<const TileId> layers = table_.order().first(table_.head_begin());
  const auto can_drop = [this](TileId id) {
    return uses_[id].resident && uses_[id].holds == 0 && uses_[id].state == TileState::kReady;
  };
  std::uint64_t total = 0;
  for (const TileId id : layers) total += can_drop(id) ? table_.place_bytes(id) : 0;
  bytes = std::min(bytes, total);
  std::uint64_t seen = 0;
  std::uint64_t dropped = 0;
  for (const TileId id : layers) {
    if (!can_drop(id)) continue;
    const std::uint64_t place_bytes = table_.place_bytes(id);
    seen += place_bytes;
    const double due =
        static_cast<double>(bytes) * (static_cast<double>(seen) / static_cast<double>(total));
    if (static_cast<double>(dropped) >= due) continue;
    dropped += place_bytes;
    if (table_.tile(id).mapped) {
      device_.drop(table_.info(id).file_offset, table_.info(id).stored_bytes);
    } else {
      discard_pages({place_of(id, kNoSlot), static_cast<std::size_t>(place_bytes)});
    }
    stop_keeping(id);
  }
  stats_.dropped_bytes += dropped;
  pass_over_older(kNoSlot);
  cursor_ = first_streamed();
  wake_readers();
  return of_experts + dropped;
}

std::byte* TileSchedule::place_of(TileId id, RingSlot slot) const noexcept {
  const PagedTile& tile = table_.tile(id);
  if (tile.mapped) return nullptr;
  if (tile.expert != kNoExpert) {
    return region_.data() + experts_.slot(experts_.slot_of(tile.expert)).offset + tile.offset;
  }
  const std::uint64_t offset = slot == kNoSlot ? tile.offset : ring_offset_ + ring_.offset(slot);
  return region_.data() + offset;
}

const std::byte* TileSchedule::bytes_of(TileId id) const noexcept {
  if (table_.tile(id).mapped) return device_.mapping().data() + table_.info(id).file_offset;
  return place_of(id, uses_[id].slot);
}

bool TileSchedule::is_checked(TileId id) {
  const Lock lock(mutex_);
  return uses_[id].checked;
}

void TileSchedule::note_checked(TileId id) {
  const Lock lock(mutex_);
  uses_[id].checked = true;
}

void TileSchedule::count_row(std::uint64_t bytes_read) {
  const Lock lock(mutex_);
  ++stats_.rows_read;
  stats_.bytes_read += bytes_read;
}

PagerStats TileSchedule::stats() const {
  const Lock lock(mutex_);
  PagerStats stats = stats_;
  stats.ring_wraps = ring_.wraps();
  if (n_reading_ > 0) stats.read_ns += monotonic_ns() - reading_since_ns_;
  return stats;
}

TileEvent* TileSchedule::event_of(TileId id) {
  const std::uint32_t event = uses_[id].event;
  return event < trace_.size() ? &trace_[event] : nullptr;
}

void TileSchedule::set_trace(std::span<TileEvent> events) {
  const Lock lock(mutex_);
  trace_ = events;
  n_events_ = 0;
  for (TileUse& use : uses_) use.event = kNoEvent;
}

std::size_t TileSchedule::n_traced() const {
  const Lock lock(mutex_);
  return n_events_;
}

}  // namespace qsf
