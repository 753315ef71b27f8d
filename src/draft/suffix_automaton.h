// SPDX-License-Identifier: MIT
//
// SuffixAutomaton: finds where the end of a text has occurred before, token by token.
//
// Prompt look-up drafts the tokens that followed the last time. Which time that was is asked once a
// pass, for the longest end of the text that occurred before, however long it is. The automaton of
// all substrings answers this without a search: a state is the set of substrings with the same
// ends, and the state of the whole text links to that of the longest end that occurred before.
//
// Memory is planned once: 76 bytes a token (region_bytes). A text of n tokens has at most 2n - 1
// states and, beyond the first edge of each state, n - 1 edges; both are reached by some text, so
// nothing can run out and nothing is allocated.
//
// Edges. Most states have one, which is stored in the state. The others are found by a hash of
// state and token, in every state: the root has an edge for each different token, and so has the
// state of `a` in the text a x a y a z ..., which would make lists or sorted arrays quadratic. The
// edges of a state are a list too, because a state that is split copies them.
//
// Time. Appending takes constant time on average over the text, whatever the text (the hash, which
// is not secret, given). The most recent occurrence costs more: all ends of the text, of which
// a^n has n, occur anew with every token. They are updated longest first, in kRefreshSteps steps a
// token, saved up where fewer are needed. A text that uses them up gets matches that occurred
// earlier, but not always the last time; lengths are always exact.
//
// Based on: Blumer, Blumer, Haussler, Ehrenfeucht, Chen and Seiferas, "The smallest automaton
// recognizing the subwords of a text", 1985 (construction and bounds). As a source of drafts:
// Saxena, "Prompt lookup decoding", 2023; Hu et al., "SAM Decoding: speculative decoding via suffix
// automaton", 2024, which keeps first occurrences.

#ifndef QSF_DRAFT_SUFFIX_AUTOMATON_H_
#define QSF_DRAFT_SUFFIX_AUTOMATON_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace qsf {

// Where the end of a text occurred before.
struct SuffixMatch {
  std::uint32_t length = 0;  // tokens; 0: the last token is new
  std::uint32_t next = 0;    // position in the text behind the earlier occurrence

  friend bool operator==(const SuffixMatch&, const SuffixMatch&) = default;
};

// Threads  one at a time
class SuffixAutomaton {
 public:
  // A substring of the text: an end of its state's longest one.
  struct Place {
    std::uint32_t state = 0;  // the root's: the empty substring
    std::uint32_t length = 0;
  };

  static constexpr std::uint32_t kMaxTokens = std::uint32_t{1} << 30;
  // States a token whose most recent occurrence is updated, on average.
  static constexpr std::uint32_t kRefreshSteps = 32;

  // Most states and edges of a text, the latter without the first one of each state.
  static constexpr std::uint32_t max_states(std::uint32_t n_tokens) noexcept {
    return n_tokens < 2 ? n_tokens + 1 : 2 * n_tokens - 1;
  }
  static constexpr std::uint32_t max_further_edges(std::uint32_t n_tokens) noexcept {
    return n_tokens == 0 ? 0 : n_tokens - 1;
  }
  // Bytes of the region that the constructor wants. Requires  capacity_tokens <= kMaxTokens
  static std::uint64_t region_bytes(std::uint32_t capacity_tokens) noexcept;

  // Starts with no text.
  // Requires  region.size() >= region_bytes(capacity_tokens), aligned for std::uint32_t; the region
  //           outlives the automaton
  SuffixAutomaton(std::uint32_t capacity_tokens, MutableByteSpan region);
  SuffixAutomaton(const SuffixAutomaton&) = delete;
  SuffixAutomaton& operator=(const SuffixAutomaton&) = delete;
  SuffixAutomaton(SuffixAutomaton&&) = default;  // the other may only be destroyed
  SuffixAutomaton& operator=(SuffixAutomaton&&) = default;

