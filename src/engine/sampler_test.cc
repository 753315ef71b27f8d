// SPDX-License-Identifier: MIT
//
// Tests of the sampler: its older steps alone, their order, ties, odd logits, frequencies, the
// draws of a fixed seed and the refusals of all options.

#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/testing/sampler_bench.h"

namespace qsf {
namespace {

using testing_support::counts_allocations;
using testing_support::draw_once;
using testing_support::drawn;
using testing_support::greedy;
using testing_support::kInf;
using testing_support::kNan;
using testing_support::n_allocations;
using testing_support::plain;
using testing_support::SamplerBench;

TEST(SamplerTest, IdsBeyondItsMemoryAreNeverDrawn) {
  const std::vector<float> logits(kLogitBlock, 9.0F);
  for (const std::uint32_t n : {3U, kLogitBlock, kLogitBlock + 1}) {
    for (SamplingOptions options : {plain(), greedy()}) {
      options.logit_bias = {{n, 100.0F}, {1, 5.0F}};
      options.repeat_penalty = 1.5F;
      options.presence_penalty = 1.5F;
      options.dry_multiplier = 1.5F;
      options.dry_allowed_length = 1;
      options.dry_breakers = {n};
      std::vector<float> memory(n + 1, 7.0F);
      std::vector<std::uint32_t> order(n + 1, 7);
      Sampler sampler(options, std::span(memory).first(n), std::span(order).first(n));
      for (int i = 0; i < 50; ++i) {
        for (const std::uint32_t block : {0U, 1U, 2U}) {
          sampler.consume(0, block * kLogitBlock, logits);
        }
        EXPECT_LT(sampler.draw(std::vector<TokenId>{0, n, 0, n, 2, 0}), n);
      }
      EXPECT_EQ(memory[n], 7.0F);
      EXPECT_EQ(order[n], 7U);
    }
  }
}

// Sum of (seen - expected)^2 / expected against the softmax of `logits`.
double chi_square(const std::map<TokenId, int>& counts, const std::vector<double>& probabilities,
                  int n_draws) {
  double sum = 0.0;
  for (std::size_t token = 0; token < probabilities.size(); ++token) {
    const auto found = counts.find(static_cast<TokenId>(token));
    const double seen = found == counts.end() ? 0.0 : found->second;
    const double expected = probabilities[token] * n_draws;
    sum += (seen - expected) * (seen - expected) / expected;
  }
  return sum;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> weights;
  for (const float logit : logits) weights.push_back(std::exp(logit / temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

TEST(SamplerTest, GreedyTakesTheLargestAndTiesGoToTheSmallerId) {
  EXPECT_EQ(draw_once(greedy(), {1.0F, 3.0F, 3.0F, 2.0F}), 1U);
  EXPECT_EQ(draw_once(greedy(), {-5.0F, -6.0F}), 0U);
}

TEST(SamplerTest, OddLogitsNeverWin) {
  EXPECT_EQ(draw_once(greedy(), {kNan, -kInf, -7.0F, kNan}), 2U);
  EXPECT_EQ(draw_once(greedy(), {1.0F, kInf, kInf}), 1U);
  EXPECT_EQ(drawn(plain(), {kNan, -kInf, -7.0F, kNan}), std::set<TokenId>{2});
  EXPECT_EQ(drawn(plain(), {1.0F, kInf, kInf}), (std::set<TokenId>{1, 2}));
}

TEST(SamplerTest, WithNothingToDrawTheTokenIsZero) {
  for (const float odd : {kNan, -kInf}) {
    EXPECT_EQ(draw_once(greedy(), {odd, odd, odd}), 0U);
    EXPECT_EQ(draw_once(plain(), {odd, odd, odd}), 0U);
    EXPECT_EQ(draw_once(SamplingOptions{}, {odd, odd, odd}), 0U);
  }
}

// 20,000 draws of 8 tokens: chi-square with 7 degrees of freedom exceeds 24.3 once in a thousand.
TEST(SamplerTest, FrequenciesFollowTheProbabilitiesAtEveryTemperature) {
  const std::vector<float> logits = {0.0F, 1.0F, -1.0F, 0.5F, 2.0F, 0.25F, -0.5F, 1.5F};
  constexpr int kDraws = 20000;
  for (const float temperature : {0.5F, 1.0F, 3.0F}) {
    SamplingOptions options = plain();
    options.temperature = temperature;
    options.seed = 11;
    const auto counts = SamplerBench(options, logits.size()).frequencies(logits, kDraws);
    EXPECT_LT(chi_square(counts, softmax(logits, temperature), kDraws), 24.3) << temperature;
    EXPECT_GT(chi_square(counts, softmax(logits, temperature * 1.15), kDraws), 24.3)
        << "the test would not notice a wrong temperature";
  }
}

TEST(SamplerTest, FiltersRenormaliseWhatTheyKeep) {
  const std::vector<float> logits = {0.0F, 1.0F, -1.0F, 0.5F};
  SamplingOptions options = plain();
  options.top_k = 2;
  options.top_p = 0.999F;
  constexpr int kDraws = 20000;
  const auto counts = SamplerBench(options, logits.size()).frequencies(logits, kDraws);
  ASSERT_EQ(counts.size(), 2U);
  const double share = 1.0 / (1.0 + std::exp(-0.5));
  EXPECT_NEAR(counts.at(1) / static_cast<double>(kDraws), share, 0.015);
}

TEST(SamplerTest, TopKKeepsTheKBestAndTiesGoToTheSmallerId) {
  SamplingOptions options = plain();
  const std::vector<float> logits = {1.0F, 0.0F, 1.0F, 1.0F, 0.5F};
  options.top_k = 1;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{0});
  options.top_k = 2;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 2}));
  options.top_k = 4;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 2, 3, 4}));
  options.top_k = 4000000000U;
  EXPECT_EQ(drawn(options, logits).size(), 5U);
}

