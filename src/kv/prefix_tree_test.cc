// SPDX-License-Identifier: MIT
//
// Tests of PrefixTree: what is found, shared and evicted, and random operations against a model
// that keeps every text in a std::map.

#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

using Text = std::vector<std::uint32_t>;

// A cache with a tree, both in memory of their own.
class Tree {
 public:
  explicit Tree(std::uint32_t n_pages, std::uint32_t n_sequences = 8, std::uint32_t n_slots = 1024)
      : limits_{.n_pages = n_pages, .max_sequences = n_sequences, .max_slots = n_slots},
        cache_lines_(KvCache::region_bytes(limits_) / sizeof(Line)),
        tree_lines_(PrefixTree::region_bytes(n_pages) / sizeof(Line)),
        kv(KvCache::create({}, limits_, std::as_writable_bytes(std::span(cache_lines_))).value()),
        tree(kv, std::as_writable_bytes(std::span(tree_lines_))) {}

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  KvLimits limits_;
  std::vector<Line> cache_lines_;
  std::vector<Line> tree_lines_;

 public:
  KvCache kv;
  PrefixTree tree;

  bool is_consistent() const { return kv.is_consistent() && tree.is_consistent(); }
  // A sequence of this text, computed but for what the tree has.
  SequenceId sequence_of(std::string_view key, const Text& text) {
    const SequenceId sequence = kv.create_sequence().value();
    tree.adopt(key, text, sequence);
    const auto n = static_cast<std::uint32_t>(text.size());
    EXPECT_TRUE(kv.append(sequence, n - kv.n_slots(sequence)).has_value());
    return sequence;
  }
  // The same, left behind in the tree.
  void keep(std::string_view key, const Text& text) {
    const SequenceId sequence = sequence_of(key, text);
    tree.insert(key, text, sequence);
    kv.free_sequence(sequence);
  }
  std::uint32_t n_found(std::string_view key, const Text& text) {
    const SequenceId sequence = kv.create_sequence().value();
    const std::uint32_t n = tree.adopt(key, text, sequence);
    EXPECT_EQ(kv.n_slots(sequence), n * kKvPageSlots);
    kv.free_sequence(sequence);
    return n;
  }
};

// n tokens, the pages of which are named by `pages`.
Text text_of(std::string_view pages, std::size_t n) {
  Text text;
  for (std::size_t i = 0; i < n; ++i) {
    text.push_back(static_cast<std::uint32_t>(pages[i / kKvPageSlots]) * 1000 +
                   static_cast<std::uint32_t>(i % kKvPageSlots));
  }
  return text;
}

