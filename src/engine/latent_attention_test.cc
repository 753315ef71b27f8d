// SPDX-License-Identifier: MIT
//
// A model with latent attention, whose cache has one row a token: its logits follow from the
// definition, which makes keys and values of all heads, with rows of every type, in calls and roles
// of all kinds, under KV windows, from a file and back, streamed and spilled.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine_plan.h"
#include "engine/testing/naive_model_test.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kRows = 150;  // more than two pages
constexpr std::uint32_t kContext = 256;

class LatentAttentionTest : public NaiveModelTest {
 protected:
  void SetUp() override { make_model(latent_spec(), kRows); }
  static ModelSpec latent_spec() {
    ModelSpec spec = naive_llama(2, kContext);
    spec.architecture = "deepseek2";
    spec.n_kv_heads = 1;
    spec.latent_dim = 32;
    spec.latent_query_dim = 28;
    spec.latent_key_dim = 20;
    spec.latent_value_dim = 16;
    spec.rope.dims = 16;
    spec.head_dim = 48;
    spec.attention_scale = 0.17F;
    spec.n_experts = 2;
    spec.n_experts_used = 2;  // a rounded score would choose others
    spec.expert_ffn = 24;
    spec.shared_ffn = 16;
    spec.expert_layers = {0, 1};
    return spec;
  }
  std::vector<std::vector<double>> wanted(const NaiveModel::Sees& sees = nullptr) const {
    return model_->logits({tokens_.begin(), tokens_.end()}, kContext, {}, sees);
  }
  static EngineOptions options_of(KvType type) {
    EngineOptions options = exact_options(kContext);
    options.k_type = options.v_type = type;
    return options;
  }
};

TEST_F(LatentAttentionTest, EveryKvTypeFollowsTheDefinition) {
  const auto want = wanted();
  for (const auto& [type, limit] : {std::pair{KvType::kF32, 1e-5}, std::pair{KvType::kF16, 0.01},
                                    std::pair{KvType::k8Bit, 0.15}, std::pair{KvType::k4Bit, 0.9},
                                    std::pair{KvType::k2Bit, 1.5}}) {
    const double error = largest_difference(run(options_of(type), {kRows}, kRows), want);
    EXPECT_LT(error, limit) << static_cast<int>(type);
    RecordProperty(std::string(kv_type_name(type)), std::to_string(error));
  }
}

TEST_F(LatentAttentionTest, ACacheRowIsOneKey) {
  for (const KvType type : kAllKvTypes) {
    EngineOptions options = options_of(type);
    options.v_type = KvType::kF32;  // of no effect
    const KvShape shape = kv_shape(model_->spec(), options);
    EXPECT_EQ(shape.page_bytes(), 2 * kv_block_bytes(type, 48));
    const auto engine = open(options);
    const EnginePlan& plan = engine->plan();
    EXPECT_EQ(plan.memory.region(plan.regions.kv_cache).bytes,
              kv_pages_for(kContext) * shape.page_bytes());
  }
}

TEST_F(LatentAttentionTest, StreamedWeightsGiveTheSameBits) {
  ModelSpec spec = latent_spec();
  spec.hidden = 128;
  spec.n_heads = 16;
  spec.latent_key_dim = spec.latent_value_dim = 96;
  spec.n_experts = 20;
  spec.expert_ffn = 224;
  make_model(spec, kRows);
  EngineOptions options = exact_options(kContext);
  options.rows_per_pass = 32;
  const Logits want = run(options, {kRows}, kRows);
  options.ram_budget_bytes = kMB;
  options.ram_budget_bytes = named_budget_mb(path_, options) * kMB;
  const auto engine = open(options);
  EXPECT_FALSE(engine->plan().residency.everything_resident);
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 70, got);
  prefill(*session, 70, kRows, got);
  EXPECT_EQ(got, want);
}

TEST_F(LatentAttentionTest, CallsPassesAndCancellingDoNotShow) {
  for (const KvType type : {KvType::kF32, KvType::k4Bit}) {
    EngineOptions options = options_of(type);
    const Logits want = run(options, {kRows}, kRows);
    EXPECT_EQ(run(options, {1, 64, 7}, kRows), want);
    options.rows_per_pass = 16;
    EXPECT_EQ(run(options, {kRows}, kRows), want);
    expect_no_trace_of_cancelling(options, {0, 40}, {1, 4}, want);
    expect_truncation_leaves_no_trace(options, {0, 64, 100}, want);
  }
}

TEST_F(LatentAttentionTest, GeneratedRowsFollowTheDefinition) {
  const auto want = wanted();
  const auto engine = open(exact_options(kContext));
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 100, got);
  for (std::size_t token = 100; token < kRows; ++token) step(*session, token, got);
  EXPECT_LT(largest_difference(got, want), 1e-5);
}

TEST_F(LatentAttentionTest, WindowsOfTheCacheFollowTheDefinition) {
  EngineOptions options = exact_options(kContext);
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = 50, .sinks = 3};
  const auto want = wanted([](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
    return j < 3 || i - j < 50;
  });
  EXPECT_LT(largest_difference(run(options, {kRows}, kRows), want), 1e-5);
  options.kv_policy.rope_reindex = true;
  const NaiveModel::Cache cache = {.sinks = 3, .window = 50};
  const auto reindexed =
      model_->logits({tokens_.begin(), tokens_.end()}, kContext, {}, nullptr, nullptr, &cache);
  EXPECT_LT(largest_difference(run(options, {kRows}, kRows), reindexed), 1e-5);
}

TEST_F(LatentAttentionTest, SavedForkedAndSpilledTextsGoOnWithTheSameBits) {
  const std::string saved = path_ + ".session";
  const std::string spill = path_ + ".kv";
  for (const KvType type : kAllKvTypes) {
    EngineOptions options = options_of(type);
    options.n_sequences = 2;
    const Logits want = run(options, {kRows}, kRows);
    {
      const auto engine = open(options);
      const auto session = engine->create_session().value();
      Logits got;
      prefill(*session, 0, 100, got);
      ASSERT_TRUE(session->save(saved).ok());
      const auto fork = session->fork().value();
      prefill(*fork, 100, kRows, got);
      EXPECT_EQ(got, want) << "forked, " << kv_type_name(type);
    }
    options.kv_spill_path = spill;
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    const Status status = session->load(saved);
    ASSERT_TRUE(status.ok()) << status.message();
    Logits rest;
    prefill(*session, 100, kRows, rest);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), want.begin() + 100, want.end()))
        << "saved, " << kv_type_name(type);
  }
  std::filesystem::remove(saved);
  std::filesystem::remove(spill);
}

TEST_F(LatentAttentionTest, WhatReadsValuesRefusesTheModel) {
  const auto message = [this](const EngineOptions& options) {
    const auto engine = Engine::open(path_, options);
    EXPECT_FALSE(engine.has_value());
    return engine.has_value() ? std::string() : engine.error().message();
  };
  EngineOptions sparse = exact_options(kContext);
  sparse.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(message(sparse), HasSubstr("attention h2o: this model has latent attention"));
  EngineOptions evicting = exact_options(kContext);
  evicting.kv_policy.policy = KvPolicy::kH2o;
  EXPECT_THAT(message(evicting), HasSubstr("kv policy h2o: this model has latent attention"));
}

}  // namespace
}  // namespace qsf
