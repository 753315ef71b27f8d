// SPDX-License-Identifier: MIT

#include "grammar/token_mask.h"

#include <algorithm>
#include <array>

#include "base/ranges.h"

namespace qsf {

namespace {

// Steps of the automaton for one mask: about 0.1 s of a core.
constexpr std::uint64_t kMaxMaskSteps = 8'000'000;

}  // namespace

Status too_ambiguous_error() {
  return invalid_argument(
      "grammar: there are too many ways to read the text; make the grammar less ambiguous");
}

Status TokenMaskMaker::make(StateId state) {
  automaton_.clear_overflow();
  last_step_ = automaton_.n_steps() + kMaxMaskSteps;
  automaton_.walk()[0] = state;
  bool taken = false;
  for (std::size_t slice = 0; slice < kTokenSlices && !taken; ++slice) {
    taken = vocabulary_.has_slice(slice) && take_slice(slice);
  }
  if (!taken) {
    n_chain_ = 1;
    ranges::fill(mask_, 0);
    walk(vocabulary_.trie(), 0, vocabulary_.trie().size(), 0);
  }
  automaton_.set_walk(0);
  if (automaton_.overflowed() || automaton_.n_steps() > last_step_) {
    return too_ambiguous_error();
  }
  return ok_status();
}

bool TokenMaskMaker::take_slice(std::size_t slice) {
  auto& states = automaton_.walk();
  n_chain_ = 1;
  automaton_.set_walk(1);
  if (!find_first_state(slice)) return false;
  bool strict = odd_classes_.none();
  while (n_chain_ <= kMaxSliceChars) {
    if (strict && states[n_chain_ - 1] == states[n_chain_ - 2]) {  // and so on
      std::fill(states.begin() + static_cast<std::ptrdiff_t>(n_chain_),
                states.begin() + kMaxSliceChars + 1, states[n_chain_ - 1]);
      n_chain_ = kMaxSliceChars + 1;
      automaton_.set_walk(n_chain_);
      break;
    }
    if (!find_next_state(slice)) return false;
    if (states[n_chain_ - 1] == kDeadState) {
      automaton_.set_walk(--n_chain_);
      break;
    }
    strict = true;
  }
  const auto n_chars = static_cast<std::uint32_t>(n_chain_ - 1);
  ranges::copy(vocabulary_.slice_mask(slice, n_chars), mask_.begin());
  for (std::uint32_t n = 1; n <= n_chars; ++n) {
    const TokenTrie& ends = vocabulary_.slice_ends(slice, n);
    walk(ends, 0, ends.size(), n);
  }
  walk_other_beginnings(token_slices()[slice]);
  return true;
}

// Finds the state that most characters of the slice lead to, and those that do not.
bool TokenMaskMaker::find_first_state(std::size_t slice) {
  auto& states = automaton_.walk();
  const auto classes = automaton_.program().slice_classes(slice);
  states[1] = kDeadState;
  n_chain_ = 2;
  automaton_.set_walk(2);
  std::size_t votes = 0;  // of the majority, after Boyer and Moore
  for (const auto& [byte_class, n_bytes] : classes) {
    const StateId to = automaton_.next(states[0], byte_class);
    if (to == states[1]) {
      votes += n_bytes;
    } else if (votes >= n_bytes) {
      votes -= n_bytes;
    } else {
      states[1] = to;
      votes = n_bytes - votes;
    }
  }
  if (states[1] == kDeadState) return false;
  odd_classes_.reset();
  std::size_t n_odd = 0;
  for (const auto& [byte_class, n_bytes] : classes) {
    if (automaton_.next(states[0], byte_class) == states[1]) continue;
    odd_classes_.set(byte_class);
    n_odd += n_bytes;
  }
  const TokenSlice& set = token_slices()[slice];
  return 2 * n_odd < set.ascii.count() && (!set.high || high_leads_to_last());
}

// Finds the one state that all characters of the slice lead to from the last one.
bool TokenMaskMaker::find_next_state(std::size_t slice) {
  auto& states = automaton_.walk();
  const auto classes = automaton_.program().slice_classes(slice);
  states[n_chain_] = automaton_.next(states[n_chain_ - 1], classes[0].byte_class);
  automaton_.set_walk(++n_chain_);
  for (const auto& [byte_class, unused] : classes.subspan(1)) {
    if (automaton_.next(states[n_chain_ - 2], byte_class) != states[n_chain_ - 1]) return false;
  }
  return !token_slices()[slice].high || high_leads_to_last();
}

// Whether all characters of high_chars() lead to the last state from the one before.
bool TokenMaskMaker::high_leads_to_last() {
  auto& states = automaton_.walk();
  if (!automaton_.takes_high_alike(states[n_chain_ - 2])) return false;
  states[n_chain_] = automaton_.next_byte(states[n_chain_ - 2], kSomeHighChar[0]);
  automaton_.set_walk(n_chain_ + 1);
  const StateId to = automaton_.next_byte(states[n_chain_], kSomeHighChar[1]);
  automaton_.set_walk(n_chain_);
  return to == states[n_chain_ - 1];
}

// Walks the tokens that begin with no character of the slice, or with one that leads elsewhere.
void TokenMaskMaker::walk_other_beginnings(const TokenSlice& set) {
  const TokenTrie& trie = vocabulary_.trie();
  const GrammarProgram& program = automaton_.program();
  for (std::uint32_t at = 0; at < trie.size();) {
    const std::uint8_t byte = trie.node(at).byte();
    const std::uint32_t end = at + trie.node(at).subtree();
    const bool inside = byte < 0x80 ? set.ascii[byte] : set.high;
    const bool odd = set.has_ascii(byte) && odd_classes_[program.byte_class(byte)];
    if (odd) {
      for (const std::uint32_t token : trie.tokens_below(at)) {
        mask_[token / 32] &= ~(1U << token % 32);
      }
    }
    if (!inside || odd) walk(trie, at, end, 0);
    at = end;
  }
  if (set.high) walk(vocabulary_.broken_trie(), 0, vocabulary_.broken_trie().size(), 0);
}

// Walks nodes of a trie from a state of the chain.
void TokenMaskMaker::walk(const TokenTrie& trie, std::uint32_t begin, std::uint32_t end,
                          std::size_t from) {
  auto& states = automaton_.walk();
  std::array<std::uint32_t, kMaxMaskedBytes + kMaxSliceChars + 3> ends;  // of the states' subtrees
  std::size_t depth = n_chain_;
  states[depth] = states[from];
  ends[depth] = end;
  for (std::uint32_t at = begin; at < end;) {
    while (at >= ends[depth]) --depth;
    automaton_.set_walk(depth + 1);
    const TokenTrieNode node = trie.node(at);
    const StateId state = automaton_.next_byte(states[depth], node.byte());
    if (automaton_.n_steps() > last_step_) break;
    if (state == kDeadState) {
      at += node.subtree();
      continue;
    }
    for (const std::uint32_t token : trie.tokens(at)) set(token);
    if (node.subtree() > 1) {
      ++depth;
      states[depth] = state;
      ends[depth] = at + node.subtree();
    }
    ++at;
  }
  automaton_.set_walk(n_chain_);
}

}  // namespace qsf
