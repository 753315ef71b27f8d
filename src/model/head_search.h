// SPDX-License-Identifier: MIT
//
// The search for the best tokens of an output head that is read in parts: which runs of rows are
// read next, and when the rest cannot matter.
//
// Units are runs of rows of the head that are read together, each with an upper bound of its
// logits. They are taken by falling bound, until no other may hold one of the n best. Tokens are
// ordered as by a sampler that sees all of them: larger logits first, of equal ones the smaller
// token. A unit whose bound equals the n-th best logit is therefore read.
//
// Without bounds it serves the approximate search: units are taken by falling score, as many as the
// caller likes.

#ifndef QSF_MODEL_HEAD_SEARCH_H_
#define QSF_MODEL_HEAD_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qsf {

struct TokenLogit {
  std::uint32_t token;
  float logit;
};

// Returns whether a sampler prefers a to b.
constexpr bool is_better(TokenLogit a, TokenLogit b) noexcept {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Allocates in its constructor alone. Threads  one
class HeadSearch {
 public:
  // Requires  n_best > 0
  HeadSearch(std::uint32_t n_units, std::uint32_t n_best);

  // Sets how many tokens the next searches are for.
  // Requires  0 < n_best, at most that of the constructor
  void set_n_best(std::uint32_t n_best) noexcept;

  // Starts a search. Bounds that are not numbers count as +infinity.
  // Shapes  bounds [n_units]  of logits as given to add(): with bias, scale and soft cap, if these
  //         are increasing functions as computed; kept until the search ends
  // Work    n_units comparisons
  void start(std::span<const float> bounds) noexcept;

  // Writes the units to read next, by falling bound, of equal ones the first; returns how many: 0
  // when no other unit can hold one of the n_best tokens. After that n_best() is final.
  // Guarantees  no unit twice in a search; all at once are what the logits so far cannot exclude
  // Work        log n_units comparisons for each unit
  std::size_t take(std::span<std::uint32_t> units) noexcept;

  // Takes the logits of a unit's rows. Those that are not numbers are never best, and has_broken()
  // tells: what a sampler makes of them is not known here.
  // Shapes  tokens, logits [rows of the unit]
  void add(std::span<const std::uint32_t> tokens, std::span<const float> logits) noexcept;

  bool has_broken() const noexcept { return has_broken_; }
  std::uint32_t n_taken() const noexcept { return n_taken_; }
  // Returns the best tokens so far, best first, and fewer than n_best if fewer were added. Until
  // the next start() or add().
  std::span<const TokenLogit> best() noexcept;

 private:
  bool may_matter(float bound) const noexcept;

  std::vector<float> bounds_;
  std::vector<std::uint32_t> queue_;  // a heap of units, the largest bound first
  std::vector<TokenLogit> best_;      // a heap, the worst first; sorted after best()
  std::size_t n_best_;
  std::size_t most_best_;
  std::size_t n_queued_ = 0;
  std::uint32_t n_taken_ = 0;
  bool is_sorted_ = false;
  bool has_broken_ = false;
};

// Whether a search pays: it is switched off where it reads more than a share of the head.
//
// The mean over about kMemory tokens decides. Switched off, it is tried again after kPause tokens:
// texts change. Threads  one
class HeadSwitch {
 public:
  static constexpr float kMemory = 32.0F;
  static constexpr std::uint32_t kPause = 512;

  explicit HeadSwitch(float largest_share = 0.6F) noexcept : largest_share_(largest_share) {}

  // Returns whether to search for the next token. Called once a token.
  bool is_on() noexcept;
  // Tells what share of the head's bytes a search read, its sketch included.
  void record(float share) noexcept;

 private:
  float largest_share_;
  float mean_ = 0.0F;
  std::uint32_t pause_ = 0;
};

}  // namespace qsf

#endif  // QSF_MODEL_HEAD_SEARCH_H_
