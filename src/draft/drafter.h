// SPDX-License-Identifier: MIT
//
// Drafter: guesses the next tokens of a sequence by copying what followed the last time.
//
// The tokens behind the most recent earlier occurrence of the text's longest repeated end are the
// draft; a pass then verifies them all at once. This costs no model and no arithmetic. It pays
// where texts repeat themselves or their prompt: edits, summaries, code, answers from documents.
//
// A copy that reaches the end of the text goes on with its own tokens, so that a run of one token
// or a table of equal rows is continued for as long as is wanted.
//
// Where drafts come from is a DraftSource. The sequence's own text is the first; a second one, as
// the texts of other requests, may be added: the longer match wins. How many tokens to draft is
// DraftLength's question. Nothing here knows models, and every token is a number without meaning.
//
// Based on: Saxena, "Prompt lookup decoding", 2023; Hu et al., "SAM Decoding: speculative decoding
// via suffix automaton", 2024 (the longest match of two sources).

#ifndef QSF_DRAFT_DRAFTER_H_
#define QSF_DRAFT_DRAFTER_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "draft/suffix_automaton.h"

namespace qsf {

// Text to copy from, as one sequence sees it: it follows the sequence token by token and knows
// which place of its own text the end of the sequence matches. A text that many sequences share has
// one such view for each.
// Threads  one at a time
class DraftSource {
 public:
  DraftSource() = default;
  DraftSource(DraftSource&&) = default;
  DraftSource& operator=(DraftSource&&) = default;
  virtual ~DraftSource() = default;

  // The sequence goes on with a token.
  virtual void append(std::uint32_t token) noexcept = 0;
  // The sequence is cut to its first n_tokens. A source that cannot go back has no match then.
  // Requires  n_tokens <= the tokens that the sequence has
  virtual void truncate(std::uint32_t n_tokens) noexcept = 0;

  // Tokens at the end of the sequence that stand in the source's text, before others; 0: none.
  virtual std::uint32_t match_tokens() const noexcept = 0;
  // Writes the tokens that follow those, and returns how many: fewer than draft.size() where the
  // text ends, none without a match.
  virtual std::uint32_t copy_to(std::span<std::uint32_t> draft) const noexcept = 0;
};

// The text of the sequence itself.
class OwnText final : public DraftSource {
 public:
  // Requires  as SuffixAutomaton
  OwnText(std::uint32_t capacity_tokens, MutableByteSpan region)
      : automaton_(capacity_tokens, region) {}

  void append(std::uint32_t token) noexcept override { automaton_.append(token); }
  void truncate(std::uint32_t n_tokens) noexcept override { automaton_.truncate(n_tokens); }
  std::uint32_t match_tokens() const noexcept override { return automaton_.match().length; }
  // Copies as many as are wanted; beyond the automaton's capacity, up to the last token kept.
  std::uint32_t copy_to(std::span<std::uint32_t> draft) const noexcept override;

  std::uint32_t n_tokens() const noexcept { return automaton_.n_tokens(); }
  // The tokens kept.
  std::span<const std::uint32_t> text() const noexcept { return automaton_.text(); }

 private:
  SuffixAutomaton automaton_;
};

struct DrafterOptions {
  std::uint32_t capacity_tokens = 0;  // of the sequence; of longer ones, the first so many are used
  std::uint32_t min_match_tokens = 1;  // at least 1; shorter matches count as none
};

// What is drafted for one sequence.
// Threads  one at a time
class Drafter {
 public:
  // Bytes of the region that the constructor wants.
  // Requires  options.capacity_tokens <= SuffixAutomaton::kMaxTokens
  static std::uint64_t region_bytes(const DrafterOptions& options) noexcept {
    return SuffixAutomaton::region_bytes(options.capacity_tokens);
  }

  // Starts with no text.
  // Requires  region.size() >= region_bytes(options), aligned for std::uint32_t; it outlives the
  //           drafter; options.min_match_tokens > 0
  Drafter(const DrafterOptions& options, MutableByteSpan region);

  // Adds a source whose longer matches win over the own text; null: none.
  // Requires  it outlives the drafter, and has seen the same tokens
  void set_second_source(DraftSource* source) noexcept { second_ = source; }

  // Appends tokens of the prompt, or tokens that were accepted: never those of a draft as such.
  void append(std::uint32_t token) noexcept;
  void append(std::span<const std::uint32_t> tokens) noexcept;
  // Cuts the sequence, at the cost of appending what is left. Requires  n_tokens <= n_tokens()
  void truncate(std::uint32_t n_tokens) noexcept;
  void clear() noexcept { truncate(0); }
  // Follows a text that may have changed anywhere: cuts the sequence where the two differ, and
  // appends the rest. Compares the tokens within the capacity alone.
  void follow(std::span<const std::uint32_t> text) noexcept;
  std::uint32_t n_tokens() const noexcept { return own_.n_tokens(); }

  // Tokens at the end of the text that were found before; 0 where they are fewer than
  // min_match_tokens.
  std::uint32_t match_tokens() const noexcept;
  // Writes the guesses of the next tokens and returns how many: all of `tokens` or, where the
  // source's text ends, fewer; none without a match.
  std::uint32_t draft(std::span<std::uint32_t> tokens) const noexcept;

 private:
  const DraftSource& best_source() const noexcept;

  OwnText own_;
  DraftSource* second_ = nullptr;
  std::uint32_t min_match_tokens_ = 1;
};

}  // namespace qsf

#endif  // QSF_DRAFT_DRAFTER_H_