TEST(SamplerTest, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.5, 0.25, 0.125, 0.125: every sum is exact.
  const float half = std::log(2.0F);
  const std::vector<float> logits = {0.0F, 2 * half, 0.0F, half};
  SamplingOptions options = plain();
  options.top_p = 1e-6F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{1});
  options.top_p = 0.6F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{1, 3}));
  options.top_p = 0.8F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 1, 3}));
  options.top_p = 0.9F;
  EXPECT_EQ(drawn(options, logits).size(), 4U);
  options.top_p = 1.0F;
  EXPECT_EQ(drawn(options, logits).size(), 4U);
}

// The sorted prefix has to grow several times here: 5,000 nearly equal tokens.
TEST(SamplerTest, TopPOverManyCandidates) {
  std::vector<float> logits(5000);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 1e-4F * static_cast<float>((i * 2711) % logits.size());
  }
  SamplingOptions options = plain();
  options.top_p = 0.5F;
  const std::vector<double> probabilities = softmax(logits, 1.0);
  double lowest = 1.0;
  for (const TokenId token : drawn(options, logits, 3000)) {
    lowest = std::min(lowest, probabilities[token]);
  }
  double above = 0.0;
  for (const double p : probabilities) above += p > lowest ? p : 0.0;
  EXPECT_LT(above, 0.5);
  EXPECT_GT(above, 0.49);
}

TEST(SamplerTest, MinPComparesWithTheBest) {
  const float half = std::log(2.0F);
  const std::vector<float> logits = {0.0F, 2 * half, -kInf,
                                     half};  // shares of best: 1/4, 1, 0, 1/2
  SamplingOptions options = plain();
  options.min_p = 0.45F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{1, 3}));
  options.min_p = 0.2F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 1, 3}));
  options.min_p = 1.0F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{1});
}

TEST(SamplerTest, MinPComesAfterTemperature) {
  const std::vector<float> logits = {0.0F, 1.0F};  // at temperature 1 the share is 0.37, at 4 0.78
  SamplingOptions options = plain();
  options.min_p = 0.5F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{1});
  options.temperature = 4.0F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 1}));
}

TEST(SamplerTest, TopPComesAfterTopK) {
  // Over all tokens 0.9 of the probability takes three; over the best two the first has 0.6 of it.
  const std::vector<float> logits = {std::log(0.48F), std::log(0.32F), std::log(0.2F)};
  SamplingOptions options = plain();
  options.top_p = 0.55F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 1}));
  options.top_k = 2;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{0});
}

TEST(SamplerTest, PenaltyDividesPositiveAndMultipliesNegativeLogitsOnce) {
  SamplingOptions options = greedy();
  options.repeat_penalty = 2.0F;
  EXPECT_EQ(draw_once(options, {3.0F, 2.0F}, {0, 0, 0}), 1U);
  EXPECT_EQ(draw_once(options, {5.0F, 2.0F}, {0, 0, 0}), 0U) << "penalised more than once";
  EXPECT_EQ(draw_once(options, {-2.0F, -3.0F}, {0}), 1U);
  EXPECT_EQ(draw_once(options, {-2.0F, -5.0F}, {0}), 0U);
  EXPECT_EQ(draw_once(options, {3.0F, 2.0F}, {0, 1}), 0U) << "both penalised alike";
}

