// SPDX-License-Identifier: MIT
//
// Rings of engines in threads: the texts of one engine, at every number of ranks.

#include "ranks/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/testing/step_members.h"
#include "ranks/testing/ring_of_engines.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

std::vector<std::string> texts_of(Engine& engine, std::size_t n) {
  Members members = make_members(engine, n);
  run_to_end(engine, generations_of(members));
  std::vector<std::string> texts;
  for (const auto& member : members) texts.push_back(member->text);
  return texts;
}

EngineOptions ring_options(std::uint32_t n_sequences) {
  EngineOptions options = step_options(n_sequences, 24);
  options.n_threads = 1;
  return options;
}

TEST(RingTest, GeneratesTheTextsOfOneEngine) {
  for (const std::size_t n_texts : {1U, 16U}) {
    const EngineOptions options = ring_options(static_cast<std::uint32_t>(n_texts));
    const std::vector<std::string> expected = texts_of(*open_bundled(options), n_texts);
    for (const auto& [n_ranks, window] :
         std::vector<std::pair<unsigned, std::uint32_t>>{{2, 1}, {2, 3}, {3, 1}, {4, 1}, {2, 4}}) {
      RingOfEngines ring(kBundled, interleave(6, n_ranks, window), n_ranks, options);
      EXPECT_EQ(texts_of(ring.first(), n_texts), expected) << n_ranks << " ranks, " << window;
    }
  }
}

TEST(RingTest, GeneratesThemUnderEveryPolicyOfTheCache) {
  for (const KvPolicy policy : {KvPolicy::kWindow, KvPolicy::kH2o}) {
    EngineOptions options = ring_options(2);
    options.kv_policy.policy = policy;
    options.kv_policy.sinks = 4;
    options.kv_policy.window = 16;
    if (policy == KvPolicy::kH2o) options.kv_policy.heavy = 16;
    options.k_type = options.v_type = KvType::k4Bit;
    const std::vector<std::string> expected = texts_of(*open_bundled(options), 2);
    RingOfEngines ring(kBundled, interleave(6, 2, 1), 2, options);
    EXPECT_EQ(texts_of(ring.first(), 2), expected) << kv_policy_name(policy);
  }
}

// Messages of different ranks arrive in any order: rows before the pass that they are of.
TEST(RingTest, TakesRowsThatComeBeforeTheirPass) {
  const EngineOptions options = ring_options(1);
  const std::vector<std::string> expected = texts_of(*open_bundled(options), 1);
  RingOfEngines ring(kBundled, interleave(6, 3, 1), 3, options);
  ring.link(2).delay_first_rank(std::chrono::milliseconds(20));
  EXPECT_EQ(texts_of(ring.first(), 1), expected);
}

TEST(RingTest, ScoresAsOneEngineDoes) {
  const EngineOptions options = ring_options(1);
  const std::unique_ptr<Engine> one = open_bundled(options);
  const std::vector<TokenId> tokens = encode(*one, "Once upon a time there was a miller who had");
  std::vector<double> expected(tokens.size() - 1);
  ASSERT_TRUE(one->score(tokens, 1, expected).ok());
  RingOfEngines ring(kBundled, interleave(6, 3, 1), 3, options);
  std::vector<double> scored(tokens.size() - 1);
  ASSERT_TRUE(ring.first().score(tokens, 1, scored).ok());
  EXPECT_EQ(scored, expected);
}

// Rank 0 stops in the middle of a pass; the others are not left behind.
TEST(RingTest, GoesOnAfterACancelledPass) {
  const EngineOptions options = ring_options(1);
  const std::vector<std::string> expected = texts_of(*open_bundled(options), 1);
  RingOfEngines ring(kBundled, interleave(6, 2, 1), 2, options);
  Member member(ring.first(), 0);
  Generation* const generation = member.generation.get();
  for (int step = 0; !generation->finished(); ++step) {
    if (step == 3) {
      ring.first().cancel();
      const auto counts = ring.first().step({&generation, 1});
      EXPECT_EQ(counts.error().code(), StatusCode::kCancelled);
    }
    ASSERT_TRUE(ring.first().step({&generation, 1}).has_value());
  }
  EXPECT_EQ(member.text, expected[0]);
}

TEST(RingTest, HoldsOnlyTheWeightsOfItsLayers) {
  const EngineOptions options = ring_options(1);
  const std::uint64_t all = open_bundled(options)->plan().residency.weight_bytes;
  RingOfEngines ring(kBundled, interleave(6, 2, 1), 2, options);
  const std::uint64_t ends = ring.first().plan().residency.weight_bytes;
  const std::uint64_t layers = ring.engine(1).plan().residency.weight_bytes;
  EXPECT_EQ(ends + layers, all);
  EXPECT_LT(layers, ends);
  EXPECT_EQ(ring.engine(1).tokenizer(), nullptr);
}

TEST(RingTest, RefusesWhatItCannotDo) {
  RingOfEngines ring(kBundled, interleave(6, 2, 1), 2, ring_options(1));
  std::unique_ptr<Session> session = ring.first().create_session().value();
  EXPECT_EQ(session->save("/nowhere").code(), StatusCode::kUnsupported);
  session.reset();
  std::vector<float> hidden(ring.first().spec().hidden);
  const TokenId token = 5;
  EXPECT_EQ(ring.first().run_layers({&token, 1}, 0, 1, hidden).code(), StatusCode::kUnsupported);
  EXPECT_EQ(ring.first().embed({&token, 1}, std::nullopt, false, hidden).code(),
            StatusCode::kUnsupported);
}

TEST(RingTest, RefusesCutsThatAreNone) {
  auto links = LocalLink::create(1);
  Ring ring(*links[0], interleave(6, 1, 6));
  LayerCut cut = ring.cut();
  EngineOptions options = ring_options(1);
  options.cut = &cut;
  const auto refused = [&options] { return Engine::open(kBundled, options).error(); };
  cut.layers = {0, 2, 1};
  cut.window_ends = {3};
  EXPECT_THAT(refused().message(), HasSubstr("layers of a cut"));
  cut.layers = {0, 6};
  EXPECT_THAT(refused().message(), HasSubstr("below 6"));
  cut.layers = {0, 1};
  EXPECT_THAT(refused().message(), HasSubstr("windows of a cut: expected ends from 1 to 2"));
  cut.layers = {1, 2, 3};
  cut.window_ends = {3};
  EXPECT_THAT(refused().message(), HasSubstr("begins with layer 1"));
  cut.layers = {0};
  cut.window_ends = {1};
  cut.relay = nullptr;
  EXPECT_THAT(refused().message(), HasSubstr("expected a relay"));
}

}  // namespace
}  // namespace qsf
