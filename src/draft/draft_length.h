// SPDX-License-Identifier: MIT
//
// DraftLength: how many tokens to draft, from what was accepted so far and what passes cost.
//
// A pass with k drafted tokens yields those that are accepted up to the first that is not, and one
// more. If a is the chance of each, given that those before it were accepted, this is on average
//
//   E(k) = 1 + a + a^2 + ... + a^k
//
// tokens for pass_ns(k + 1). best_draft_tokens finds the k of the most tokens a time, those of the
// pass's other sequences included: a draft delays them too. Where weights
// are streamed, further rows are free up to a point, and drafts go to it whatever is accepted;
// where weights are resident, a row costs about half a pass and drafts are short or off.
//
// The chance is learned for each class of matches, by their length, as longer ones are continued
// alike more often. Counts are decayed, so that a change of text is noticed.
//
// Losses are bounded. Each class of matches has an account in passes of one row. Every pass with
// such a match pays in kProbeShare of a pass; a draft draws the time that it takes beyond a row,
// and each of its tokens that is accepted pays in a pass. No draft is made that would overdraw the
// account if none of it were accepted. (A pass of several sequences is worth as many tokens.) So in
// n passes with matches of a class, drafting has cost at most kFirstCredit + n kProbeShare passes
// more than it saved, whatever the text, if passes cost what pass_ns says. What is left on the
// account of a class that is not worth drafting pays for probes of one token, one in (pass_ns(2) /
// pass_ns(1) - 1) / kProbeShare passes, or at once after a probe that was accepted: that one earned
// the next.
//
// A model that drafts is a class of its own, and what it takes to draft is part of the times.
//
// Results depend on arguments and calls alone, never on a clock.
//
// Based on: Leviathan, Kalman and Matias, "Fast inference from transformers via speculative
// decoding", 2023, section 3 (E and its optimum).

#ifndef QSF_DRAFT_DRAFT_LENGTH_H_
#define QSF_DRAFT_DRAFT_LENGTH_H_

#include <array>
#include <cstdint>
#include <span>

namespace qsf {

// Nanoseconds of passes by their number of rows: [k] with k drafted rows, of the current text
// lengths.
// Requires  not empty, not falling, the first > 0
using PassTimes = std::span<const std::uint64_t>;

// The least gain that is worth drafting: less is lost in errors of what is measured and learned.
inline constexpr double kLeastDraftGain = 1.03;

// Returns the k < pass_ns.size() with the most tokens a time, the largest one of equals; 0 where
// none yields kLeastDraftGain times what k = 0 does. Without a draft the pass yields n_undrafted
// tokens, of all sequences.
// Requires  chance, of each drafted token, in [0, 1]; n_undrafted > 0
std::uint32_t best_draft_tokens(double chance, PassTimes pass_ns,
                                double n_undrafted = 1.0) noexcept;

// What a pass made of its draft.
struct DraftOutcome {
  std::uint32_t match_tokens = 0;  // before the pass; 0: there was no match
  std::uint32_t n_drafted = 0;     // rows beyond the first
  std::uint32_t n_accepted = 0;    // of them, from the first one on
  double n_undrafted = 1.0;        // tokens that the pass would have yielded without them
  std::uint64_t drafting_ns = 0;   // to make the draft
};

// What is learned from one sequence.
// Threads  one at a time
class DraftLength {
 public:
  static constexpr std::uint32_t kMaxDraftTokens = 64;
  // In the place of a match: the draft of a model.
  static constexpr std::uint32_t kOfModel = UINT32_MAX;
  // Matches of 1, 2, 3 to 4, 5 to 8, 9 to 16 and more tokens, and kOfModel.
  static constexpr std::uint32_t kClasses = 7;
  static constexpr std::uint32_t class_of(std::uint32_t match_tokens) noexcept;
  // Accounts, in passes of one row.
  static constexpr double kProbeShare = 0.02;
  static constexpr double kFirstCredit = 1.0;
  static constexpr double kMostCredit = 4.0;  // what was saved long ago pays for no later loss

  // Starts with the chances of the texts in the design's references.
  DraftLength() noexcept;

  // Returns how many tokens to draft behind a match, at most kMaxDraftTokens; 0 without one.
  // n_undrafted as in best_draft_tokens.
  // Guarantees  less than pass_ns.size()
  std::uint32_t n_tokens(std::uint32_t match_tokens, PassTimes pass_ns,
                         double n_undrafted = 1.0) const noexcept;

  // Tokens that a pass with n_drafted tokens behind a match is expected to yield in a nanosecond.
  // Requires  match_tokens > 0; n_drafted < pass_ns.size()
  double rate(std::uint32_t match_tokens, std::uint32_t n_drafted, PassTimes pass_ns,
              double n_undrafted) const noexcept;

  // Learns from a pass, to be called after each one, also where nothing was drafted.
  // Requires  n_accepted <= n_drafted < pass_ns.size()
  void update(const DraftOutcome& outcome, PassTimes pass_ns) noexcept;

  // The chance of a drafted token behind a match to be accepted, as learned.
  // Requires  match_tokens > 0
  double chance(std::uint32_t match_tokens) const noexcept;
  // What is left of the account of a match's class. Requires  match_tokens > 0
  double credit(std::uint32_t match_tokens) const noexcept {
    return classes_[class_of(match_tokens)].credit;
  }

 private:
  struct Class {
    double n_seen = 0.0;  // tokens that were accepted or refused, decayed
    double n_accepted = 0.0;
    double credit = kFirstCredit;
  };
  std::array<Class, kClasses> classes_;
};

constexpr std::uint32_t DraftLength::class_of(std::uint32_t match_tokens) noexcept {
  if (match_tokens <= 2) return match_tokens <= 1 ? 0 : 1;
  if (match_tokens <= 4) return 2;
  if (match_tokens <= 8) return 3;
  if (match_tokens == kOfModel) return 6;
  return match_tokens <= 16 ? 4 : 5;
}

}  // namespace qsf

#endif  // QSF_DRAFT_DRAFT_LENGTH_H_
