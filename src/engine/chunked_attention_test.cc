// SPDX-License-Identifier: MIT
//
// A model like Llama 4, some of whose layers attend by chunks: its logits follow from the
// definition in calls, roles and passes of all kinds, under KV windows, and from a file and back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/testing/naive_model_test.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kChunkedRows = 150;  // more than two pages
constexpr std::uint32_t kChunkedContext = 256;
constexpr std::uint32_t kAttentionChunk = 70;

class ChunkedAttentionTest : public NaiveModelTest {
 protected:
  void SetUp() override {
    ModelSpec spec = naive_llama(3, kChunkedContext);
    spec.architecture = "llama4";
    spec.layer_rope = {1, 0, 1};
    spec.sliding_window = {kAttentionChunk, 0, kAttentionChunk};
    spec.chunked_windows = true;
    spec.unit_head_norms = true;
    spec.query_position_scale = 0.7F;
    spec.query_position_step = 40;
    spec.n_experts = 2;
    spec.n_experts_used = 2;  // a rounded score would choose others
    spec.expert_ffn = spec.shared_ffn = 24;
    spec.expert_scoring = ExpertScoring::kSigmoid;
    spec.weighs_expert_inputs = true;
    make_model(spec, kChunkedRows);
  }
  std::vector<std::vector<double>> wanted(const NaiveModel::Sees& sees = nullptr) const {
    return model_->logits({tokens_.begin(), tokens_.end()}, kChunkedContext, {}, sees);
  }
};

TEST_F(ChunkedAttentionTest, PromptsAndGeneratedRowsFollowTheDefinition) {
  const auto want = wanted();
  const EngineOptions options = exact_options(kChunkedContext);
  EXPECT_LT(largest_difference(run(options, {kChunkedRows}, kChunkedRows), want), 1e-5);
  const auto engine = open(options);
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 60, got);
  for (std::size_t token = 60; token < kChunkedRows; ++token) step(*session, token, got);
  EXPECT_LT(largest_difference(got, want), 1e-5);
}

TEST_F(ChunkedAttentionTest, CallsPassesAndCancellingDoNotShow) {
  EngineOptions options = exact_options(kChunkedContext);
  options.k_type = options.v_type = KvType::k4Bit;
  const Logits want = run(options, {kChunkedRows}, kChunkedRows);
  EXPECT_EQ(run(options, {1, 64, 7}, kChunkedRows), want);
  options.rows_per_pass = 16;
  EXPECT_EQ(run(options, {kChunkedRows}, kChunkedRows), want);
  expect_no_trace_of_cancelling(options, {0, 40}, {1, 4}, want);
  expect_truncation_leaves_no_trace(options, {0, 64, 100}, want);
}

// Of what the cache keeps, a row sees its chunk.
TEST_F(ChunkedAttentionTest, WindowsOfTheCacheFollowTheDefinition) {
  EngineOptions options = exact_options(kChunkedContext);
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = 50, .sinks = 75};
  const auto want = wanted([](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
    return j < 75 || i - j < 50;
  });
  EXPECT_LT(largest_difference(run(options, {kChunkedRows}, kChunkedRows), want), 1e-5);
}

TEST_F(ChunkedAttentionTest, SavedAndForkedTextsGoOnWithTheSameBits) {
  const std::string saved = path_ + ".session";
  EngineOptions options = exact_options(kChunkedContext);
  options.n_sequences = 3;
  const Logits want = run(options, {kChunkedRows}, kChunkedRows);
  const auto engine = open(options);
  const auto session = engine->create_session().value();
  Logits first;
  prefill(*session, 0, 100, first);
  ASSERT_TRUE(session->save(saved).ok());
  const auto loaded = engine->create_session().value();
  ASSERT_TRUE(loaded->load(saved).ok());
  const auto fork = session->fork().value();
  for (Session* const next : {loaded.get(), fork.get()}) {
    Logits got = first;
    prefill(*next, 100, kChunkedRows, got);
    EXPECT_EQ(got, want);
  }
  std::filesystem::remove(saved);
}

TEST_F(ChunkedAttentionTest, WhatCountsPlacesRefusesTheModel) {
  EngineOptions options = exact_options(kChunkedContext);
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = 50, .sinks = 3, .rope_reindex = true};
  const auto engine = Engine::open(path_, options);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message(),
              HasSubstr("rope_reindex: this model attends by chunks of positions"));
}

}  // namespace
}  // namespace qsf
