// SPDX-License-Identifier: MIT
//
// Tests of DraftLength: the optima of the design's table, how soon wrong priors are corrected, and
// that drafting never costs more than its accounts allow.

#include "draft/draft_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

using Times = std::vector<std::uint64_t>;

constexpr double kPassNs = 1e9;  // of one row

// Passes of 1 to 64 rows that read weights while they compute: max(R, c r), with n* = R / c.
Times overlapped(double free_rows) {
  Times times;
  for (int r = 1; r <= 64; ++r) {
    times.push_back(static_cast<std::uint64_t>(kPassNs * std::max(1.0, r / free_rows)));
  }
  return times;
}

// Each further row takes a share of a pass.
Times linear(double row) {
  Times times;
  for (int r = 0; r < 64; ++r) {
    times.push_back(static_cast<std::uint64_t>(kPassNs * (1.0 + row * r)));
  }
  return times;
}

double tokens_of_pass(double chance, std::uint32_t k) {
  return (1.0 - std::pow(chance, k + 1)) / (1.0 - chance);
}

// Tokens a pass of one row's time.
double rate_of(double chance, std::uint32_t k, const Times& times) {
  return tokens_of_pass(chance, k) * kPassNs / static_cast<double>(times[k]);
}

TEST(BestDraftTokensTest, IsThatOfTheDesignsTable) {
  const Times resident = overlapped(1 / 0.45);
  EXPECT_EQ(best_draft_tokens(0.6, resident), 1U);
  EXPECT_EQ(best_draft_tokens(0.8, resident), 2U);
  EXPECT_EQ(best_draft_tokens(0.95, resident), 2U);
  EXPECT_NEAR(rate_of(0.6, 1, resident), 1.6, 0.05);
  EXPECT_NEAR(rate_of(0.8, 2, resident), 1.8, 0.05);
  EXPECT_NEAR(rate_of(0.95, 2, resident), 2.1, 0.05);
}

TEST(BestDraftTokensTest, FillsFreeRows) {
  for (const std::uint32_t n_free : {16U, 31U, 48U, 54U}) {
    for (const double chance : {0.05, 0.3, 0.6, 0.8, 0.9, 0.95}) {
      EXPECT_EQ(best_draft_tokens(chance, overlapped(n_free)), n_free - 1)
          << n_free << ' ' << chance;
    }
  }
  // Beyond them where a row costs little.
  Times step = linear(0.02);
  std::rotate(step.begin(), step.end() - 15, step.end());
  std::fill_n(step.begin(), 15, step[15]);
  EXPECT_GT(best_draft_tokens(0.95, step), 15U);
  EXPECT_EQ(best_draft_tokens(0.6, step), 15U);
  EXPECT_EQ(best_draft_tokens(1.0, linear(0.5)), 63U);
}

TEST(BestDraftTokensTest, IsNoneWhereAFewPercentAreNotGained) {
  EXPECT_EQ(best_draft_tokens(0.05, linear(0.45)), 0U);
  EXPECT_EQ(best_draft_tokens(0.45, linear(0.45)), 0U);
  EXPECT_EQ(best_draft_tokens(0.02, overlapped(2)), 0U);
  EXPECT_EQ(best_draft_tokens(0.04, overlapped(2)), 1U);
  EXPECT_EQ(best_draft_tokens(0.49, linear(0.45)), 0U);  // 1.0276
  EXPECT_EQ(best_draft_tokens(0.50, linear(0.45)), 1U);  // 1.0345
  EXPECT_EQ(best_draft_tokens(0.0, linear(0.45)), 0U);
  EXPECT_EQ(best_draft_tokens(1.0, Times{5}), 0U);
}

TEST(BestDraftTokensTest, IsTheBestOfAll) {
  Rng rng(21);
  for (int i = 0; i < 2000; ++i) {
    const double chance = 0.999 * rng.next_f64();
    Times times = {1000 + rng.below(1000)};
    const std::uint32_t n_rows = 1 + rng.below(12);
    while (times.size() < n_rows) times.push_back(times.back() + rng.below(900));
    std::uint32_t best = 0;
    for (std::uint32_t k = 1; k < n_rows; ++k) {
      if (rate_of(chance, k, times) > rate_of(chance, best, times)) best = k;
    }
    const double gain = rate_of(chance, best, times) / rate_of(chance, 0, times);
    if (std::abs(gain - kLeastDraftGain) < 1e-9) continue;
    const std::uint32_t want = gain > kLeastDraftGain ? best : 0;
    ASSERT_EQ(best_draft_tokens(chance, times), want) << "case " << i;
  }
}

