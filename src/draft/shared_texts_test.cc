// SPDX-License-Identifier: MIT
//
// Tests of SharedTexts: what a view finds is what a search of the key's texts finds, also while
// they grow; keys see nothing of each other; full texts and forgotten keys.

#include "draft/shared_texts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

using SharedTokens = std::vector<std::uint32_t>;

class OwnedTexts {
 public:
  explicit OwnedTexts(const SharedTextsOptions& options)
      : words_(SharedTexts::region_bytes(options) / sizeof(std::uint32_t)),
        texts_(options, std::as_writable_bytes(std::span(words_))) {}
  SharedTexts& operator*() { return texts_; }
  SharedTexts* operator->() { return &texts_; }

 private:
  SharedTokens words_;
  SharedTexts texts_;
};

SharedTokens drafted(const SharedTextView& view, std::size_t n_most) {
  SharedTokens draft(n_most);
  draft.resize(view.copy_to(draft));
  return draft;
}

void append_all(SharedTextView& view, const SharedTokens& tokens) {
  for (const std::uint32_t token : tokens) view.append(token);
}

// The longest end of `sequence` in `text`.
std::size_t longest_end(const SharedTokens& text, const SharedTokens& sequence) {
  for (std::size_t n = std::min(text.size(), sequence.size()); n > 0; --n) {
    if (std::search(text.begin(), text.end(), sequence.end() - static_cast<std::ptrdiff_t>(n),
                    sequence.end()) != text.end()) {
      return n;
    }
  }
  return 0;
}

TEST(SharedTextsTest, ASequenceGoesOnWithATextOfItsKey) {
  OwnedTexts texts({});
  texts->add("one", SharedTokens{1, 2, 3, 4, 5});
  SharedTextView view;
  EXPECT_EQ(view.match_tokens(), 0U);  // of no texts
  view.append(2);
  view.open(*texts, "one");
  append_all(view, {9, 2, 3});
  EXPECT_EQ(view.match_tokens(), 2U);
  EXPECT_EQ(drafted(view, 8), (SharedTokens{4, 5}));  // not into the next text
  EXPECT_EQ(drafted(view, 1), (SharedTokens{4}));
  texts->add("one", SharedTokens{3, 7, 8});
  view.append(7);  // the newer text
  EXPECT_EQ(view.match_tokens(), 2U);
  EXPECT_EQ(drafted(view, 8), (SharedTokens{8}));
  view.append(8);
  EXPECT_EQ(drafted(view, 8), SharedTokens{});
  view.truncate(1);
  EXPECT_EQ(view.match_tokens(), 0U);
  view.close();
  EXPECT_EQ(drafted(view, 8), SharedTokens{});
}

TEST(SharedTextsTest, KeysSeeNothingOfEachOther) {
  OwnedTexts texts({});
  texts->add("one", SharedTokens{1, 2, 3});
  SharedTextView view;
  view.open(*texts, "two");
  append_all(view, {1, 2});
  EXPECT_EQ(view.match_tokens(), 0U);
  texts->add("two", SharedTokens{2, 5});
  view.append(2);  // from here on
  EXPECT_EQ(drafted(view, 8), (SharedTokens{5}));
  view.open(*texts, "one");
  EXPECT_EQ(view.match_tokens(), 0U);
  append_all(view, {1, 2});
  EXPECT_EQ(drafted(view, 8), (SharedTokens{3}));
}

TEST(SharedTextsTest, TheKeyThatWasUsedLongestAgoMakesRoom) {
  OwnedTexts texts({.n_keys = 2, .tokens_per_key = 16});
  texts->add("a", SharedTokens{1, 2});
  texts->add("b", SharedTokens{1, 3});
  SharedTextView of_a;
  SharedTextView of_b;
  of_a.open(*texts, "a");
  of_b.open(*texts, "b");
  of_a.append(1);
  of_b.append(1);
  texts->add("a", SharedTokens{7, 8});
  texts->add("c", SharedTokens{1, 4});  // in the place of b
  EXPECT_EQ(drafted(of_a, 4), (SharedTokens{2}));
  EXPECT_EQ(of_b.match_tokens(), 0U);
  of_b.append(1);
  EXPECT_EQ(drafted(of_b, 4), SharedTokens{});
  SharedTextView of_c;
  of_c.open(*texts, "c");
  of_c.append(1);
  EXPECT_EQ(drafted(of_c, 4), (SharedTokens{4}));
}

TEST(SharedTextsTest, AFullTextStartsAnew) {
  OwnedTexts texts({.n_keys = 1, .tokens_per_key = 8});
  texts->add("", SharedTokens{1, 2, 3});
  SharedTextView view;
  view.open(*texts, "");
  view.append(1);
  EXPECT_EQ(view.match_tokens(), 1U);
  texts->add("", SharedTokens{4, 5, 6, 7});  // and a separator: no room
  EXPECT_EQ(view.match_tokens(), 0U);
  append_all(view, {1, 4});
  EXPECT_EQ(drafted(view, 9), (SharedTokens{5, 6, 7}));
  texts->add("", SharedTokens{10, 11, 12, 13, 14, 15, 16, 17, 18, 19});  // longer than all
  append_all(view, {10, 11});
  EXPECT_EQ(drafted(view, 9), (SharedTokens{12, 13, 14, 15, 16}));
}

// Views stay right while texts are added, which splits the states that they are in.
TEST(SharedTextsTest, ViewsFindWhatASearchFinds) {
  Rng rng(17);
  for (int round = 0; round < 40; ++round) {
    OwnedTexts texts({.n_keys = 1, .tokens_per_key = 400});
    const std::uint32_t n_ids = 2 + rng.below(4);
    SharedTokens all;
    SharedTokens sequence;
    SharedTextView view;
    view.open(*texts, "k");
    for (int step = 0; step < 120; ++step) {
      if (rng.below(8) == 0 && all.size() < 360) {
        SharedTokens text;
        for (std::uint32_t n = rng.below(20); n > 0; --n) text.push_back(rng.below(n_ids));
        texts->add("k", text);
        // What was not there before is not looked for again.
        if (all.empty()) sequence.clear();
        all.insert(all.end(), text.begin(), text.end());
        all.push_back(SharedTexts::kSeparator);
      }
      sequence.push_back(rng.below(n_ids));
      const std::uint32_t before = view.match_tokens();
      view.append(sequence.back());
      const std::size_t found = view.match_tokens();
      ASSERT_LE(found, longest_end(all, sequence));
      ASSERT_LE(found, before + 1U);
      // As long as can be, given what it was before.
      const SharedTokens end(
          sequence.end() -
              std::min<std::ptrdiff_t>(before + 1, static_cast<std::ptrdiff_t>(sequence.size())),
          sequence.end());
      ASSERT_EQ(found, longest_end(all, end)) << round << ' ' << step;
    }
  }
}

}  // namespace
}  // namespace qsf
