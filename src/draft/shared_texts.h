// SPDX-License-Identifier: MIT
//
// SharedTexts: texts of ended sequences that later ones copy from.
//
// A key names who shares: a sequence sees the texts of its own key alone. Each key has a suffix
// automaton in planned memory. When it is full it starts anew with the text that did not fit; when
// another key needs its place the one that was used longest ago goes. Between two texts stands a
// token that no sequence has, so that no copy runs from one into the next.
//
// SharedTextView is the DraftSource of one sequence: it follows the sequence's tokens from place to
// place in the automaton, and starts over when that does.

#ifndef QSF_DRAFT_SHARED_TEXTS_H_
#define QSF_DRAFT_SHARED_TEXTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "draft/drafter.h"
#include "draft/suffix_automaton.h"

namespace qsf {

struct SharedTextsOptions {
  std::uint32_t n_keys = 8;
  std::uint32_t tokens_per_key = 4096;
};

// Threads  one at a time, with its views
class SharedTexts {
 public:
  // Stands between two texts.
  static constexpr std::uint32_t kSeparator = UINT32_MAX;

  // Bytes of the region that the constructor wants.
  static std::uint64_t region_bytes(const SharedTextsOptions& options) noexcept;
  // Requires  region.size() >= region_bytes(options), aligned for std::uint32_t; it outlives the
  //           texts; options.n_keys > 0
  SharedTexts(const SharedTextsOptions& options, MutableByteSpan region);

  // Adds a text; of one longer than tokens_per_key the first part. Allocates for a new key alone.
  void add(std::string_view key, std::span<const std::uint32_t> text);

 private:
  friend class SharedTextView;
  struct Slot {
    Slot(std::uint32_t capacity_tokens, MutableByteSpan region)
        : automaton(capacity_tokens, region) {}
    std::string key;
    SuffixAutomaton automaton;
    std::uint64_t last_use = 0;  // 0: never
    std::uint64_t epoch = 0;     // counts how often it started anew
  };
  // Null where nothing is shared under the key.
  Slot* find(std::string_view key) noexcept;

  std::vector<Slot> slots_;
  std::uint64_t n_uses_ = 0;
};

class SharedTextView final : public DraftSource {
 public:
  SharedTextView() = default;

  // Sees the texts of a key from now on, those that are added later as well; the sequence has no
  // match yet. Requires  `texts` outlives the view
  void open(SharedTexts& texts, std::string_view key);
  // Sees nothing.
  void close() noexcept { texts_ = nullptr; }

  void append(std::uint32_t token) noexcept override;
  void truncate(std::uint32_t n_tokens) noexcept override;
  std::uint32_t match_tokens() const noexcept override;
  std::uint32_t copy_to(std::span<std::uint32_t> draft) const noexcept override;

 private:
  // The automaton of the key as the place knows it; null where there is none.
  const SuffixAutomaton* seen() const noexcept;

  SharedTexts* texts_ = nullptr;
  std::string key_;
  const SharedTexts::Slot* slot_ = nullptr;
  std::uint64_t epoch_ = 0;  // of the slot, that `place_` belongs to
  SuffixAutomaton::Place place_;
};

}  // namespace qsf

#endif  // QSF_DRAFT_SHARED_TEXTS_H_