// Others of a pass wait for its drafts.
TEST(BestDraftTokensTest, CountsTheTokensOfTheOthers) {
  const Times row = linear(0.1);
  EXPECT_EQ(best_draft_tokens(0.7, row), 4U);
  EXPECT_EQ(best_draft_tokens(0.7, row, 4.0), 2U);   // 5.19 tokens in 1.2 passes
  EXPECT_EQ(best_draft_tokens(0.7, row, 10.0), 0U);  // 10.7 tokens in 1.1 passes are fewer
  EXPECT_EQ(best_draft_tokens(0.7, overlapped(16), 10.0), 15U);
}

TEST(DraftLengthTest, PaysForTheTimeOfTheOthers) {
  DraftLength length;
  const Times row = linear(0.2);
  const double before = length.credit(4);
  length.update({.match_tokens = 4, .n_drafted = 2, .n_accepted = 0, .n_undrafted = 2.0}, row);
  EXPECT_NEAR(length.credit(4), before + DraftLength::kProbeShare - 0.8, 1e-9);
  // As many tokens as are paid for: one takes 0.2 passes of four tokens.
  DraftLength fresh;
  EXPECT_GT(fresh.n_tokens(17, row), fresh.n_tokens(17, row, 4.0));
  EXPECT_EQ(fresh.n_tokens(17, row, 6.0), 0U);
}

// One text: every drafted token is accepted with the same chance until one is not.
class DraftedText {
 public:
  explicit DraftedText(std::uint64_t seed) : rng_(seed) {}

  DraftLength length;
  double n_passes_worth = 0.0;  // time, in passes of one row
  double n_tokens = 0.0;

  std::uint32_t pass(std::uint32_t match, double chance, const Times& times) {
    const std::uint32_t k = length.n_tokens(match, times);
    std::uint32_t n_accepted = 0;
    while (n_accepted < k && rng_.next_f64() < chance) ++n_accepted;
    length.update({.match_tokens = match, .n_drafted = k, .n_accepted = n_accepted}, times);
    n_passes_worth += static_cast<double>(times[k]) / static_cast<double>(times[0]);
    n_tokens += 1 + n_accepted;
    return k;
  }
  double rate() const { return n_tokens / n_passes_worth; }

 private:
  Rng rng_;
};

constexpr std::array<std::uint32_t, DraftLength::kClasses> kMatches = {
    1, 2, 4, 8, 16, 40, DraftLength::kOfModel};

TEST(DraftLengthTest, KeepsChancesByClassOfMatch) {
  DraftLength length;
  const std::vector<std::uint32_t> first = {1, 2, 3, 5, 9, 17};
  const std::vector<std::uint32_t> last = {1, 2, 4, 8, 16, 1000000};
  EXPECT_EQ(DraftLength::class_of(DraftLength::kOfModel), first.size());
  for (std::uint32_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(DraftLength::class_of(first[i]), i);
    EXPECT_EQ(DraftLength::class_of(last[i]), i);
    EXPECT_EQ(length.chance(first[i]), length.chance(last[i]));
    if (i > 0) {
      EXPECT_GT(length.chance(first[i]), length.chance(last[i - 1]));
    }
  }
  EXPECT_NEAR(length.chance(3), 0.4, 1e-12);
  // Of 4 drafted behind 7 tokens two are accepted, the third is refused, the fourth not seen.
  length.update({.match_tokens = 7, .n_drafted = 4, .n_accepted = 2}, linear(0.1));
  EXPECT_NEAR(length.chance(7), (4 * 0.95 * 0.55 + 2) / (4 * 0.95 + 3), 1e-12);
  // All that were drafted are accepted.
  length.update({.match_tokens = 3, .n_drafted = 2, .n_accepted = 2}, linear(0.1));
  EXPECT_NEAR(length.chance(3), (4 * 0.95 * 0.4 + 2) / (4 * 0.95 + 2), 1e-12);
  // Passes without a draft teach nothing, nor do they make what was learned count less.
  length.update({.match_tokens = 3}, linear(0.1));
  EXPECT_NEAR(length.chance(3), (4 * 0.95 * 0.4 + 2) / (4 * 0.95 + 2), 1e-12);
  length.update({.match_tokens = 4, .n_drafted = 1}, linear(0.1));
  EXPECT_NEAR(length.chance(3), (4 * 0.95 * 0.4 + 2) * 0.95 / ((4 * 0.95 + 2) * 0.95 + 1), 1e-12);
  EXPECT_NEAR(length.chance(2), 0.25, 1e-12);
  EXPECT_NEAR(length.chance(9), 0.7, 1e-12);
}

