// SPDX-License-Identifier: MIT
//
// Holds SuffixAutomaton to a table of common suffixes, and to its bounds on the texts that reach
// them.

#include "draft/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/testing/allocation_counter.h"

namespace qsf {
namespace {

using Words = std::vector<std::uint32_t>;

// An automaton in memory of exactly the planned size, between guards.
class OwnedAutomaton {
 public:
  explicit OwnedAutomaton(std::uint32_t capacity_tokens)
      : words_(SuffixAutomaton::region_bytes(capacity_tokens) / sizeof(std::uint32_t) + 2, kGuard),
        automaton_(capacity_tokens,
                   std::as_writable_bytes(std::span(words_).subspan(1, words_.size() - 2))) {}

  SuffixAutomaton* operator->() { return &automaton_; }
  SuffixAutomaton& operator*() { return automaton_; }
  bool guards_are_whole() const { return words_.front() == kGuard && words_.back() == kGuard; }
  void append(std::span<const std::uint32_t> text) {
    for (const std::uint32_t token : text) automaton_.append(token);
  }

 private:
  static constexpr std::uint32_t kGuard = 0xABCDEF01U;
  Words words_;
  SuffixAutomaton automaton_;
};

// The matches of a text's first 1, 2, ... tokens, of the ends at most `n_kept` tokens from the
// start: row[end] is how many tokens before `end` equal those at the end of the text.
std::vector<SuffixMatch> matches_by_table(std::span<const std::uint32_t> text,
                                          std::size_t n_kept = SIZE_MAX) {
  std::vector<SuffixMatch> matches(text.size());
  Words row(text.size() + 1, 0);
  for (std::size_t n = 1; n <= text.size(); ++n) {
    for (std::size_t end = n; end > 0; --end) {
      row[end] = text[end - 1] == text[n - 1] ? row[end - 1] + 1 : 0;
    }
    SuffixMatch& match = matches[n - 1];
    for (std::size_t end = std::min(n - 1, n_kept); end > 0; --end) {
      if (row[end] > match.length) {
        match = {.length = row[end], .next = static_cast<std::uint32_t>(end)};
      }
    }
  }
  return matches;
}

Words random_words(Rng& rng, std::size_t n, std::uint32_t n_different) {
  Words text(n);
  for (std::uint32_t& token : text) token = rng.below(n_different);
  return text;
}

// Of random pieces and copies of what stands before, as texts with edits are.
Words random_copies(Rng& rng, std::size_t n, std::uint32_t n_different) {
  Words text = random_words(rng, 4, n_different);
  while (text.size() < n) {
    const std::size_t from = rng.below(static_cast<std::uint32_t>(text.size()));
    const std::size_t n_copied = rng.below(12);
    for (std::size_t i = 0; i < n_copied; ++i) text.push_back(text[from + i]);
    text.push_back(rng.below(n_different));
  }
  text.resize(n);
  return text;
}

void expect_matches_of(OwnedAutomaton& automaton, std::span<const std::uint32_t> text,
                       std::size_t n_kept = SIZE_MAX) {
  const std::vector<SuffixMatch> want = matches_by_table(text, n_kept);
  for (std::size_t i = automaton->n_tokens(); i < text.size(); ++i) {
    automaton->append(text[i]);
    const SuffixMatch match = automaton->match();
    ASSERT_EQ(match.length, want[i].length) << "token " << i << " of " << text.size();
    ASSERT_EQ(match.next, want[i].next) << "token " << i << " of " << text.size();
  }
  EXPECT_TRUE(automaton.guards_are_whole());
}

TEST(SuffixAutomatonTest, MatchesRandomTextsAsATableDoes) {
  Rng rng(1);
  for (int i = 0; i < 4000; ++i) {
    const std::uint32_t n_different = 2 + rng.below(4);
    const std::size_t n = 1 + rng.below(60);
    OwnedAutomaton automaton(static_cast<std::uint32_t>(n));
    expect_matches_of(automaton, i % 2 == 0 ? random_words(rng, n, n_different)
                                            : random_copies(rng, n, n_different));
    if (HasFatalFailure()) FAIL() << "text " << i;
  }
}

// Every text of up to 9 tokens over three: small cases hide none.
TEST(SuffixAutomatonTest, MatchesEveryShortText) {
  for (std::uint32_t n = 1, n_texts = 3; n <= 9; ++n, n_texts *= 3) {
    for (std::uint32_t code = 0; code < n_texts; ++code) {
      Words text(n);
      for (std::uint32_t i = 0, rest = code; i < n; ++i, rest /= 3) text[i] = rest % 3;
      OwnedAutomaton automaton(n);
      expect_matches_of(automaton, text);
      if (HasFatalFailure()) FAIL() << "text " << code;
    }
  }
}

TEST(SuffixAutomatonTest, MatchesLongTextsAsATableDoes) {
  Rng rng(2);
  for (const std::uint32_t n_different : {2U, 5U, 300U}) {
    OwnedAutomaton automaton(3000);
    expect_matches_of(automaton, random_copies(rng, 3000, n_different));
    ASSERT_FALSE(HasFatalFailure()) << n_different;
  }
}

TEST(SuffixAutomatonTest, TakesAnyTokens) {
  const Words text = {UINT32_MAX, 0, 262143, UINT32_MAX, 0, UINT32_MAX, 0, 262143, 0};
  OwnedAutomaton automaton(9);
  expect_matches_of(automaton, text);
}

TEST(SuffixAutomatonTest, FindsNothingInTextsWithoutRepetition) {
  OwnedAutomaton automaton(5000);
  EXPECT_EQ(automaton->match(), SuffixMatch());
  for (std::uint32_t i = 0; i < 5000; ++i) {
    automaton->append(i * 2654435761U);
    ASSERT_EQ(automaton->match(), SuffixMatch());
  }
  EXPECT_EQ(automaton->n_states(), 5001U);
  // A state has an edge; the root has one for each token.
  EXPECT_EQ(automaton->n_further_edges(), 4999U);
}

TEST(SuffixAutomatonTest, FollowsARunOfOneToken) {
  OwnedAutomaton automaton(20000);
  automaton->append(7);
  for (std::uint32_t n = 2; n <= 20000; ++n) {
    automaton->append(7);
    ASSERT_EQ(automaton->match(), (SuffixMatch{.length = n - 1, .next = n - 1}));
  }
}

// Behind a run that used up the steps of updates: the lengths are exact, and what is found is an
// occurrence.
TEST(SuffixAutomatonTest, FindsOccurrencesWhereUpdatesRunOut) {
  Words text(1000, 1);
  Rng rng(3);
  while (text.size() < 3000) {
    text.push_back(2 + rng.below(2));
    text.insert(text.end(), rng.below(900), 1);
  }
  const std::vector<SuffixMatch> want = matches_by_table(text);
  OwnedAutomaton automaton(static_cast<std::uint32_t>(text.size()));
  std::size_t n_earlier = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    automaton->append(text[i]);
    const SuffixMatch match = automaton->match();
    ASSERT_EQ(match.length, want[i].length) << i;
    ASSERT_LE(match.next, want[i].next) << i;
    ASSERT_TRUE(std::equal(text.begin() + (match.next - match.length), text.begin() + match.next,
                           text.begin() + static_cast<std::ptrdiff_t>(i + 1 - match.length)));
    if (match.next != want[i].next) ++n_earlier;
  }
  EXPECT_GT(n_earlier, 0U);  // or this text tests nothing
  EXPECT_LT(n_earlier, text.size() / 2);
}

// Steps that short walks leave are there for a run: 1,000 distinct tokens pay for three of 100.
TEST(SuffixAutomatonTest, SavesStepsOfUpdatesForRuns) {
  Words text(1000);
  for (std::uint32_t i = 0; i < 1000; ++i) text[i] = 100 + i;
  for (int part = 0; part < 3; ++part) {
    text.insert(text.end(), 100, 1);
    text.push_back(2);
  }
  OwnedAutomaton automaton(static_cast<std::uint32_t>(text.size()));
  expect_matches_of(automaton, text);
}

TEST(SuffixAutomatonTest, ReachesItsBoundsAndNoMore) {
  for (std::uint32_t n = 3; n < 200; ++n) {
    Words text(n, 2);
    text[0] = 1;
    OwnedAutomaton most_states(n);
    most_states.append(text);
    EXPECT_EQ(most_states->n_states(), SuffixAutomaton::max_states(n));
    text[n - 1] = 3;
    OwnedAutomaton most_edges(n);
    most_edges.append(text);
    EXPECT_EQ(most_edges->n_further_edges(), SuffixAutomaton::max_further_edges(n));
    EXPECT_TRUE(most_states.guards_are_whole() && most_edges.guards_are_whole());
  }
}

TEST(SuffixAutomatonTest, PlansExactly) {
  EXPECT_EQ(SuffixAutomaton::max_states(0), 1U);
  EXPECT_EQ(SuffixAutomaton::max_states(1), 2U);
  EXPECT_EQ(SuffixAutomaton::max_states(2), 3U);
  EXPECT_EQ(SuffixAutomaton::region_bytes(0), 24U);
  EXPECT_EQ(SuffixAutomaton::region_bytes(1), 4U + 2 * 24);
  // A token, two states, an edge and its bucket; a state and an edge less.
  EXPECT_EQ(SuffixAutomaton::region_bytes(131072), 131072U * (4 + 48 + 24) - 24 - 24);
  EXPECT_EQ(SuffixAutomaton::region_bytes(SuffixAutomaton::kMaxTokens), 76U * (1ULL << 30) - 48);
}

TEST(SuffixAutomatonTest, AllocatesNothing) {
  if (!testing_support::counts_allocations()) GTEST_SKIP() << "a sanitizer counts them";
  Rng rng(4);
  const Words text = random_copies(rng, 2000, 50);
  OwnedAutomaton automaton(1500);
  const long before = testing_support::n_allocations();
  automaton.append(text);
  automaton->truncate(700);
  automaton.append(text);
  automaton->clear();
  EXPECT_EQ(testing_support::n_allocations(), before);
}

// After each cut and each clear() it is as one that never saw the rest.
TEST(SuffixAutomatonTest, TruncatesToWhatWasThere) {
  Rng rng(5);
  for (int i = 0; i < 300; ++i) {
    OwnedAutomaton automaton(80);
    Words text;
    for (int cut = 0; cut < 4; ++cut) {
      const Words more = random_copies(rng, rng.below(21), 3);
      text.insert(text.end(), more.begin(), more.end());
      expect_matches_of(automaton, text);
      ASSERT_FALSE(HasFatalFailure()) << "text " << i;
      text.resize(rng.below(static_cast<std::uint32_t>(text.size()) + 1));
      automaton->truncate(static_cast<std::uint32_t>(text.size()));
      ASSERT_EQ(automaton->match(), text.empty() ? SuffixMatch() : matches_by_table(text).back());
      ASSERT_TRUE(std::ranges::equal(automaton->text(), text));
    }
    automaton->clear();
    EXPECT_EQ(automaton->n_tokens(), 0U);
    EXPECT_EQ(automaton->n_states(), 1U);
    EXPECT_EQ(automaton->n_further_edges(), 0U);
    EXPECT_EQ(automaton->match(), SuffixMatch());
    expect_matches_of(automaton, random_words(rng, 80, 2));
  }
}

// A truncation to the length that the text has costs nothing and changes nothing, unlike one that
// builds anew: steps saved up stay.
TEST(SuffixAutomatonTest, TruncatesToTheWholeTextForNothing) {
  OwnedAutomaton automaton(10);
  automaton.append(Words{1, 2, 1, 2});
  automaton->truncate(4);
  EXPECT_EQ(automaton->match(), (SuffixMatch{.length = 2, .next = 2}));
  EXPECT_EQ(automaton->n_tokens(), 4U);
}

TEST(SuffixAutomatonTest, FindsEndsBeyondItsCapacityAmongTheTokensKept) {
  Rng rng(6);
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t capacity = rng.below(40);
    OwnedAutomaton automaton(capacity);
    const Words text = random_copies(rng, 80, 2 + rng.below(3));
    expect_matches_of(automaton, text, capacity);
    if (HasFatalFailure()) FAIL() << "text " << i << ", capacity " << capacity;
    ASSERT_EQ(automaton->n_tokens(), 80U);
    ASSERT_EQ(automaton->text().size(), capacity);
  }
}

