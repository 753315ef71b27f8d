// SPDX-License-Identifier: MIT
//
// Tests of the sampler's callbacks: what they see, what they change and how they fail.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/sampler.h"
#include "engine/testing/sampler_bench.h"

namespace qsf {
namespace {

using testing_support::greedy;
using testing_support::kInf;
using testing_support::plain;

struct Callbacks {
  std::vector<float> seen;
  std::vector<TokenId> banned;
  std::size_t n_words = 0;
  bool all_set = false;
  float set_to = 0.0F;  // logit 0 becomes this; 0 leaves it
  int n_logits_calls = 0;
  int n_mask_calls = 0;
  int code = 0;

  void attach(SamplingOptions& options) {
    options.callback_user = this;
    options.on_logits = [](std::span<float> logits, void* user) {
      auto& self = *static_cast<Callbacks*>(user);
      ++self.n_logits_calls;
      self.seen.assign(logits.begin(), logits.end());
      if (self.set_to != 0.0F) logits[0] = self.set_to;
      return self.code;
    };
    options.on_mask = [](std::span<std::uint32_t> allowed, void* user) {
      auto& self = *static_cast<Callbacks*>(user);
      ++self.n_mask_calls;
      self.n_words = allowed.size();
      self.all_set = std::all_of(allowed.begin(), allowed.end(),
                                 [](std::uint32_t word) { return word == 0xFFFFFFFFU; });
      for (const TokenId token : self.banned) allowed[token / 32] &= ~(1U << (token % 32));
      return 0;
    };
  }
};

struct Drawn {
  Status status;
  TokenId token = kNoToken;
};

Drawn draw(const SamplingOptions& options, std::vector<float> logits) {
  std::vector<float> memory(logits.size());
  std::vector<std::uint32_t> order(logits.size(), 7);
  Sampler sampler(options, memory, order);
  sampler.consume(0, 0, logits);
  Drawn drawn{sampler.prepare()};
  if (drawn.status.ok()) drawn.token = sampler.draw({});
  return drawn;
}

TEST(SamplerCallbackTest, EachIsCalledOnceADrawAndSeesTheWholeRow) {
  Callbacks callbacks;
  SamplingOptions options = greedy();
  options.logit_bias = {{1, 100.0F}};
  callbacks.attach(options);
  std::vector<float> logits(65);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  EXPECT_EQ(draw(options, logits).token, 1U) << "the bias comes after the callbacks";
  EXPECT_EQ(callbacks.seen, logits);
  EXPECT_EQ(callbacks.n_words, 3U);
  EXPECT_TRUE(callbacks.all_set);
  EXPECT_EQ(callbacks.n_logits_calls, 1);
  EXPECT_EQ(callbacks.n_mask_calls, 1);
}

TEST(SamplerCallbackTest, AMaskedTokenIsNeverDrawn) {
  Callbacks callbacks{.banned = {1, 31, 32, 39}};
  for (SamplingOptions options : {greedy(), plain()}) {
    options.logit_bias = {{39, 1e9F}};
    options.frequency_penalty = -5.0F;
    callbacks.attach(options);
    std::vector<float> logits(40, -1e9F);
    for (const TokenId token : {1U, 31U, 32U, 39U}) logits[token] = 10.0F;
    logits[33] = 1.0F;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      options.seed = seed;
      EXPECT_EQ(draw(options, logits).token, 33U);
    }
  }
}

TEST(SamplerCallbackTest, TheMaskComesAfterTheLogitsCallback) {
  Callbacks callbacks{.banned = {0}, .set_to = 100.0F};
  SamplingOptions options = greedy();
  callbacks.attach(options);
  EXPECT_EQ(draw(options, {0.0F, 2.0F, 1.0F}).token, 1U);
  callbacks.banned.clear();
  EXPECT_EQ(draw(options, {0.0F, 2.0F, 1.0F}).token, 0U);
}

TEST(SamplerCallbackTest, AnExcludedTokenIsNeverDrawn) {
  Callbacks callbacks{.set_to = 100.0F};
  SamplingOptions options = greedy();
  options.logit_bias = {{0, 1e9F}};
  options.excluded = {0, 1000};
  EXPECT_EQ(draw(options, {5.0F, 2.0F, 1.0F}).token, 1U);
  callbacks.attach(options);
  EXPECT_EQ(draw(options, {5.0F, 2.0F, 1.0F}).token, 1U);
  callbacks.banned = {1, 2};
  const Drawn drawn = draw(options, {5.0F, 2.0F, 1.0F});
  EXPECT_EQ(drawn.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(drawn.status.message().find("may not be drawn"), std::string::npos);
}

TEST(SamplerCallbackTest, FailuresAreErrors) {
  Callbacks callbacks{.code = -3};
  SamplingOptions options = plain();
  callbacks.attach(options);
  Drawn drawn = draw(options, {1.0F, 2.0F});
  EXPECT_EQ(drawn.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(drawn.status.message().find("logits callback: returned -3"), std::string::npos);
  EXPECT_EQ(callbacks.n_mask_calls, 0);

  callbacks.code = 0;
  callbacks.banned = {0, 1};
  drawn = draw(options, {1.0F, 2.0F});
  EXPECT_EQ(drawn.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(drawn.status.message().find("allows no token"), std::string::npos);

  callbacks.banned.clear();
  callbacks.set_to = -kInf;
  drawn = draw(options, {1.0F, -kInf});
  EXPECT_EQ(drawn.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(drawn.status.message().find("no finite logit"), std::string::npos);

  options.on_logits = nullptr;
  options.on_mask = [](std::span<std::uint32_t>, void*) { return 9; };
  drawn = draw(options, {1.0F, 2.0F});
  EXPECT_NE(drawn.status.message().find("mask callback: returned 9"), std::string::npos);
}

}  // namespace
}  // namespace qsf
