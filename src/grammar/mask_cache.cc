// SPDX-License-Identifier: MIT

#include "grammar/mask_cache.h"

#include <algorithm>

#include "grammar/automaton.h"
#include "grammar/region_carver.h"

namespace qsf {

std::size_t MaskCache::region_bytes(std::size_t n_masks, std::uint32_t n_ids) {
  return carved_bytes<Entry>(n_masks) + carved_bytes<std::uint32_t>(n_masks * mask_words(n_ids));
}

std::size_t MaskCache::masks_in(std::uint64_t bytes, std::uint32_t n_ids) {
  const std::uint64_t each = sizeof(Entry) + mask_words(n_ids) * sizeof(std::uint32_t);
  return std::max<std::size_t>(kMinMasks, bytes / each);
}

MaskCache::MaskCache(MutableByteSpan region, std::size_t n_masks, std::uint32_t n_ids)
    : n_words_(mask_words(n_ids)) {
  RegionCarver carver(region);
  entries_ = carver.take<Entry>(n_masks);
  words_ = carver.take<std::uint32_t>(n_masks * n_words_);
  for (MaskSlot slot = 0; slot < n_masks; ++slot) link_newest(slot);
}

MaskSlot MaskCache::take(GrammarAutomaton* owner, std::uint32_t state) {
  const MaskSlot slot = oldest_;
  Entry& entry = entries_[slot];
  if (entry.owner != nullptr) entry.owner->forget_mask(entry.state);
  entry.owner = owner;
  entry.state = state;
  touch(slot);
  return slot;
}

void MaskCache::release(MaskSlot slot) noexcept {
  unlink(slot);
  Entry& entry = entries_[slot];
  entry.owner = nullptr;
  entry.older = kNoMask;
  entry.newer = oldest_;
  (oldest_ == kNoMask ? newest_ : entries_[oldest_].older) = slot;
  oldest_ = slot;
}

void MaskCache::touch(MaskSlot slot) noexcept {
  unlink(slot);
  link_newest(slot);
}

void MaskCache::unlink(MaskSlot slot) noexcept {
  const Entry& entry = entries_[slot];
  (entry.older == kNoMask ? oldest_ : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNoMask ? newest_ : entries_[entry.newer].older) = entry.older;
}

void MaskCache::link_newest(MaskSlot slot) noexcept {
  Entry& entry = entries_[slot];
  entry.older = newest_;
  entry.newer = kNoMask;
  (newest_ == kNoMask ? oldest_ : entries_[newest_].newer) = slot;
  newest_ = slot;
}

}  // namespace qsf
