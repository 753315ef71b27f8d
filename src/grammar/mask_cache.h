// SPDX-License-Identifier: MIT
//
// MaskCache: the masks of the states that were asked for last, in memory that never grows.

#ifndef QSF_GRAMMAR_MASK_CACHE_H_
#define QSF_GRAMMAR_MASK_CACHE_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace qsf {

class GrammarAutomaton;

using MaskSlot = std::uint32_t;
inline constexpr MaskSlot kNoMask = 0xFFFFFFFF;
inline constexpr std::size_t kMinMasks = 4;

constexpr std::size_t mask_words(std::uint32_t n_ids) noexcept {
  return (n_ids + 31) / 32;
}

class MaskCache {
 public:
  static std::size_t region_bytes(std::size_t n_masks, std::uint32_t n_ids);
  // How many masks `bytes` have room for, at least kMinMasks.
  static std::size_t masks_in(std::uint64_t bytes, std::uint32_t n_ids);

  MaskCache(MutableByteSpan region, std::size_t n_masks, std::uint32_t n_ids);

  // Returns a slot for the mask of a state, taken from the mask that was not used for longest. Its
  // owner is told.
  MaskSlot take(GrammarAutomaton* owner, std::uint32_t state);
  // The state of a mask has another number now, or no longer exists.
  void move(MaskSlot slot, std::uint32_t state) noexcept { entries_[slot].state = state; }
  void release(MaskSlot slot) noexcept;
  void touch(MaskSlot slot) noexcept;

  std::span<std::uint32_t> words(MaskSlot slot) noexcept {
    return words_.subspan(slot * n_words_, n_words_);
  }

 private:
  struct Entry {
    GrammarAutomaton* owner;
    std::uint32_t state;
    MaskSlot older;
    MaskSlot newer;
  };
  void unlink(MaskSlot slot) noexcept;
  void link_newest(MaskSlot slot) noexcept;

  std::size_t n_words_;
  std::span<Entry> entries_;
  std::span<std::uint32_t> words_;
  MaskSlot oldest_ = kNoMask;
  MaskSlot newest_ = kNoMask;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_MASK_CACHE_H_
