// SPDX-License-Identifier: MIT
//
// A model whose layers have key and value heads of their own width and number: its logits follow
// from the definition, with rows of every type, in calls and roles of all kinds, under KV windows,
// from a file and back, and spilled, and its cache has the bytes of each layer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/engine_plan.h"
#include "engine/testing/naive_model_test.h"
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

class LayerHeadsTest : public NaiveModelTest {
 protected:
  void SetUp() override { make_model(layered_spec(), kHeadRows); }
  std::vector<std::vector<double>> wanted(const NaiveModel::Sees& sees = nullptr) const {
    return model_->logits({tokens_.begin(), tokens_.end()}, kHeadContext, {}, sees);
  }
  static EngineOptions options_of(KvType type) {
    EngineOptions options = exact_options(kHeadContext);
    options.k_type = options.v_type = type;
    return options;
  }
};

TEST_F(LayerHeadsTest, EveryKvTypeFollowsTheDefinition) {
  const auto want = wanted();
  for (const auto& [type, limit] : {std::pair{KvType::kF32, 1e-5}, std::pair{KvType::kF16, 0.01},
                                    std::pair{KvType::k8Bit, 0.15}, std::pair{KvType::k4Bit, 0.9},
                                    std::pair{KvType::k2Bit, 1.6}}) {
    const double error = largest_difference(run(options_of(type), {kHeadRows}, kHeadRows), want);
    EXPECT_LT(error, limit) << kv_type_name(type);
    RecordProperty(std::string(kv_type_name(type)), std::to_string(error));
  }
}

TEST_F(LayerHeadsTest, APageHasTheBytesOfEachLayer) {
  for (const KvType type : kAllKvTypes) {
    const KvShape shape = kv_shape(model_->spec(), options_of(type));
    std::uint64_t n_bytes = 0;
    for (const auto& [n_heads, width] : {std::pair{3U, 6U}, {1U, 16U}, {3U, 6U}, {2U, 10U}}) {
      n_bytes += 2 * n_heads * kv_block_bytes(type, width);
    }
    EXPECT_EQ(shape.page_bytes(), n_bytes) << kv_type_name(type);
    const auto engine = open(options_of(type));
    const Region* const region = engine->impl().plan.memory.find("kv_cache");
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(region->bytes, n_bytes * engine->impl().plan.n_kv_pages) << kv_type_name(type);
  }
}

TEST_F(LayerHeadsTest, CallsPassesAndCancellingDoNotShow) {
  for (const KvType type : {KvType::kF32, KvType::k4Bit}) {
    EngineOptions options = options_of(type);
    const Logits want = run(options, {kHeadRows}, kHeadRows);
    EXPECT_EQ(run(options, {1, 64, 7}, kHeadRows), want);
    options.rows_per_pass = 16;
    EXPECT_EQ(run(options, {kHeadRows}, kHeadRows), want);
    expect_no_trace_of_cancelling(options, {0, 40}, {1, 4}, want);
    expect_truncation_leaves_no_trace(options, {0, 64, 100}, want);
  }
}

TEST_F(LayerHeadsTest, GeneratedRowsFollowTheDefinition) {
  const auto want = wanted();
  const auto engine = open(exact_options(kHeadContext));
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 100, got);
  for (std::size_t token = 100; token < kHeadRows; ++token) step(*session, token, got);
  EXPECT_LT(largest_difference(got, want), 1e-5);
}

TEST_F(LayerHeadsTest, WindowsOfTheCacheFollowTheDefinition) {
  EngineOptions options = exact_options(kHeadContext);
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = 50, .sinks = 3};
  const auto want = wanted([](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
    return j < 3 || i - j < 50;
  });
  EXPECT_LT(largest_difference(run(options, {kHeadRows}, kHeadRows), want), 1e-5);
  options.kv_policy.rope_reindex = true;
  const NaiveModel::Cache cache = {.sinks = 3, .window = 50};
  const auto reindexed =
      model_->logits({tokens_.begin(), tokens_.end()}, kHeadContext, {}, nullptr, nullptr, &cache);
  EXPECT_LT(largest_difference(run(options, {kHeadRows}, kHeadRows), reindexed), 1e-5);
}

TEST_F(LayerHeadsTest, SavedForkedAndSpilledTextsGoOnWithTheSameBits) {
  const std::string saved = path_ + ".session";
  const std::string spill = path_ + ".kv";
  for (const KvType type : kAllKvTypes) {
    EngineOptions options = options_of(type);
    options.n_sequences = 2;
    const Logits want = run(options, {kHeadRows}, kHeadRows);
    {
      const auto engine = open(options);
      const auto session = engine->create_session().value();
      Logits got;
      prefill(*session, 0, 100, got);
      ASSERT_TRUE(session->save(saved).ok());
      const auto fork = session->fork().value();
      prefill(*fork, 100, kHeadRows, got);
      EXPECT_EQ(got, want) << "forked, " << kv_type_name(type);
    }
    options.kv_spill_path = spill;
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    const Status status = session->load(saved);
    ASSERT_TRUE(status.ok()) << status.message();
    Logits rest;
    prefill(*session, 100, kHeadRows, rest);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), want.begin() + 100, want.end()))
        << "saved, " << kv_type_name(type);
  }
  std::filesystem::remove(saved);
  std::filesystem::remove(spill);
}

TEST_F(LayerHeadsTest, WhatKnowsOneWidthRefusesTheModel) {
  const auto message = [this](const EngineOptions& options) {
    const auto engine = Engine::open(path_, options);
    EXPECT_FALSE(engine.has_value());
    return engine.has_value() ? std::string() : engine.error().message();
  };
  EngineOptions sparse = exact_options(kHeadContext);
  sparse.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(message(sparse), HasSubstr("attention h2o: this model's layers have heads of"));
  EngineOptions evicting = exact_options(kHeadContext);
  evicting.kv_policy.policy = KvPolicy::kH2o;
  EXPECT_THAT(message(evicting), HasSubstr("kv policy h2o: this model's layers have heads of"));
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
