// SPDX-License-Identifier: MIT
//
// Tests of Drafter: what is copied from where, and that drafts of random texts are what a search
// of the text finds.

#include "draft/drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

using DraftTokens = std::vector<std::uint32_t>;

// A drafter and its memory.
class OwnedDrafter {
 public:
  explicit OwnedDrafter(const DrafterOptions& options)
      : words_(Drafter::region_bytes(options) / sizeof(std::uint32_t)),
        drafter_(options, std::as_writable_bytes(std::span(words_))) {}

  Drafter* operator->() { return &drafter_; }
  DraftTokens draft(std::size_t n_most) const {
    DraftTokens tokens(n_most);
    tokens.resize(drafter_.draft(tokens));
    return tokens;
  }

 private:
  DraftTokens words_;
  Drafter drafter_;
};

// The same by trying every earlier end, the most recent first, and copying one token at a time.
DraftTokens draft_by_search(DraftTokens text, std::size_t n_most, std::uint32_t min_match) {
  std::size_t longest = 0;
  std::size_t next = 0;
  for (std::size_t end = text.size() - 1; end > 0; --end) {
    std::size_t n = 0;
    while (n < end && text[end - 1 - n] == text[text.size() - 1 - n]) ++n;
    if (n > longest) {
      longest = n;
      next = end;
    }
  }
  if (longest < min_match) return {};
  DraftTokens draft;
  for (; draft.size() < n_most; ++next) {
    draft.push_back(text[next]);
    text.push_back(text[next]);
  }
  return draft;
}

TEST(DrafterTest, CopiesWhatFollowedTheLastTime) {
  OwnedDrafter drafter({.capacity_tokens = 100});
  drafter->append(DraftTokens{1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 8, 2, 3});
  EXPECT_EQ(drafter->n_tokens(), 13U);
  EXPECT_EQ(drafter->match_tokens(), 2U);
  EXPECT_EQ(drafter.draft(3), (DraftTokens{5, 6, 7}));
  EXPECT_EQ(drafter.draft(0), DraftTokens());
  drafter->append(4);  // the longer match is the earlier one
  EXPECT_EQ(drafter->match_tokens(), 3U);
  EXPECT_EQ(drafter.draft(2), (DraftTokens{9, 2}));
}

TEST(DrafterTest, GoesOnWithWhatItDrafted) {
  OwnedDrafter run({.capacity_tokens = 10});
  run->append(DraftTokens{3, 7, 7});
  EXPECT_EQ(run.draft(5), (DraftTokens{7, 7, 7, 7, 7}));
  OwnedDrafter table({.capacity_tokens = 10});
  table->append(DraftTokens{1, 2, 3, 1, 2, 3});
  EXPECT_EQ(table.draft(8), (DraftTokens{1, 2, 3, 1, 2, 3, 1, 2}));
}

TEST(DrafterTest, DraftsNothingWithoutAMatch) {
  OwnedDrafter drafter({.capacity_tokens = 10});
  EXPECT_EQ(drafter->match_tokens(), 0U);
  EXPECT_TRUE(drafter.draft(4).empty());
  drafter->append(DraftTokens{1, 2, 3});
  EXPECT_EQ(drafter->match_tokens(), 0U);
  EXPECT_TRUE(drafter.draft(4).empty());
}

TEST(DrafterTest, CountsShortMatchesAsNone) {
  OwnedDrafter drafter({.capacity_tokens = 20, .min_match_tokens = 3});
  drafter->append(DraftTokens{1, 2, 3, 4, 1, 2});
  EXPECT_EQ(drafter->match_tokens(), 0U);
  EXPECT_TRUE(drafter.draft(4).empty());
  drafter->append(3);
  EXPECT_EQ(drafter->match_tokens(), 3U);
  EXPECT_EQ(drafter.draft(2), (DraftTokens{4, 1}));
}

TEST(DrafterTest, DraftsFromRandomTextsWhatASearchFinds) {
  Rng rng(11);
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t min_match = 1 + rng.below(3);
    OwnedDrafter drafter({.capacity_tokens = 40, .min_match_tokens = min_match});
    DraftTokens text;
    for (int n = 0; n < 40; ++n) {
      text.push_back(rng.below(3));
      drafter->append(text.back());
      ASSERT_EQ(drafter.draft(50), draft_by_search(text, 50, min_match)) << "text " << i;
    }
  }
}