TEST(PrefixTreeTest, FindsFullPagesButNeverAWholeText) {
  Tree t(8);
  t.keep("key", text_of("abc", 150));
  EXPECT_EQ(t.tree.stats().n_pages, 2U);  // the third page is not full
  EXPECT_EQ(t.kv.n_free_pages(), 8U);
  EXPECT_EQ(t.kv.n_idle_pages(), 2U);
  EXPECT_EQ(t.n_found("key", text_of("abc", 150)), 2U);
  EXPECT_EQ(t.n_found("key", text_of("abd", 150)), 2U);
  EXPECT_EQ(t.n_found("key", text_of("axc", 150)), 1U);
  EXPECT_EQ(t.n_found("key", text_of("xbc", 150)), 0U);
  EXPECT_EQ(t.n_found("key", text_of("ba", 128)), 0U);
  EXPECT_EQ(t.n_found("key", text_of("ab", 129 - 1)), 1U);
  EXPECT_EQ(t.n_found("key", text_of("abc", 129)), 2U);
  EXPECT_EQ(t.n_found("key", text_of("a", 64)), 0U);
  EXPECT_EQ(t.n_found("key", text_of("ab", 65)), 1U);
  EXPECT_EQ(t.n_found("key", text_of("a", 1)), 0U);
  EXPECT_EQ(t.n_found("key", {}), 0U);
  Text other = text_of("abc", 150);
  other[63] ^= 1;
  EXPECT_EQ(t.n_found("key", other), 0U);
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, KeysShareNothing) {
  Tree t(8);
  const std::string longest(PrefixTree::kMaxKeyBytes, 'k');
  const std::string_view keys[] = {"key", "", std::string_view("key\0", 4), longest};
  t.keep("key", text_of("ab", 128));
  EXPECT_EQ(t.tree.stats().n_keys, 1U);
  for (const std::string_view key : keys) {
    EXPECT_EQ(t.n_found(key, text_of("abc", 140)), key == "key" ? 2U : 0U);
  }
  for (const std::string_view key : keys) t.keep(key, text_of("ab", 128));
  EXPECT_EQ(t.tree.stats().n_keys, 4U);
  EXPECT_EQ(t.tree.stats().n_pages, 8U);
  for (const std::string_view key : keys) EXPECT_EQ(t.n_found(key, text_of("abc", 140)), 2U);
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, APageOfOneKeyNeverEntersUnderAnother) {
  Tree t(8);
  const SequenceId sequence = t.sequence_of("one", text_of("ab", 128));
  t.tree.insert("one", text_of("a", 64), sequence);
  t.tree.insert("two", text_of("ab", 128), sequence);
  EXPECT_EQ(t.tree.stats().n_pages, 1U);
  EXPECT_EQ(t.tree.stats().n_keys, 1U);
  EXPECT_EQ(t.n_found("two", text_of("abc", 140)), 0U);
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, TheSecondOfTwoEqualTextsGetsThePagesOfTheFirst) {
  Tree t(8);
  const SequenceId first = t.sequence_of("key", text_of("abc", 192));
  const SequenceId second = t.sequence_of("key", text_of("abd", 192));
  EXPECT_EQ(t.kv.n_free_pages(), 2U);
  t.tree.insert("key", text_of("abc", 192), first);
  t.tree.insert("key", text_of("abd", 192), second);
  EXPECT_EQ(t.kv.n_free_pages(), 4U);
  EXPECT_EQ(t.tree.stats().n_pages, 4U);
  EXPECT_EQ(t.tree.stats().n_entries, 2U);
  EXPECT_EQ(t.kv.page_of(first, 0), t.kv.page_of(second, 0));
  EXPECT_EQ(t.kv.page_of(first, 64), t.kv.page_of(second, 64));
  EXPECT_NE(t.kv.page_of(first, 128), t.kv.page_of(second, 128));
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, PagesOfAForkAreNotExchanged) {
  Tree t(8);
  const SequenceId second = t.sequence_of("key", text_of("ab", 128));
  const SequenceId fork = t.kv.fork(second).value();
  t.keep("key", text_of("ab", 128));
  t.tree.insert("key", text_of("ab", 128), second);
  EXPECT_EQ(t.kv.page_of(fork, 0), t.kv.page_of(second, 0));
  EXPECT_FALSE(t.kv.is_retained(t.kv.page_of(second, 0)));
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, AnAppendAfterACutIntoASharedPageCopiesIt) {
  Tree t(8);
  t.keep("key", text_of("ab", 128));
  const SequenceId sequence = t.sequence_of("key", text_of("abc", 130));
  const std::uint32_t shared = t.kv.page_of(sequence, 100);
  t.kv.truncate(sequence, 100);
  const Appended appended = t.kv.append(sequence, 1).value();
  ASSERT_TRUE(appended.copy.has_value());
  EXPECT_EQ(appended.copy->from_page, shared);
  EXPECT_NE(t.kv.page_of(sequence, 100), shared);
  EXPECT_EQ(t.n_found("key", text_of("abc", 130)), 2U);
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, EvictsTheLeastRecentlyUsedLeafAndNoPageInUse) {
  Tree t(6);
  t.keep("key", text_of("ab", 128));
  t.keep("key", text_of("ac", 128));
  t.keep("key", text_of("x", 64));
  EXPECT_EQ(t.tree.stats().n_pages, 4U);
  EXPECT_EQ(t.n_found("key", text_of("abc", 130)), 2U);  // used: "ac" is older now
  const SequenceId user = t.sequence_of("key", text_of("xy", 65));
  const SequenceId taker = t.kv.create_sequence().value();
  ASSERT_TRUE(t.kv.append(taker, 64).has_value());  // the last page that is free
  EXPECT_EQ(t.tree.stats().n_evicted_pages, 0U);
  EXPECT_EQ(t.kv.n_free_pages(), 3U);
  ASSERT_TRUE(t.kv.append(taker, 64).has_value());
  EXPECT_EQ(t.n_found("key", text_of("acc", 130)), 1U);
  EXPECT_EQ(t.n_found("key", text_of("abc", 130)), 2U);
  ASSERT_TRUE(t.kv.append(taker, 128).has_value());
  EXPECT_EQ(t.tree.stats().n_evicted_pages, 3U);
  EXPECT_EQ(t.n_found("key", text_of("abc", 130)), 0U);
  EXPECT_FALSE(t.kv.append(taker, 1).has_value());  // what is left is in use
  EXPECT_EQ(t.n_found("key", text_of("xy", 65)), 1U);
  EXPECT_TRUE(t.is_consistent());
  t.kv.free_sequence(user);
  EXPECT_TRUE(t.kv.append(taker, 1).has_value());
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, ReservationsCountIdlePagesAsFreeOnes) {
  Tree t(6);
  t.keep("key", text_of("abcd", 256));
  EXPECT_EQ(t.kv.n_unreserved_pages(), 6U);
  const SequenceId other = t.kv.create_sequence().value();
  ASSERT_TRUE(t.kv.reserve(other, 4 * kKvPageSlots).ok());
  EXPECT_EQ(t.kv.n_unreserved_pages(), 2U);
  // Two of the four idle pages may be taken away from the pages promised to the other.
  EXPECT_EQ(t.n_found("key", text_of("abcde", 300)), 2U);
  const SequenceId follower = t.kv.create_sequence().value();
  EXPECT_EQ(t.tree.adopt("key", text_of("abcde", 300), follower), 2U);
  EXPECT_FALSE(t.kv.reserve(follower, 300).ok());
  EXPECT_TRUE(t.is_consistent());
  ASSERT_TRUE(t.kv.append(other, 4 * kKvPageSlots).has_value());  // the promise holds
  EXPECT_TRUE(t.is_consistent());
  // Pages that another sequence holds cost nothing.
  const SequenceId third = t.kv.create_sequence().value();
  EXPECT_EQ(t.tree.adopt("key", text_of("abx", 140), third), 2U);
  EXPECT_EQ(t.kv.n_missing_pages(third, 12), 1U);
}

