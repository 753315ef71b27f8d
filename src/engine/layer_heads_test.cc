// SPDX-License-Identifier: MIT
//
// A model whose layers have key and value heads of their own width and number: its logits follow
// from the definition, with rows of every type, in calls and roles of all kinds, under KV windows,
// from a file and back, and spilled, and its cache has the bytes of each layer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/engine_plan.h"
#include "engine/testing/attention_contract.h"
#include "model/architecture.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kHeadRows = 150;  // more than two pages
constexpr std::uint32_t kHeadContext = 256;

// Gemma 4: windows and narrow heads, and wide ones whose keys are values.
ModelSpec layered_spec() {
  ModelSpec spec = naive_llama(4, kHeadContext);
  spec.architecture = "gemma4";
  spec.activation = Activation::kGeluTanh;
  spec.attention_scale = 0.4F;
  spec.embedding_scale = 1.5F;
  spec.logit_soft_cap = 12.0F;
  spec.value_norms = true;
  spec.layer_heads = {{3, 6}, {1, 16}, {3, 6}, {2, 10}};
  spec.n_kv_heads = 3;
  spec.head_dim = 16;
  spec.key_value_layers = {0, 1, 0, 0};
  spec.sliding_window = {40, 0, 40, 0};
  spec.layer_rope = {2, 1, 2, 0};
  spec.local_rope_theta = 500.0F;
  spec.rope.theta = 100.0F;
  spec.rope.n_turning = 3;
  return spec;
}

class LayerHeadsTest : public AttentionContractTest {
 protected:
  void SetUp() override { make_model(layered_spec(), kHeadRows); }
};

TEST_F(LayerHeadsTest, EveryKvTypeFollowsTheDefinition) {
  expect_kv_types(kHeadContext, 1.6);
}

TEST_F(LayerHeadsTest, APageHasTheBytesOfEachLayer) {
  for (const KvType type : kAllKvTypes) {
    const KvShape shape = kv_shape(model_->spec(), options_of(kHeadContext, type));
    std::uint64_t n_bytes = 0;
    for (const auto& [n_heads, width] : {std::pair{3U, 6U}, {1U, 16U}, {3U, 6U}, {2U, 10U}}) {
      n_bytes += 2 * n_heads * kv_block_bytes(type, width);
    }
    EXPECT_EQ(shape.page_bytes(), n_bytes) << kv_type_name(type);
    const auto engine = open(options_of(kHeadContext, type));
    const Region* const region = engine->impl().plan.memory.find("kv_cache");
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(region->bytes, n_bytes * engine->impl().plan.n_kv_pages) << kv_type_name(type);
  }
}

TEST_F(LayerHeadsTest, CallsPassesAndCancellingDoNotShow) {
  for (const KvType type : {KvType::kF32, KvType::k4Bit}) {
    SCOPED_TRACE(kv_type_name(type));
    expect_calls_do_not_show(options_of(kHeadContext, type));
  }
}

TEST_F(LayerHeadsTest, GeneratedRowsFollowTheDefinition) {
  expect_generated_rows(exact_options(kHeadContext));
}

TEST_F(LayerHeadsTest, WindowsOfTheCacheFollowTheDefinition) {
  expect_window(exact_options(kHeadContext));
  expect_reindexed_window(exact_options(kHeadContext));
}

TEST_F(LayerHeadsTest, SavedForkedAndSpilledTextsGoOnWithTheSameBits) {
  for (const KvType type : kAllKvTypes) {
    SCOPED_TRACE(kv_type_name(type));
    expect_texts_go_on(options_of(kHeadContext, type));
  }
}

TEST_F(LayerHeadsTest, WhatKnowsOneWidthRefusesTheModel) {
  EngineOptions sparse = exact_options(kHeadContext);
  sparse.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(refusal(sparse), HasSubstr("attention h2o: this model's layers have heads of"));
  EngineOptions evicting = exact_options(kHeadContext);
  evicting.kv_policy.policy = KvPolicy::kH2o;
  EXPECT_THAT(refusal(evicting), HasSubstr("kv policy h2o: this model's layers have heads of"));
}

TEST(LayerHeadsSpecTest, NormsOfAllHeadsAreRefused) {
  const auto of_olmo2 = [](void (*change)(ModelSpec&)) {
    ModelSpec spec = naive_llama(4, kHeadContext);
    spec.architecture = "olmo2";
    change(spec);
    return check_supported(spec);
  };
  EXPECT_TRUE(of_olmo2([](ModelSpec&) {}).ok());
  for (const Status& status :
       {of_olmo2([](ModelSpec& s) { s.value_norms = true; }), of_olmo2([](ModelSpec& s) {
          s.key_value_layers = {0, 1, 0, 0};
        }),
        of_olmo2([](ModelSpec& s) {
          s.layer_heads.assign(4, {s.n_kv_heads, s.head_dim});
        })}) {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("or norms of all heads"));
  }
}

// A layer without values of its own would attend to those of another.
TEST_F(LayerHeadsTest, ValuesThatAreKeysNeedTheirNorm) {
  ModelSpec spec = layered_spec();
  spec.value_norms = false;
  make_model(spec, 4);
  const auto engine = Engine::open(path_, exact_options(kHeadContext));
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(engine.error().message(), HasSubstr("values that are keys without a norm"));
}

}  // namespace
}  // namespace qsf