TEST(DrafterTest, DraftsAsIfWhatWasCutHadNeverBeen) {
  OwnedDrafter drafter({.capacity_tokens = 20});
  drafter->append(DraftTokens{1, 2, 3, 1, 2, 4, 1, 2});
  EXPECT_EQ(drafter.draft(1), (DraftTokens{4}));
  drafter->truncate(5);
  EXPECT_EQ(drafter->n_tokens(), 5U);
  EXPECT_EQ(drafter.draft(1), (DraftTokens{3}));
  drafter->clear();
  EXPECT_EQ(drafter->n_tokens(), 0U);
  EXPECT_TRUE(drafter.draft(1).empty());
}

// Of a text longer than the capacity, what is behind the tokens kept is not known.
TEST(DrafterTest, FollowsATextThatChangesAnywhere) {
  constexpr std::uint32_t kCapacity = 40;
  Rng rng(5);
  OwnedDrafter following({.capacity_tokens = kCapacity});
  DraftTokens text;
  for (int i = 0; i < 300; ++i) {
    // Cut anywhere within the capacity, then go on.
    const std::uint32_t within = std::min<std::uint32_t>(kCapacity, text.size());
    if (rng.below(3) == 0 && within > 0) text.resize(rng.below(within));
    for (std::uint32_t n = rng.below(20); n > 0; --n) text.push_back(rng.below(4));
    following->follow(text);
    ASSERT_EQ(following->n_tokens(), text.size());
    OwnedDrafter fresh({.capacity_tokens = kCapacity});
    fresh->append(text);
    ASSERT_EQ(following->match_tokens(), fresh->match_tokens()) << i;
    ASSERT_EQ(following.draft(8), fresh.draft(8)) << i;
  }
}

TEST(DrafterTest, CopiesOnlyTokensThatAreKept) {
  OwnedDrafter drafter({.capacity_tokens = 5});
  drafter->append(DraftTokens{1, 2, 3, 4, 5, 6, 2, 3});
  EXPECT_EQ(drafter->match_tokens(), 2U);
  EXPECT_EQ(drafter.draft(9), (DraftTokens{4, 5}));
  EXPECT_EQ(drafter.draft(1), (DraftTokens{4}));
  drafter->append(DraftTokens{4, 5});
  EXPECT_EQ(drafter->match_tokens(), 4U);
  EXPECT_TRUE(drafter.draft(3).empty());
}

TEST(DrafterTest, MovesWithItsText) {
  DraftTokens words(Drafter::region_bytes({.capacity_tokens = 9}) / sizeof(std::uint32_t));
  Drafter first({.capacity_tokens = 9}, std::as_writable_bytes(std::span(words)));
  first.append(DraftTokens{1, 2, 1});
  Drafter second = std::move(first);
  second.append(2);
  EXPECT_EQ(second.match_tokens(), 2U);
}

// A source that says what it is told to.
class ScriptedSource final : public DraftSource {
 public:
  std::uint32_t n_match = 0;
  DraftTokens next;
  DraftTokens seen;

  void append(std::uint32_t token) noexcept override { seen.push_back(token); }
  void truncate(std::uint32_t n_tokens) noexcept override { seen.resize(n_tokens); }
  std::uint32_t match_tokens() const noexcept override { return n_match; }
  std::uint32_t copy_to(std::span<std::uint32_t> draft) const noexcept override {
    const std::size_t n = std::min(draft.size(), next.size());
    std::copy_n(next.begin(), n, draft.begin());
    return static_cast<std::uint32_t>(n);
  }
};

TEST(DrafterTest, TakesTheLongerMatchOfTwoSources) {
  OwnedDrafter drafter({.capacity_tokens = 10, .min_match_tokens = 2});
  ScriptedSource other;
  drafter->set_second_source(&other);
  drafter->append(DraftTokens{5, 6, 7, 5, 6});
  EXPECT_EQ(other.seen, (DraftTokens{5, 6, 7, 5, 6}));
  other.next = {8, 9};
  other.n_match = 2;  // as long: the own text is closer
  EXPECT_EQ(drafter.draft(4), (DraftTokens{7, 5, 6, 7}));
  other.n_match = 3;
  EXPECT_EQ(drafter->match_tokens(), 3U);
  EXPECT_EQ(drafter.draft(4), (DraftTokens{8, 9}));
  drafter->truncate(1);
  EXPECT_EQ(other.seen, (DraftTokens{5}));
  other.n_match = 1;
  EXPECT_TRUE(drafter.draft(4).empty());
  other.n_match = 2;
  drafter->set_second_source(nullptr);
  EXPECT_TRUE(drafter.draft(4).empty());
}

}  // namespace
}  // namespace qsf
