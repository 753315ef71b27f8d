// SPDX-License-Identifier: MIT

#include "draft/suffix_automaton.h"

#include <memory>
#include <utility>

#include "base/bit_cast.h"
#include "base/check.h"
#include "base/ranges.h"

namespace qsf {

std::uint64_t SuffixAutomaton::region_bytes(std::uint32_t capacity_tokens) noexcept {
  const std::uint64_t n_edges = max_further_edges(capacity_tokens);
  return capacity_tokens * sizeof(std::uint32_t) + max_states(capacity_tokens) * sizeof(State) +
         n_edges * (sizeof(Edge) + sizeof(std::uint32_t));
}

SuffixAutomaton::SuffixAutomaton(std::uint32_t capacity_tokens, MutableByteSpan region) {
  static_assert(sizeof(State) % alignof(Edge) == 0 && sizeof(Edge) % alignof(State) == 0);
  static_assert(alignof(State) == alignof(std::uint32_t));
  QSF_CHECK(capacity_tokens <= kMaxTokens && region.size() >= region_bytes(capacity_tokens));
  QSF_CHECK(bit_cast<std::uintptr_t>(region.data()) % alignof(State) == 0);
  std::byte* at = region.data();
  const auto take = [&at]<typename T>(std::span<T>& to, std::size_t n) {
    to = {reinterpret_cast<T*>(at), n};
    std::uninitialized_default_construct_n(to.data(), n);
    at += n * sizeof(T);
  };
  take(text_, capacity_tokens);
  take(states_, max_states(capacity_tokens));
  take(edges_, max_further_edges(capacity_tokens));
  take(buckets_, max_further_edges(capacity_tokens));
  ranges::fill(buckets_, kNone);
  clear();
}

void SuffixAutomaton::clear() noexcept {
  for (const Edge& edge : edges_.first(n_edges_)) {
    buckets_[bucket_of(edge.state, edge.token)] = kNone;
  }
  n_tokens_ = n_states_ = n_edges_ = 0;
  whole_ = add_state(
      {.length = 0, .link = kNone, .last_end = 0, .token = 0, .target = kNone, .edges = kNone});
  refresh_steps_ = 0;
  match_ = {};
  place_ = {};
}

void SuffixAutomaton::truncate(std::uint32_t n_tokens) noexcept {
  QSF_CHECK(n_tokens <= n_tokens_);
  if (n_tokens == n_tokens_) return;
  if (n_tokens >= capacity_tokens()) {
    n_tokens_ = n_tokens;
    place_ = {};
    return;
  }
  clear();
  for (std::uint32_t i = 0; i < n_tokens; ++i) append(text_[i]);
}

void SuffixAutomaton::append(std::uint32_t token) noexcept {
  if (n_tokens_ < capacity_tokens()) {
    text_[n_tokens_] = token;
    grow(token);
  } else {
    if (n_tokens_ == capacity_tokens()) place_ = {.state = whole_, .length = n_tokens_};
    place_ = follow(place_, token);
  }
  ++n_tokens_;
}

SuffixMatch SuffixAutomaton::match() const noexcept {
  if (n_tokens_ <= capacity_tokens()) return match_;
  return match_at(place_);
}

// Adds the state of the longer text. Every end of the text so far gets an edge to it, down to the
// longest one that the token followed before; with the token, that one is the new match.
void SuffixAutomaton::grow(std::uint32_t token) noexcept {
  const std::uint32_t end = n_tokens_ + 1;
  const std::uint32_t added = add_state(
      {.length = end, .link = kRoot, .last_end = end, .token = 0, .target = kNone, .edges = kNone});
  std::uint32_t state = whole_;
  const std::uint32_t* edge = nullptr;
  while (state != kNone && (edge = find_edge(state, token)) == nullptr) {
    add_edge(state, token, added);
    state = states_[state].link;
  }
  if (state != kNone) {
    const std::uint32_t target = *edge;
    const bool is_longest = states_[target].length == states_[state].length + 1;
    states_[added].link = is_longest ? target : split(state, token, target);
  }
  whole_ = added;
  const State& match = states_[states_[added].link];
  match_ = {.length = match.length, .next = match.last_end};
  refresh(states_[added].link, end);
}

// Gives the substrings of a state that are `parent`'s longest with the token, and shorter ones, a
// state of their own: they are about to occur where the others do not.
std::uint32_t SuffixAutomaton::split(std::uint32_t parent, std::uint32_t token,
                                     std::uint32_t state) noexcept {
  State shorter = states_[state];
  shorter.length = states_[parent].length + 1;
  shorter.edges = kNone;
  const std::uint32_t added = add_state(shorter);
  for (std::uint32_t e = states_[state].edges; e != kNone; e = edges_[e].next_of_state) {
    add_edge(added, edges_[e].token, edges_[e].target);
  }
  states_[state].link = added;
  for (; parent != kNone; parent = states_[parent].link) {
    std::uint32_t* const edge = find_edge(parent, token);
    if (*edge != state) break;
    *edge = added;
  }
  return added;
}

void SuffixAutomaton::refresh(std::uint32_t state, std::uint32_t end) noexcept {
  refresh_steps_ += kRefreshSteps;
  for (; state != kRoot && refresh_steps_ > 0; --refresh_steps_) {
    states_[state].last_end = end;
    state = states_[state].link;
  }
}

SuffixAutomaton::Place SuffixAutomaton::follow(Place place, std::uint32_t token) const noexcept {
  // A state that was split since keeps its longest substrings alone.
  while (place.state != kRoot && place.length <= states_[states_[place.state].link].length) {
    place.state = states_[place.state].link;
  }
  for (;;) {
    if (const std::uint32_t* const edge = find_edge(place.state, token); edge != nullptr) {
      return {.state = *edge, .length = place.length + 1};
    }
    if (place.state == kRoot) return {};
    place.state = states_[place.state].link;
    place.length = states_[place.state].length;
  }
}

SuffixMatch SuffixAutomaton::match_at(Place place) const noexcept {
  if (place.length == 0) return {};
  return {.length = place.length, .next = states_[place.state].last_end};
}

std::uint32_t SuffixAutomaton::add_state(const State& state) noexcept {
  states_[n_states_] = state;
  return n_states_++;
}

// Mixes as the end of SplitMix64 does, and scales to the number of buckets without a division.
std::size_t SuffixAutomaton::bucket_of(std::uint32_t state, std::uint32_t token) const noexcept {
  std::uint64_t z = (std::uint64_t{state} << 32) | token;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return static_cast<std::size_t>(((z >> 32) * buckets_.size()) >> 32);
}

const std::uint32_t* SuffixAutomaton::find_edge(std::uint32_t state,
                                                std::uint32_t token) const noexcept {
  const State& from = states_[state];
  if (from.target == kNone) return nullptr;
  if (from.token == token) return &from.target;
  if (from.edges == kNone) return nullptr;
  for (std::uint32_t e = buckets_[bucket_of(state, token)]; e != kNone;) {
    const Edge& edge = edges_[e];
    if (edge.state == state && edge.token == token) return &edge.target;
    e = edge.next_in_bucket;
  }
  return nullptr;
}

std::uint32_t* SuffixAutomaton::find_edge(std::uint32_t state, std::uint32_t token) noexcept {
  return const_cast<std::uint32_t*>(std::as_const(*this).find_edge(state, token));
}

void SuffixAutomaton::add_edge(std::uint32_t state, std::uint32_t token,
                               std::uint32_t target) noexcept {
  State& from = states_[state];
  if (from.target == kNone) {
    from.token = token;
    from.target = target;
    return;
  }
  std::uint32_t& bucket = buckets_[bucket_of(state, token)];
  edges_[n_edges_] = {.state = state,
                      .token = token,
                      .target = target,
                      .next_in_bucket = bucket,
                      .next_of_state = from.edges};
  bucket = from.edges = n_edges_++;
}

}  // namespace qsf