TEST(DraftLengthTest, DraftsNothingWithoutAMatch) {
  DraftLength length;
  EXPECT_EQ(length.n_tokens(0, overlapped(16)), 0U);
  length.update({}, overlapped(16));
  for (const std::uint32_t match : kMatches) {
    EXPECT_EQ(length.credit(match), DraftLength::kFirstCredit);
    EXPECT_EQ(length.n_tokens(match, Times{7}), 0U);  // no pass has more than a row
  }
}

TEST(DraftLengthTest, DraftsAtMostItsLimit) {
  DraftLength length;
  EXPECT_EQ(length.n_tokens(100, Times(200, 1000)), DraftLength::kMaxDraftTokens);
}

TEST(DraftLengthTest, FillsFreeRowsWhateverIsAccepted) {
  const Times times = overlapped(16);
  for (const std::uint32_t match : kMatches) {
    for (const double chance : {0.05, 0.3, 0.6, 0.8}) {
      DraftedText text(31);
      int n_full = 0;
      for (int i = 0; i < 400; ++i) n_full += text.pass(match, chance, times) == 15 ? 1 : 0;
      EXPECT_GE(n_full, chance < 0.1 ? 200 : 380) << match << ' ' << chance;
      EXPECT_GE(text.rate(), 0.98 * tokens_of_pass(chance, 1)) << match << ' ' << chance;
    }
  }
}

// From every prior to every chance, and where the text changes after 300 passes of another one:
// passes 50 to 150 are near the best that knowledge of the chance would give.
TEST(DraftLengthTest, CorrectsWrongChancesWithinFiftyPasses) {
  const std::vector<Times> tables = {overlapped(16), overlapped(1 / 0.45), linear(0.45),
                                     linear(0.1)};
  for (std::size_t table = 0; table < tables.size(); ++table) {
    const Times& times = tables[table];
    for (const std::uint32_t match : kMatches) {
      for (const double before : {-1.0, 0.05, 0.9}) {
        for (const double chance : {0.05, 0.3, 0.6, 0.8, 0.95}) {
          double n_tokens = 0.0;
          double n_passes = 0.0;
          for (std::uint64_t seed = 0; seed < 40; ++seed) {
            DraftedText text(100 + seed);
            if (before >= 0.0) {
              for (int i = 0; i < 300; ++i) text.pass(match, before, times);
            }
            for (int i = 0; i < 50; ++i) text.pass(match, chance, times);
            text.n_tokens = text.n_passes_worth = 0.0;
            for (int i = 0; i < 100; ++i) text.pass(match, chance, times);
            n_tokens += text.n_tokens;
            n_passes += text.n_passes_worth;
          }
          const double best =
              std::max(1.0, rate_of(chance, best_draft_tokens(chance, times), times));
          const std::string where = "table " + std::to_string(table) + ", match " +
                                    std::to_string(match) + ", " + std::to_string(before) + " to " +
                                    std::to_string(chance);
          EXPECT_GE(n_tokens / n_passes, 0.93 * best) << where;
          EXPECT_GE(n_tokens / n_passes, 0.97) << where;
        }
      }
    }
  }
}

TEST(DraftLengthTest, IsOffOnOpenText) {
  const Times times = linear(0.45);
  for (const std::uint32_t match : kMatches) {
    DraftedText text(41);
    int n_drafts = 0;
    for (int i = 0; i < 50; ++i) text.pass(match, 0.05, times);
    for (int i = 0; i < 2000; ++i) {
      const std::uint32_t k = text.pass(match, 0.05, times);
      EXPECT_LE(k, 1U);
      n_drafts += k > 0 ? 1 : 0;
    }
    // 0.45 / 0.02 = 22.5 passes pay for a probe, one in 20 of which pays for two more.
    EXPECT_GE(n_drafts, 2000 / 23) << match;
    EXPECT_LE(n_drafts, 2000 / 18) << match;
  }
}

TEST(DraftLengthTest, ProbesAsOftenAsCostsAllow) {
  for (const double row : {0.1, 0.3, 0.9}) {
    DraftedText text(42);
    std::vector<int> at;
    for (int i = 0; i < 1000; ++i) {
      if (text.pass(1, 0.0, linear(row)) > 0) at.push_back(i);
    }
    ASSERT_GE(at.size(), 3U);
    for (std::size_t i = at.size() / 2; i < at.size(); ++i) {
      EXPECT_NEAR(at[i] - at[i - 1], row / DraftLength::kProbeShare, 1.0) << row;
    }
  }
}