TEST(SamplerTest, PenaltyLooksAtTheNewestTokensAlone) {
  SamplingOptions options = greedy();
  options.repeat_penalty = 2.0F;
  options.repeat_window = 2;
  EXPECT_EQ(draw_once(options, {3.0F, 2.0F, 0.0F}, {0, 2, 2}), 0U);
  EXPECT_EQ(draw_once(options, {3.0F, 2.0F, 0.0F}, {2, 0, 2}), 1U);
  EXPECT_EQ(draw_once(options, {3.0F, 2.0F, 0.0F}, {7, 0xFFFFFFFFU}), 0U) << "ids out of range";
  options.repeat_window = 0;
  EXPECT_EQ(draw_once(options, {3.0F, 2.0F, 0.0F}, {0}), 0U);
}

TEST(SamplerTest, BiasComesAfterPenaltyAndAddsUp) {
  SamplingOptions options = greedy();
  options.repeat_penalty = 2.0F;
  options.logit_bias = {{0, 1.0F}, {0, 0.6F}};
  // (1 / 2) + 1.6 = 2.1 wins over 2.05; bias first would give (1 + 1.6) / 2 = 1.3.
  EXPECT_EQ(draw_once(options, {1.0F, 2.05F}, {0}), 0U);
}

TEST(SamplerTest, BiasOfMinusInfinityBans) {
  for (SamplingOptions options : {greedy(), plain()}) {
    options.logit_bias = {{1, -kInf}};
    EXPECT_EQ(drawn(options, {-50.0F, 9.0F}), std::set<TokenId>{0});
    EXPECT_EQ(drawn(options, {-50.0F, kInf}), std::set<TokenId>{0});
  }
}

TEST(SamplerTest, OnlyRowZeroIsGathered) {
  const SamplingOptions options = greedy();
  std::vector<float> logits(3);
  std::vector<std::uint32_t> order(3);
  Sampler sampler(options, logits, order);
  sampler.consume(0, 0, std::vector<float>{1.0F, 2.0F});
  sampler.consume(0, 2, std::vector<float>{0.0F});
  sampler.consume(1, 0, std::vector<float>{9.0F, 0.0F, 0.0F});
  EXPECT_EQ(sampler.draw({}), 1U);
}

// The draws of a fixed seed are part of the product: a change here changes every user's text.
TEST(SamplerTest, GoldenDraws) {
  std::vector<float> logits(3000);
  Rng rng(5);
  for (float& logit : logits) logit = 2.0F * rng.next_normal();
  SamplingOptions options;
  options.seed = 42;
  SamplerBench bench(options, logits.size());
  std::vector<TokenId> tokens;
  for (int i = 0; i < 12; ++i) tokens.push_back(bench.draw(logits, tokens));
  EXPECT_EQ(tokens, (std::vector<TokenId>{2823, 1378, 853, 1768, 2107, 2976, 488, 1837, 2371, 136,
                                          2643, 2621}));

  options = plain();
  options.seed = 42;
  options.min_p = 0.02F;
  options.repeat_penalty = 1.3F;
  SamplerBench open_bench(options, logits.size());
  tokens.clear();
  for (int i = 0; i < 12; ++i) tokens.push_back(open_bench.draw(logits, tokens));
  EXPECT_EQ(tokens, (std::vector<TokenId>{2475, 904, 2976, 2107, 2430, 1719, 427, 1771, 606, 2849,
                                          1698, 2643}));

  options = plain();
  options.seed = 42;
  options.top_p = 0.9F;
  SamplerBench share_bench(options, logits.size());
  tokens.clear();
  for (int i = 0; i < 12; ++i) tokens.push_back(share_bench.draw(logits));
  EXPECT_EQ(tokens, (std::vector<TokenId>{2567, 929, 2987, 2180, 2457, 1768, 430, 1814, 620, 2894,
                                          1698, 2660}));
}

// Options of steps that are off count for nothing.
TEST(SamplerTest, StepsThatAreOffChangeNoDraw) {
  std::vector<float> logits(3000);
  Rng rng(5);
  for (float& logit : logits) logit = 2.0F * rng.next_normal();
  for (SamplingOptions options : {SamplingOptions{}, plain(), greedy()}) {
    options.seed = 42;
    options.repeat_penalty = 1.3F;
    SamplerBench plain_bench(options, logits.size());
    options.dry_base = 3.0F;
    options.dry_allowed_length = 1;
    options.dry_window = 5;
    options.dry_breakers = {1, 2};
    options.xtc_threshold = 0.0F;
    SamplerBench bench(options, logits.size());
    std::vector<TokenId> tokens;
    for (int i = 0; i < 50; ++i) {
      const TokenId token = plain_bench.draw(logits, tokens);
      EXPECT_EQ(bench.draw(logits, tokens), token);
      tokens.push_back(token);
    }
  }
}

