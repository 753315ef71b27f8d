// SPDX-License-Identifier: MIT
//
// TokenMaskMaker: the mask of the tokens that may follow in a state of a grammar.
//
// A slice of the vocabulary (token_slices.h) is taken where its characters all lead to one state,
// and from there on to one state each, as in a string: the tokens of such characters are known, and
// the ends of those that go on are read from the state behind so many characters. A few first
// characters may lead elsewhere, as where a key must differ from the names of properties: their
// tokens are walked. Without a slice all tokens are, as a trie.

#ifndef QSF_GRAMMAR_TOKEN_MASK_H_
#define QSF_GRAMMAR_TOKEN_MASK_H_

#include <bitset>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "grammar/automaton.h"
#include "grammar/token_vocabulary.h"

namespace qsf {

Status too_ambiguous_error();

class TokenMaskMaker {
 public:
  TokenMaskMaker(GrammarAutomaton& automaton, const TokenVocabulary& vocabulary,
                 std::span<std::uint32_t> mask)
      : automaton_(automaton), vocabulary_(vocabulary), mask_(mask) {}

  // Sets the mask of `state`, a held one; tokens that end a text are left to the caller.
  // Shapes  mask [mask_words(n_tokens)]
  // Fails   kInvalidArgument: the bounds do not suffice
  Status make(StateId state);

 private:
  bool take_slice(std::size_t slice);
  bool find_first_state(std::size_t slice);
  bool find_next_state(std::size_t slice);
  bool high_leads_to_last();
  void walk(const TokenTrie& trie, std::uint32_t begin, std::uint32_t end, std::size_t from);
  void walk_other_beginnings(const TokenSlice& set);
  void set(std::uint32_t token) noexcept { mask_[token / 32] |= 1U << token % 32; }

  GrammarAutomaton& automaton_;
  const TokenVocabulary& vocabulary_;
  std::span<std::uint32_t> mask_;
  std::uint64_t last_step_ = 0;
  // States behind 0, 1, ... characters of the slice, in the automaton's walk.
  std::size_t n_chain_ = 0;
  std::bitset<256> odd_classes_;  // of bytes that lead elsewhere as first ones
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_TOKEN_MASK_H_