TEST(PrefixTreeTest, AReservationOutlivesACutWhereIdlePagesWillDo) {
  Tree t(4);
  t.keep("key", text_of("ab", 128));
  const SequenceId sequence = t.kv.create_sequence().value();
  ASSERT_TRUE(t.kv.reserve(sequence, 4 * kKvPageSlots).ok());
  ASSERT_TRUE(t.kv.append(sequence, 64).has_value());
  t.kv.truncate(sequence, 0);
  EXPECT_EQ(t.kv.n_unreserved_pages(), 0U);
  EXPECT_TRUE(t.kv.fork(sequence).has_value());
  EXPECT_TRUE(t.is_consistent());
}

TEST(PrefixTreeTest, CountsWhyNothingWasFound) {
  Tree t(8);
  t.keep("key", text_of("ab", 128));
  t.tree.count("key", text_of("abc", 130), 2);
  t.tree.count("key", text_of("a", 64), 0);
  t.tree.count("key", text_of("xb", 65), 0);
  t.tree.count("other", text_of("ab", 65), 0);
  t.tree.count("key", text_of("ab", 65), 0);  // its page is there, but reserved as a free one
  const PrefixTreeStats stats = t.tree.stats();
  EXPECT_EQ(stats.n_hits, 1U);
  EXPECT_EQ(stats.n_hit_tokens, 128U);
  EXPECT_EQ(stats.n_too_short, 1U);
  EXPECT_EQ(stats.n_no_entry, 2U);
  EXPECT_EQ(stats.n_other_key, 1U);
}

// Every slot holds a hash of the text up to it, as keys and values do: a wrong page shows.
class RandomTreeRun {
 public:
  explicit RandomTreeRun(std::uint64_t seed)
      : rng_(seed), n_pages_(6 + rng_.below(14)), t_(n_pages_), store_(n_pages_ * kKvPageSlots) {}

  void step() {
    switch (rng_.below(12)) {
      case 0:
      case 1:
      case 2: begin(); break;
      case 3:
      case 4:
      case 5: with_any(&RandomTreeRun::append); break;
      case 6:
      case 7:
      case 8: with_any(&RandomTreeRun::insert); break;
      case 9: with_any(&RandomTreeRun::truncate); break;
      case 10: with_any(&RandomTreeRun::fork); break;
      default: with_any(&RandomTreeRun::end); break;
    }
  }

  void verify() {
    ASSERT_TRUE(t_.kv.is_consistent());
    ASSERT_TRUE(t_.tree.is_consistent());
    ASSERT_EQ(t_.tree.stats().n_pages, entries_.size());
    ASSERT_EQ(t_.kv.n_idle_pages(),
              std::count_if(entries_.begin(), entries_.end(),
                            [this](const auto& entry) { return is_idle(entry.second.page); }));
    for (const auto& [name, entry] : entries_) ASSERT_TRUE(t_.kv.is_retained(entry.page));
    for (const auto& [sequence, text] : texts_) {
      std::uint64_t hash = 0;
      ASSERT_EQ(t_.kv.n_slots(sequence), text.tokens.size());
      for (std::uint32_t slot = 0; slot < text.tokens.size(); ++slot) {
        hash = next_hash(hash, text.tokens[slot]);
        ASSERT_EQ(store_at(sequence, slot), hash) << "sequence " << sequence << " slot " << slot;
      }
    }
  }