TEST(SuffixAutomatonTest, TruncatesBeyondItsCapacity) {
  OwnedAutomaton automaton(6);
  const Words text = {1, 2, 3, 1, 2, 4, 1, 2, 3, 1};
  automaton.append(text);
  EXPECT_EQ(automaton->match(), (SuffixMatch{.length = 4, .next = 4}));
  automaton->truncate(9);  // its last three tokens are not known
  EXPECT_EQ(automaton->n_tokens(), 9U);
  EXPECT_EQ(automaton->match(), SuffixMatch());
  automaton->append(1);
  EXPECT_EQ(automaton->match(), (SuffixMatch{.length = 1, .next = 4}));
  automaton->truncate(6);
  EXPECT_EQ(automaton->match(), SuffixMatch());  // 4 is new
  automaton.append(Words{1, 2});
  EXPECT_EQ(automaton->match(), (SuffixMatch{.length = 2, .next = 5}));
  automaton->truncate(5);
  EXPECT_EQ(automaton->match(), (SuffixMatch{.length = 2, .next = 2}));
}

// The binary sequence of 2^order tokens that contains each text of `order` tokens once: the words
// of Lyndon whose length divides the order, in order (Fredricksen, Kessler and Maiorana).
Words de_bruijn(std::uint32_t order) {
  Words sequence;
  Words word(order + 1, 0);
  const std::function<void(std::uint32_t, std::uint32_t)> extend = [&](std::uint32_t at,
                                                                       std::uint32_t period) {
    if (at > order) {
      if (order % period == 0) {
        sequence.insert(sequence.end(), word.begin() + 1, word.begin() + 1 + period);
      }
      return;
    }
    word[at] = word[at - period];
    extend(at + 1, period);
    if (word[at] == 0) {
      word[at] = 1;
      extend(at + 1, at);
    }
  };
  extend(1, 1);
  return sequence;
}

