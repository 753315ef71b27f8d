// SPDX-License-Identifier: MIT
//
// The part of TileSchedule that is about experts: which are wanted, which are guessed, their slots.

#include "base/ranges.h"
#include "platform/memory.h"
#include "stream/tile_schedule.h"

namespace qsf {

void TileSchedule::want_experts(std::uint32_t section, std::span<const ExpertUse> uses) {
  const Lock lock(mutex_);
  for (const ExpertId expert : wanted_) experts_.done(expert);
  wanted_.clear();
  next_wanted_ = 0;
  no_slot_ = false;
  for (const ExpertUse& use : uses) {
    const ExpertId expert = table_.expert_of(section, use.expert);
    const bool is_read_ahead =
        ranges::find(prefetch_.experts(), expert) != prefetch_.experts().end();
    const bool foreseen = is_read_ahead && experts_.slot_of(expert) != kNoExpertSlot;
    const bool is_hit = !is_read_ahead && is_in_memory(expert);
    if (foreseen) ++stats_.experts_foreseen;
    ++(use.generates ? stats_.experts_used : stats_.experts_prompted);
    if (!is_hit) ++(use.generates ? stats_.experts_missed : stats_.experts_prompt_missed);
    wanted_.push_back(expert);
  }
  prefetch_.learn(section - 1, uses);
  end_guesses();
  experts_.want(section - 1, uses);
  wake_readers();
}

void TileSchedule::expert_done(std::uint32_t section, std::uint32_t expert) {
  const Lock lock(mutex_);
  experts_.done(table_.expert_of(section, expert));
  no_slot_ = false;
  wake_readers();
}

bool TileSchedule::wants_guesses(std::uint32_t section) const {
  const Lock lock(mutex_);
  // With a ring, what is read ahead there is certain to be used.
  if (cursor_ != kNoPosition || n_residents_unsettled_ > 0) return false;
  return experts_.n_slots() < table_.residency().n_experts && prefetch_.wants(section - 1);
}

bool TileSchedule::find_experts(std::uint32_t section, std::span<std::uint8_t> in_memory) const {
  const Lock lock(mutex_);
  if (experts_.n_slots() >= table_.residency().n_experts) return false;
  for (std::uint32_t expert = 0; expert < in_memory.size(); ++expert) {
    in_memory[expert] = is_in_memory(table_.expert_of(section, expert)) ? 1 : 0;
  }
  return true;
}

void TileSchedule::guess_experts(std::uint32_t section, std::span<const ExpertGuess> guesses) {
  const Lock lock(mutex_);
  end_guesses();
  const std::uint32_t n_experts = table_.reader().spec().n_experts;
  prefetch_.start(section - 1, n_experts, guesses, experts_);
  for (const ExpertId expert : prefetch_.guessed()) experts_.guess(expert);
  wake_readers();
}

// Drops the guesses that were not read yet. What is being read becomes an expert like others.
void TileSchedule::end_guesses() {
  for (const ExpertId expert : prefetch_.guessed()) experts_.unguess(expert);
  prefetch_.end();
  next_guess_ = 0;
}

TileId TileSchedule::pick_of_expert() {
  for (; next_wanted_ < wanted_.size(); ++next_wanted_) {
    const ExpertId expert = wanted_[next_wanted_];
    if (!experts_.is_wanted(expert)) continue;
    const bool has_slot = experts_.slot_of(expert) != kNoExpertSlot;
    if (!has_slot && no_slot_) return kNoTile;
    for (const TileId id : table_.tiles_of_expert(expert)) {
      if (uses_[id].state == TileState::kAbsent) return id;
    }
  }
  return kNoTile;
}

// Returns a tile of the surest guess that has one to be read.
TileId TileSchedule::pick_guessed() {
  if (n_guess_jobs_ >= kMostGuessJobs) return kNoTile;
  const std::span<const ExpertId> guesses = prefetch_.experts();
  for (; next_guess_ < guesses.size(); ++next_guess_) {
    if (!experts_.is_guessed(guesses[next_guess_])) continue;  // it got no slot
    for (const TileId id : table_.tiles_of_expert(guesses[next_guess_])) {
      if (uses_[id].state == TileState::kAbsent) return id;
    }
  }
  return kNoTile;
}

// Finds a slot for an expert that has none, and lets the one there leave.
bool TileSchedule::take_expert_slot(ExpertId expert) {
  if (experts_.slot_of(expert) != kNoExpertSlot) return true;
  const ExpertSlot slot = experts_.find_slot(expert);
  no_slot_ = slot == kNoExpertSlot;
  if (no_slot_) return false;
  const ExpertId other = experts_.put(expert, slot);
  if (other != kNoExpert) evict(other);
  return true;
}

// The same for one that is guessed, which is given up otherwise.
bool TileSchedule::take_guess_slot(ExpertId expert) {
  if (experts_.slot_of(expert) != kNoExpertSlot) return true;
  const ExpertSlot slot = experts_.find_guess_slot(expert);
  if (slot == kNoExpertSlot || !prefetch_.spend(stored_bytes_of(expert))) {
    experts_.unguess(expert);
    return false;
  }
  ++stats_.experts_prefetched;
  const ExpertId other = experts_.put(expert, slot);
  if (other != kNoExpert) evict(other);
  return true;
}

// Whether all tiles of an expert are ready or being read.
bool TileSchedule::is_in_memory(ExpertId expert) const {
  return ranges::none_of(table_.tiles_of_expert(expert),
                         [this](TileId id) { return uses_[id].state == TileState::kAbsent; });
}

std::uint64_t TileSchedule::stored_bytes_of(ExpertId expert) const {
  std::uint64_t bytes = 0;
  for (const TileId id : table_.tiles_of_expert(expert)) bytes += table_.info(id).stored_bytes;
  return bytes;
}

// Discards the tiles of an expert that lost its slot.
void TileSchedule::evict(ExpertId expert) {
  for (const TileId id : table_.tiles_of_expert(expert)) {
    TileUse& use = uses_[id];
    if (use.state != TileState::kReady) continue;
    if (table_.tile(id).mapped) {
      device_.drop(table_.info(id).file_offset, table_.info(id).stored_bytes);
    }
    use.state = TileState::kAbsent;
  }
  // One that is wanted later in this pass is read again.
  if (experts_.is_wanted(expert)) next_wanted_ = 0;
}

// Gives slots of experts back, the least used first. From then on experts come and go.
std::uint64_t TileSchedule::drop_experts(std::uint64_t bytes) {
  if (!table_.has_experts()) return 0;
  end_guesses();
  for (const ExpertId expert : wanted_) experts_.done(expert);  // of a pass that failed
  wanted_.clear();
  next_wanted_ = 0;
  for (const TileId id : table_.order()) {
    TileUse& use = uses_[id];
    if (!is_of_expert(id) || !use.resident) continue;
    use.resident = false;
    if (use.state == TileState::kAbsent || use.state == TileState::kReading)
      --n_residents_unsettled_;
    if (use.state == TileState::kReady) loaded_bytes_ -= table_.info(id).stored_bytes;
  }
  std::uint64_t dropped = 0;
  while (dropped < bytes) {
    const ExpertSlot slot = experts_.slot_to_drop();
    if (slot == kNoExpertSlot) break;
    const ExpertCache::Slot place = experts_.slot(slot);
    const ExpertId expert = experts_.drop(slot);
    if (expert != kNoExpert) evict(expert);
    discard_pages({region_.data() + place.offset, static_cast<std::size_t>(place.region_bytes)});
    dropped += place.bytes;
  }
  stats_.dropped_bytes += dropped;
  return dropped;
}

}  // namespace qsf
