// SPDX-License-Identifier: MIT
//
// A model with latent attention, whose cache has one row a token: its logits follow from the
// definition, which makes keys and values of all heads, with rows of every type, in calls and roles
// of all kinds, under KV windows, from a file and back, streamed and spilled.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine_plan.h"
#include "engine/testing/attention_contract.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kLatentRows = 150;  // more than two pages
constexpr std::uint32_t kLatentContext = 256;

class LatentAttentionTest : public AttentionContractTest {
 protected:
  void SetUp() override { make_model(latent_spec(), kLatentRows); }
  static ModelSpec latent_spec() {
    ModelSpec spec = naive_llama(2, kLatentContext);
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
};

TEST_F(LatentAttentionTest, EveryKvTypeFollowsTheDefinition) {
  expect_kv_types(kLatentContext, 1.5);
}

TEST_F(LatentAttentionTest, ACacheRowIsOneKey) {
  for (const KvType type : kAllKvTypes) {
    EngineOptions options = options_of(kLatentContext, type);
    options.v_type = KvType::kF32;  // of no effect
    const KvShape shape = kv_shape(model_->spec(), options);
    EXPECT_EQ(shape.page_bytes(), 2 * kv_block_bytes(type, 48));
    const auto engine = open(options);
    const EnginePlan& plan = engine->plan();
    EXPECT_EQ(plan.memory.region(plan.regions.kv_cache).bytes,
              kv_pages_for(kLatentContext) * shape.page_bytes());
  }
}

TEST_F(LatentAttentionTest, StreamedWeightsGiveTheSameBits) {
  ModelSpec spec = latent_spec();
  spec.hidden = 128;
  spec.n_heads = 16;
  spec.latent_key_dim = spec.latent_value_dim = 96;
  spec.n_experts = 20;
  spec.expert_ffn = 224;
  make_model(spec, kLatentRows);
  EngineOptions options = exact_options(kLatentContext);
  options.rows_per_pass = 32;
  const Logits want = run(options, {kLatentRows}, kLatentRows);
  options.ram_budget_bytes = kMB;
  options.ram_budget_bytes = named_budget_mb(path_, options) * kMB;
  const auto engine = open(options);
  EXPECT_FALSE(engine->plan().residency.everything_resident);
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 70, got);
  prefill(*session, 70, kLatentRows, got);
  EXPECT_EQ(got, want);
}

TEST_F(LatentAttentionTest, CallsPassesAndCancellingDoNotShow) {
  for (const KvType type : {KvType::kF32, KvType::k4Bit}) {
    SCOPED_TRACE(kv_type_name(type));
    expect_calls_do_not_show(options_of(kLatentContext, type));
  }
}

TEST_F(LatentAttentionTest, GeneratedRowsFollowTheDefinition) {
  expect_generated_rows(exact_options(kLatentContext));
}

TEST_F(LatentAttentionTest, WindowsOfTheCacheFollowTheDefinition) {
  expect_window(exact_options(kLatentContext));
  expect_reindexed_window(exact_options(kLatentContext));
}

TEST_F(LatentAttentionTest, SavedForkedAndSpilledTextsGoOnWithTheSameBits) {
  for (const KvType type : kAllKvTypes) {
    SCOPED_TRACE(kv_type_name(type));
    expect_texts_go_on(options_of(kLatentContext, type));
  }
}

TEST_F(LatentAttentionTest, WhatReadsValuesRefusesTheModel) {
  EngineOptions sparse = exact_options(kLatentContext);
  sparse.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(refusal(sparse), HasSubstr("attention h2o: this model has latent attention"));
  EngineOptions evicting = exact_options(kLatentContext);
  evicting.kv_policy.policy = KvPolicy::kH2o;
  EXPECT_THAT(refusal(evicting), HasSubstr("kv policy h2o: this model has latent attention"));
}

}  // namespace
}  // namespace qsf