TEST(SamplerTest, GoldenDrawsOfAllSteps) {
  std::vector<float> logits(3000);
  Rng rng(5);
  for (float& logit : logits) logit = 2.0F * rng.next_normal();
  SamplingOptions options;
  options.seed = 42;
  options.repeat_penalty = 1.1F;
  options.frequency_penalty = 0.3F;
  options.presence_penalty = 0.2F;
  options.dry_multiplier = 0.8F;
  options.dry_breakers = {13};
  options.typical_p = 0.8F;
  options.top_p = 0.95F;
  options.min_p = 0.01F;
  options.xtc_probability = 0.5F;
  options.xtc_threshold = 0.03F;
  const auto draws = [&](std::uint32_t top_k) {
    options.top_k = top_k;
    SamplerBench bench(options, logits.size());
    std::vector<TokenId> tokens = {1, 2, 3, 1, 2, 3, 1, 2};
    for (int i = 0; i < 12; ++i) tokens.push_back(bench.draw(logits, tokens));
    return std::vector<TokenId>(tokens.begin() + 8, tokens.end());
  };
  EXPECT_EQ(draws(40), (std::vector<TokenId>{695, 456, 2107, 2371, 302, 2961, 2371, 2987, 2821, 402,
                                             1217, 2204}));
  EXPECT_EQ(draws(0), (std::vector<TokenId>{2545, 1052, 452, 817, 2987, 1034, 1928, 1814, 2961,
                                            2893, 2933, 274}));
}

TEST(SamplerTest, DrawsAllocateNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::vector<float> logits(3000, 1.0F);
  const std::vector<TokenId> history(500, 3);
  SamplingOptions options = plain();
  options.frequency_penalty = 0.5F;
  options.dry_multiplier = 1.0F;
  options.dry_breakers = {1};
  options.typical_p = 0.9F;
  options.xtc_probability = 0.5F;
  for (options.top_k = 0; options.top_k < 80; options.top_k += 40) {
    SamplerBench bench(options, logits.size());
    const long before = n_allocations();
    for (int i = 0; i < 10; ++i) bench.draw(logits, history);
    EXPECT_EQ(n_allocations(), before);
  }
}

TEST(SamplerTest, SeedsDiffer) {
  const std::vector<float> logits(1000, 0.0F);
  SamplingOptions options = plain();
  const TokenId first = draw_once(options, logits);
  options.seed = 1;
  EXPECT_NE(draw_once(options, logits), first);
}

TEST(SamplerValidateTest, NamesTheOptionOutOfRange) {
  const auto message = [](auto&& change) {
    SamplingOptions options;
    change(options);
    const Status status = validate(options, 100);
    EXPECT_EQ(status.code(), status.ok() ? StatusCode::kOk : StatusCode::kInvalidArgument);
    return status.message().substr(0, status.message().find(':'));
  };
  EXPECT_EQ(message([](SamplingOptions&) {}), "");
  for (const float bad : {-0.1F, kNan, kInf}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.temperature = bad; }), "temperature");
  }
  for (const float bad : {0.0F, -1.0F, 1.5F, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.top_p = bad; }), "top_p");
  }
  for (const float bad : {-0.1F, 1.1F, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.min_p = bad; }), "min_p");
  }
  for (const float bad : {0.0F, -1.0F, kInf, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.repeat_penalty = bad; }), "repeat_penalty");
  }
  for (const float bad : {-kInf, kInf, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.frequency_penalty = bad; }), "frequency_penalty");
    EXPECT_EQ(message([&](SamplingOptions& o) { o.presence_penalty = bad; }), "presence_penalty");
  }
  for (const float bad : {0.0F, -1.0F, 1.5F, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.typical_p = bad; }), "typical_p");
  }
  for (const float bad : {-0.1F, kInf, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.dry_multiplier = bad; }), "dry_multiplier");
  }
  for (const float bad : {0.9F, kInf, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.dry_base = bad; }), "dry_base");
  }
  for (const std::uint32_t bad : {0U, kDryMaxMatch + 1}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.dry_allowed_length = bad; }),
              "dry_allowed_length");
  }
  EXPECT_EQ(message([](SamplingOptions& o) { o.dry_breakers = {5, 100}; }), "dry_breakers");
  for (const float bad : {-0.1F, 1.1F, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.xtc_probability = bad; }), "xtc_probability");
    EXPECT_EQ(message([&](SamplingOptions& o) { o.xtc_threshold = bad; }), "xtc_threshold");
  }
  EXPECT_EQ(validate({.typical_p = 1.5F}, 100).message(),
            "typical_p: 1.5, expected a number above 0 and at most 1");
  for (const float bad : {kInf, kNan}) {
    EXPECT_EQ(message([&](SamplingOptions& o) { o.logit_bias = {{3, bad}}; }), "logit_bias");
  }
  EXPECT_EQ(message([](SamplingOptions& o) { o.logit_bias = {{100, 0.0F}}; }), "logit_bias");
  EXPECT_EQ(message([](SamplingOptions& o) { o.logit_bias = {{99, -kInf}}; }), "");
}

}  // namespace
}  // namespace qsf