  // Appends any token. Beyond the capacity a token is not kept: the text may go on, and match()
  // finds its end among the tokens that are kept.
  void append(std::uint32_t token) noexcept;
  // Cuts the text. Builds the automaton again, at the cost of appending n_tokens; in constant time
  // where all that is cut lies beyond the capacity. Of the tokens that then are left beyond the
  // capacity it matches none: they are not known.
  // Requires  n_tokens <= the number of tokens
  void truncate(std::uint32_t n_tokens) noexcept;
  // Takes time in proportion to the tokens kept.
  void clear() noexcept;

  // The longest end of the text that also ends at an earlier position, most recently before `next`.
  // While the text is longer than the capacity, the earlier one lies within the tokens kept.
  // Guarantees  0 < next <= text().size() if length > 0, and next < n_tokens()
  SuffixMatch match() const noexcept;

  // For texts beside this one: returns the place of the longest end of a text that this one
  // contains, given the place of the text without its last token. This text may have grown
  // meanwhile, but not been cut.
  Place follow(Place place, std::uint32_t token) const noexcept;
  // Where a place's substring ends in the text, the last time if kRefreshSteps suffice.
  SuffixMatch match_at(Place place) const noexcept;

  std::uint32_t n_tokens() const noexcept { return n_tokens_; }
  // The tokens kept.
  std::span<const std::uint32_t> text() const noexcept { return text_.first(n_kept()); }
  std::uint32_t capacity_tokens() const noexcept {
    return static_cast<std::uint32_t>(text_.size());
  }
  std::uint32_t n_states() const noexcept { return n_states_; }
  // Without the first one of each state.
  std::uint32_t n_further_edges() const noexcept { return n_edges_; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kRoot = 0;

  struct State {
    std::uint32_t length;    // of its longest substring; the others are ends of that one
    std::uint32_t link;      // state of the longest end that has more occurrences; kNone: the root
    std::uint32_t last_end;  // position behind an occurrence, the last one if kRefreshSteps suffice
    std::uint32_t token;     // of the first edge
    std::uint32_t target;    // kNone: no edge
    std::uint32_t edges;     // further ones; kNone: no more
  };
  struct Edge {
    std::uint32_t state;
    std::uint32_t token;
    std::uint32_t target;
    std::uint32_t next_in_bucket;
    std::uint32_t next_of_state;
  };
  std::uint32_t n_kept() const noexcept {
    return n_tokens_ < capacity_tokens() ? n_tokens_ : capacity_tokens();
  }
  std::size_t bucket_of(std::uint32_t state, std::uint32_t token) const noexcept;
  const std::uint32_t* find_edge(std::uint32_t state, std::uint32_t token) const noexcept;
  std::uint32_t* find_edge(std::uint32_t state, std::uint32_t token) noexcept;
  void add_edge(std::uint32_t state, std::uint32_t token, std::uint32_t target) noexcept;
  std::uint32_t add_state(const State& state) noexcept;
  std::uint32_t split(std::uint32_t parent, std::uint32_t token, std::uint32_t state) noexcept;
  void grow(std::uint32_t token) noexcept;
  void refresh(std::uint32_t state, std::uint32_t end) noexcept;

  std::span<std::uint32_t> text_;     // [capacity_tokens]
  std::span<State> states_;           // [max_states]
  std::span<Edge> edges_;             // [max_further_edges]
  std::span<std::uint32_t> buckets_;  // [max_further_edges]; first edge of each
  std::uint32_t n_tokens_ = 0;
  std::uint32_t n_states_ = 0;
  std::uint32_t n_edges_ = 0;
  std::uint32_t whole_ = kRoot;      // state of the text kept
  std::uint64_t refresh_steps_ = 0;  // saved up
  SuffixMatch match_;                // of the text kept
  Place place_;                      // of the end of a text longer than the capacity
};

}  // namespace qsf

#endif  // QSF_DRAFT_SUFFIX_AUTOMATON_H_