  std::uint64_t n_adopted() const { return n_adopted_; }
  std::uint64_t n_exchanged() const { return n_exchanged_; }
  std::uint64_t n_evicted() const { return t_.tree.stats().n_evicted_pages; }
  std::uint64_t n_refused() const { return n_refused_; }

 private:
  struct Entry {
    std::uint32_t page = 0;
    std::uint64_t last_use = 0;
  };
  struct Running {
    std::string key;
    Text tokens;
  };
  using Name = std::pair<std::string, Text>;  // a key, and all tokens up to the page's end

  static std::uint64_t next_hash(std::uint64_t hash, std::uint32_t token) {
    return (hash + token + 1) * 0x9E3779B97F4A7C15U;
  }
  std::uint64_t& store_at(SequenceId sequence, std::uint32_t slot) {
    return store_[t_.kv.page_of(sequence, slot) * kKvPageSlots + slot % kKvPageSlots];
  }
  static Name name_of(const std::string& key, const Text& tokens, std::size_t n_pages) {
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(n_pages * kKvPageSlots);
    return {key, Text(tokens.begin(), end)};
  }
  // Texts of two kinds of pages, so that many begin alike.
  std::uint32_t next_token(const Text& before) {
    if (before.size() % kKvPageSlots == 0) kind_ = rng_.below(2);
    return before.size() % kKvPageSlots == 0 ? kind_ : 7;
  }
  void with_any(void (RandomTreeRun::*operation)(SequenceId)) {
    if (texts_.empty()) return;
    auto it = texts_.begin();
    std::advance(it, rng_.below(static_cast<std::uint32_t>(texts_.size())));
    (this->*operation)(it->first);
  }
  bool is_idle(std::uint32_t page) const {
    for (const auto& [sequence, text] : texts_) {
      for (const std::uint32_t held : t_.kv.whole_pages(sequence)) {
        if (held == page) return false;
      }
    }
    return true;
  }
  bool is_leaf(const Name& name) const {
    return std::none_of(entries_.begin(), entries_.end(), [&name](const auto& other) {
      return other.first.first == name.first && other.first.second.size() > name.second.size() &&
             std::equal(name.second.begin(), name.second.end(), other.first.second.begin());
    });
  }
  // Evicts from the model until it has evicted `n` pages in all.
  void follow_evictions(std::uint64_t n) {
    for (; n_followed_ < n; ++n_followed_) {
      auto oldest = entries_.end();
      for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        if (!was_idle_.contains(it->second.page) || !is_leaf(it->first)) continue;
        if (oldest == entries_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
      }
      ASSERT_NE(oldest, entries_.end()) << "a page in use was evicted";
      entries_.erase(oldest);
    }
  }
  void note_idle() {
    was_idle_.clear();
    for (const auto& [name, entry] : entries_) {
      if (is_idle(entry.page)) was_idle_[entry.page] = true;
    }
  }

