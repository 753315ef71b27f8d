// SPDX-License-Identifier: MIT
//
// ExpertCache: which experts of a mixture of experts are in memory, and which one leaves next.
//
// An expert is in a slot as a whole, or in part while it is read and where a guess was dropped. The
// one that is expected to be used last leaves. Its chance of a use in a pass is learned from the
// texts: of the experts that had been used as lately and as often, the share that a pass then used.
// Some models return to the experts of the last tokens, others to those of the whole text, and no
// fixed weight of age against frequency suits both. Ages count passes, not uses, so that early
// layers do not push out late ones; and as layers come round in order, of two experts with the same
// chance the one whose layer was just run waits longer.
//
// A prompt uses nearly every expert once. Those that its last rows did not choose are read-once:
// a few slots are enough for all of them, and the experts of the texts that are being written stay.
//
// It holds no bytes and reads nothing: TileSchedule does.
//
// Based on: Beckmann, Chen and Cidon, "LHD: improving cache hit rate by maximizing hit density",
// NSDI 2018 (classes of objects whose hits are counted), with ages in passes.

#ifndef QSF_STREAM_EXPERT_CACHE_H_
#define QSF_STREAM_EXPERT_CACHE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace qsf {

// An expert of a layer: layer * experts + expert.
using ExpertId = std::uint32_t;
inline constexpr ExpertId kNoExpert = 0xFFFFFFFFU;
using ExpertSlot = std::uint32_t;
inline constexpr ExpertSlot kNoExpertSlot = 0xFFFFFFFFU;

// Fewest slots: one in use, two being read.
inline constexpr std::uint32_t kLeastExpertSlots = 3;

// The use of an expert by the rows of a pass.
struct ExpertUse {
  std::uint32_t expert = 0;
  // Of its rows: 1 for each that generates, less for rows of a prompt the further they are from its
  // end, down to 0.
  float heat = 0.0F;
  bool generates = false;  // one of the rows
};

class ExpertCache {
 public:
  struct Slot {
    std::uint64_t offset = 0;        // in the pager's region
    std::uint64_t region_bytes = 0;  // there; 0 where the experts are used from a mapped file
    std::uint64_t bytes = 0;         // of the largest expert that fits
    ExpertId expert = kNoExpert;
  };

  ExpertCache() = default;
  // Slots are empty, or hold experts already. `read_once_slots`: the most that read-once experts
  // take from others.
  // Shapes    expert_bytes [layers * experts_per_layer]
  // Requires  every slot's expert fits it
  ExpertCache(std::span<const std::uint64_t> expert_bytes, std::uint32_t experts_per_layer,
              std::vector<Slot> slots, std::uint32_t read_once_slots);

  static std::uint64_t heap_bytes(std::uint32_t n_experts, std::uint32_t n_slots) noexcept;

  std::uint32_t n_slots() const noexcept { return n_slots_; }
  ExpertSlot slot_of(ExpertId id) const noexcept { return experts_[id].slot; }
  const Slot& slot(ExpertSlot slot) const noexcept { return slots_[slot]; }

  // Starts a pass: no expert is wanted.
  void start_pass() noexcept;
  // The pass will use these experts of a layer. Each stays until done(), where there is another one
  // to leave.
  // Requires  ascending
  void want(std::uint32_t layer, std::span<const ExpertUse> uses) noexcept;
  void done(ExpertId id) noexcept { experts_[id].wanted = false; }
  bool is_wanted(ExpertId id) const noexcept { return experts_[id].wanted; }
  // The next layer is expected to use an expert: it stays, unless an expert that the pass wants has
  // no other place, until unguess().
  void guess(ExpertId id) noexcept { experts_[id].guessed = true; }
  void unguess(ExpertId id) noexcept { experts_[id].guessed = false; }
  bool is_guessed(ExpertId id) const noexcept { return experts_[id].guessed; }
  // A read or a user of one of its tiles: it stays until as many release().
  void hold(ExpertId id) noexcept { ++experts_[id].holds; }
  void release(ExpertId id) noexcept { --experts_[id].holds; }

  // Returns the slot that an expert may take: an empty one, else that of the expert to leave;
  // kNoExpertSlot while none can.
  // Requires  it has none
  ExpertSlot find_slot(ExpertId id) const noexcept;
  // The same for an expert that is guessed while the layer before its own runs: neither wanted nor
  // guessed ones leave for it.
  ExpertSlot find_guess_slot(ExpertId id) const noexcept;
  // Puts an expert into a slot in place of the one there, and returns that one.
  ExpertId put(ExpertId id, ExpertSlot slot) noexcept;
  // Returns the slot whose expert leaves first when memory is to be given back; kNoExpertSlot when
  // all are in use or needed: kLeastExpertSlots for the largest expert stay.
  ExpertSlot slot_to_drop() const noexcept;
  // Drops a slot for good and returns its expert.
  ExpertId drop(ExpertSlot slot) noexcept;

 private:
  struct Expert {
    std::uint64_t bytes = 0;
    ExpertSlot slot = kNoExpertSlot;
    std::uint32_t holds = 0;
    std::uint32_t last_pass = 0;  // that used it; 0: none
    float rate = 0.0F;            // of uses a pass, each halved in kRateHalfLife passes
    float wait = 0.0F;  // passes until it is used, as expected when its layer was last run
    std::uint8_t group = kGroups - 1;
    bool wanted = false;
    bool guessed = false;
    bool read_once = false;
  };
  // Experts that were used as lately and as often, and how they fared: as sums in which a pass
  // counts less than the one after it.
  struct Group {
    float seen = 0.0F;  // by passes that ran their layer
    float used = 0.0F;
    float wait = 0.0F;  // passes until a use, in the current pass
  };
  static constexpr std::uint32_t kAges = 8;    // each twice the one before
  static constexpr std::uint32_t kRates = 10;  // three in each quarter of the one before
  static constexpr std::uint32_t kGroups = kAges * kRates;
  static constexpr double kRateHalfLife = 24.0;
  void expect_waits() noexcept;
  std::uint8_t group_of(const Expert& expert) const noexcept;
  void learn(std::uint32_t layer, std::span<const ExpertUse> uses) noexcept;
  void want_one(Expert& expert, float heat) noexcept;
  bool can_leave(ExpertId id) const noexcept {
    return experts_[id].holds == 0 && !experts_[id].wanted;
  }
  float expected_wait(ExpertId id, std::uint32_t layer) const noexcept;

  std::vector<Expert> experts_;
  std::uint32_t experts_per_layer_ = 1;
  std::uint32_t n_layers_ = 0;
  std::vector<Slot> slots_;
  std::uint64_t largest_bytes_ = 0;  // of an expert
  std::uint32_t n_largest_ = 0;      // slots for it
  std::uint32_t n_slots_ = 0;        // not dropped
  std::uint32_t n_read_once_ = 0;    // in slots
  std::uint32_t read_once_slots_ = 0;
  std::uint32_t pass_ = 0;
  std::array<Group, kGroups> groups_;
};

}  // namespace qsf

#endif  // QSF_STREAM_EXPERT_CACHE_H_