// Whatever is accepted, and however chances and classes change, drafting costs at most the
// accounts.
TEST(DraftLengthTest, LosesAtMostItsAccounts) {
  Rng rng(43);
  for (int i = 0; i < 400; ++i) {
    DraftedText text(1000 + static_cast<std::uint64_t>(i));
    const Times times =
        rng.below(2) == 0 ? linear(0.02 + rng.next_f64()) : overlapped(1.0 + 8 * rng.next_f64());
    const bool one_class = rng.below(2) == 0;
    double chance = 0.0;
    std::uint32_t match = kMatches[rng.below(DraftLength::kClasses)];
    const int n_passes = 100 + static_cast<int>(rng.below(1000));
    for (int pass = 0; pass < n_passes; ++pass) {
      if (pass % 100 == 0) chance = rng.below(3) == 0 ? rng.next_f64() : 0.0;
      if (!one_class) match = kMatches[rng.below(DraftLength::kClasses)];
      text.pass(match, chance, times);
      ASSERT_GE(text.length.credit(match), 0.0);
      ASSERT_LE(text.length.credit(match), DraftLength::kMostCredit);
    }
    const double lost = text.n_passes_worth - text.n_tokens;
    const double n_classes = one_class ? 1 : DraftLength::kClasses;
    ASSERT_LE(lost,
              n_classes * DraftLength::kFirstCredit + n_passes * DraftLength::kProbeShare + 1e-6)
        << "text " << i;
  }
}

// In a hundred passes and more with matches of a class the loss is below 3 %.
TEST(DraftLengthTest, LosesLessThanThreePercentOfOpenText) {
  for (const Times& times : {linear(0.45), linear(0.1), linear(1.0), overlapped(1 / 0.6)}) {
    for (const std::uint32_t match : kMatches) {
      for (const double chance : {0.0, 0.05, 0.2, 0.4}) {
        double n_tokens = 0.0;
        double n_passes = 0.0;
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
          DraftedText text(2000 + seed);
          for (int i = 0; i < 101; ++i) text.pass(match, chance, times);
          n_tokens += text.n_tokens;
          n_passes += text.n_passes_worth;
        }
        EXPECT_GE(n_tokens / n_passes, 0.97) << match << ' ' << chance;
      }
    }
  }
}

TEST(DraftLengthTest, GivesTheSameForTheSameCalls) {
  DraftedText one(51);
  DraftedText other(51);
  const Times times = linear(0.45);
  Rng rng(52);
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t match = rng.below(30);
    ASSERT_EQ(one.pass(match, 0.6, times), other.pass(match, 0.6, times));
    ASSERT_EQ(one.length.n_tokens(match, times), one.length.n_tokens(match, times));
  }
}

// What a model takes to draft is lost with its drafts, so one that is never right ends up unused,
// but for probes; one that is always right drafts on.
TEST(DraftLengthTest, AModelPaysForTheTimeThatItDrafts) {
  constexpr std::uint64_t kDrafting = 200'000'000;
  const Times passes = overlapped(16);
  Times with_drafting = passes;
  for (std::size_t k = 1; k < with_drafting.size(); ++k) with_drafting[k] += k * kDrafting;
  for (const bool is_right : {false, true}) {
    DraftLength length;
    std::uint32_t n_drafted = 0;
    for (int pass = 0; pass < 1000; ++pass) {
      const std::uint32_t n = length.n_tokens(DraftLength::kOfModel, with_drafting);
      n_drafted += n;
      length.update({.match_tokens = DraftLength::kOfModel,
                     .n_drafted = n,
                     .n_accepted = is_right ? n : 0,
                     .drafting_ns = n * kDrafting},
                    passes);
    }
    if (is_right) {
      EXPECT_GT(n_drafted, 10'000U);
      EXPECT_GT(length.chance(DraftLength::kOfModel), 0.99);
    } else {
      EXPECT_LT(n_drafted, 150U);  // probes, of a fifth of a pass each
      EXPECT_LT(length.chance(DraftLength::kOfModel), 0.01);
    }
    EXPECT_DOUBLE_EQ(length.chance(1), DraftLength().chance(1));
    EXPECT_DOUBLE_EQ(length.chance(DraftLength::kOfModel - 1), DraftLength().chance(17));
  }
}

TEST(DraftLengthTest, RatesAreTokensANanosecond) {
  const DraftLength length;
  const double chance = length.chance(20);
  const Times times = {100, 100, 150};
  EXPECT_DOUBLE_EQ(length.rate(20, 0, times, 3.0), 3.0 / 100);
  EXPECT_DOUBLE_EQ(length.rate(20, 2, times, 3.0), (3.0 + chance + chance * chance) / 150);
}

}  // namespace
}  // namespace qsf