  void begin() {
    const Result<SequenceId> created = t_.kv.create_sequence();
    if (!created.has_value()) return;
    Text tokens;
    const std::uint32_t n = 1 + rng_.below(5 * kKvPageSlots);
    while (tokens.size() < n) tokens.push_back(next_token(tokens));
    const std::string key = rng_.below(4) == 0 ? "two" : "one";
    const std::uint32_t n_unreserved = t_.kv.n_unreserved_pages();
    note_idle();
    const std::uint32_t n_adopted = t_.tree.adopt(key, tokens, *created);
    std::uint32_t n_expected = 0;
    std::uint32_t n_taken = 0;
    ++n_uses_;
    while ((n_expected + 1) * kKvPageSlots < tokens.size()) {
      const auto found = entries_.find(name_of(key, tokens, n_expected + 1));
      if (found == entries_.end()) break;
      if (was_idle_.contains(found->second.page) && n_taken++ == n_unreserved) break;
      found->second.last_use = n_uses_;
      ++n_expected;
    }
    ASSERT_EQ(n_adopted, n_expected);
    n_adopted_ += n_adopted;
    tokens.resize(std::size_t{n_adopted} * kKvPageSlots);
    texts_[*created] = {key, tokens};
    if (rng_.below(2) == 0 && !t_.kv.reserve(*created, n).ok()) ++n_refused_;
  }
  void append(SequenceId sequence) {
    Text& tokens = texts_[sequence].tokens;
    const std::uint32_t n = 1 + rng_.below(150);
    if (tokens.size() + n > t_.kv.limits().max_slots) return;
    const std::uint32_t n_missing = t_.kv.n_missing_pages(sequence, n);
    note_idle();
    const std::uint32_t last = tokens.empty() ? 0 : t_.kv.whole_pages(sequence).back();
    const bool is_last_user = t_.kv.is_retained(last) && t_.kv.page_references(last) == 2;
    const bool evicts_for_copy = t_.kv.n_free_pages() == t_.kv.n_idle_pages();
    const Result<Appended> appended = t_.kv.append(sequence, n);
    ASSERT_EQ(appended.has_value(), n_missing == 0);
    if (!appended.has_value()) {
      ++n_refused_;
      return;
    }
    if (appended->copy.has_value()) {
      std::copy_n(store_.begin() + appended->copy->from_page * kKvPageSlots, kKvPageSlots,
                  store_.begin() + appended->copy->to_page * kKvPageSlots);
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto slot = static_cast<std::uint32_t>(tokens.size());
      tokens.push_back(next_token(tokens));
      store_at(sequence, slot) =
          next_hash(slot == 0 ? 0 : store_at(sequence, slot - 1), tokens.back());
    }
    // A page becomes idle once it is copied, and may be evicted for the pages behind the copy.
    if (appended->copy.has_value()) {
      if (evicts_for_copy) follow_evictions(n_followed_ + 1);
      if (is_last_user) was_idle_[last] = true;
    }
    follow_evictions(t_.tree.stats().n_evicted_pages);
  }
  void insert(SequenceId sequence) {
    const Running& text = texts_[sequence];
    const std::string key = rng_.below(8) == 0 ? "two" : text.key;
    const Text tokens(text.tokens.begin(),
                      text.tokens.end() - static_cast<std::ptrdiff_t>(rng_.below(
                                              1 + static_cast<std::uint32_t>(text.tokens.size()))));
    ++n_uses_;
    bool stopped = false;
    std::uint64_t n_exchanged = 0;
    for (std::size_t i = 0; i < tokens.size() / kKvPageSlots && !stopped; ++i) {
      const std::uint32_t own = t_.kv.whole_pages(sequence)[i];
      const Name name = name_of(key, tokens, i + 1);
      const auto found = entries_.find(name);
      if (found == entries_.end()) {
        stopped = t_.kv.is_retained(own);
        if (!stopped) entries_[name] = {own, n_uses_};
      } else if (found->second.page != own && t_.kv.page_references(own) != 1) {
        stopped = true;
      } else {
        n_exchanged += found->second.page != own ? 1 : 0;
        found->second.last_use = n_uses_;
      }
    }
    t_.tree.insert(key, tokens, sequence);
    n_exchanged_ += n_exchanged;
  }
  void truncate(SequenceId sequence) {
    Text& tokens = texts_[sequence].tokens;
    const std::uint32_t n = rng_.below(1 + static_cast<std::uint32_t>(tokens.size()));
    t_.kv.truncate(sequence, n);
    tokens.resize(n);
  }
  void fork(SequenceId sequence) {
    const Result<SequenceId> child = t_.kv.fork(sequence);
    if (child.has_value()) texts_[*child] = Running(texts_[sequence]);
  }
  void end(SequenceId sequence) {
    t_.kv.free_sequence(sequence);
    texts_.erase(sequence);
  }

  Rng rng_;
  std::uint32_t n_pages_;
  Tree t_;
  std::vector<std::uint64_t> store_;
  std::map<SequenceId, Running> texts_;
  std::map<Name, Entry> entries_;
  std::map<std::uint32_t, bool> was_idle_;  // before the operation
  std::uint32_t kind_ = 0;
  std::uint64_t n_uses_ = 0;
  std::uint64_t n_followed_ = 0;
  std::uint64_t n_adopted_ = 0;
  std::uint64_t n_exchanged_ = 0;
  std::uint64_t n_refused_ = 0;
};

TEST(PrefixTreeTest, RandomOperationsMatchTheModel) {
  std::uint64_t n_exchanged = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomTreeRun run(seed);
    for (int i = 0; i < 600; ++i) {
      run.step();
      run.verify();
      if (testing::Test::HasFatalFailure()) FAIL() << "step " << i;
    }
    EXPECT_GT(run.n_adopted(), 0U);  // or the run never reached what it is meant to reach
    EXPECT_GT(run.n_evicted(), 0U);
    EXPECT_GT(run.n_refused(), 0U);
    n_exchanged += run.n_exchanged();
  }
  EXPECT_GT(n_exchanged, 0U);
}

}  // namespace
}  // namespace qsf