// Texts that make a careless automaton quadratic, at a length where this takes minutes; the time
// limit of the program is the bound.
TEST(SuffixAutomatonTest, TakesLinearTimeForWorstTexts) {
  constexpr std::uint32_t kTokens = 1U << 18;
  const Words cycle = de_bruijn(18);
  ASSERT_EQ(cycle.size(), kTokens);
  const auto run = [](const std::function<std::uint32_t(std::uint32_t)>& token) {
    OwnedAutomaton automaton(kTokens);
    for (std::uint32_t i = 0; i < kTokens; ++i) automaton->append(token(i));
    EXPECT_TRUE(automaton.guards_are_whole());
    return automaton->match().length;
  };
  EXPECT_EQ(run([&](std::uint32_t i) { return cycle[i]; }), 17U);
  EXPECT_EQ(run([](std::uint32_t) { return 5U; }), kTokens - 1);
  EXPECT_EQ(run([](std::uint32_t i) { return i % 2; }), kTokens - 2);
  // One token before different ones: a state with half as many edges as there are tokens.
  EXPECT_EQ(run([](std::uint32_t i) { return i % 2 == 0 ? 0 : i; }), 0U);
  // A run and its copy, broken at the end of each.
  EXPECT_EQ(run([](std::uint32_t i) { return i % (kTokens / 2) == 0 ? 9U : 5U; }), kTokens / 2);
}

}  // namespace
}  // namespace qsf
