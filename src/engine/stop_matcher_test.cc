// SPDX-License-Identifier: MIT
//
// Tests of stop strings over a stream: every way of cutting a text gives the same outcome.

#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

struct Outcome {
  std::string text;
  bool stopped;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.text += matcher.push(piece);
  outcome.text += matcher.finish();
  outcome.stopped = matcher.stopped();
  return outcome;
}

// What the contract says, the slow way.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && text.substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcherTest, NothingToStopAtLetsEverythingThroughAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.push(""), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(feed({""}, {"abc", "d"}), (Outcome{"abcd", false}));
}

TEST(StopMatcherTest, HoldsBackABeginningAndReleasesIt) {
  const std::vector<std::string> stops = {"</end>"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("one </e"), "one ");
  EXPECT_EQ(matcher.push("n"), "");
  EXPECT_EQ(matcher.push("ough"), "</enough");
  EXPECT_EQ(matcher.push(" <"), " ");
  EXPECT_EQ(matcher.finish(), "<");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, StopsBeforeTheStringAndStaysStopped) {
  const std::vector<std::string> stops = {"\n\n", "END"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("a\n"), "a");
  EXPECT_EQ(matcher.push("b E"), "\nb ");
  EXPECT_EQ(matcher.push("NDless\n\n"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcherTest, TheStringCompleteFirstWins) {
  EXPECT_EQ(feed({"abcd", "b"}, {"xabcd"}), (Outcome{"xa", true}));
  EXPECT_EQ(feed({"b", "ab"}, {"xab"}), (Outcome{"x", true}))
      << "both end at one byte: the longest";
}

TEST(StopMatcherTest, OverlapsAreFound) {
  EXPECT_EQ(feed({"aab"}, {"aaa", "b"}), (Outcome{"a", true}));
  EXPECT_EQ(feed({"abab"}, {"ab", "a", "a", "bab"}), (Outcome{"aba", true}));
}

TEST(StopMatcherTest, EveryWayOfCuttingGivesTheSameOutcome) {
  Rng rng(3);
  for (int round = 0; round < 3000; ++round) {
    const auto random_text = [&](std::uint32_t max_bytes) {
      std::string text(rng.below(max_bytes + 1), 'a');
      for (char& c : text) c = static_cast<char>('a' + rng.below(2));
      return text;
    };
    std::vector<std::string> stops(rng.below(4));
    for (std::string& stop : stops) stop = random_text(6);
    const std::string text = random_text(24);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = rng.below(5);
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    EXPECT_EQ(feed(stops, pieces), expected(stops, text)) << text;
  }
}

TEST(StopMatcherTest, NeverSplitsACharacter) {
  const std::string umlaut = "\xC3\xBC";  // the second byte is the beginning of the stop string
  EXPECT_EQ(feed({"\xBCx"}, {"a" + umlaut, "x b"}), (Outcome{"a", true}));
  const std::vector<std::string> stops = {"\xBCx"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("a" + umlaut), "a");
  EXPECT_EQ(matcher.push("y"), umlaut + "y");
}

}  // namespace
}  // namespace qsf
