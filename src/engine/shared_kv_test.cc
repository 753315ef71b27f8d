// SPDX-License-Identifier: MIT
//
// A model whose last layers attend to the keys and values of earlier ones, have FFNs of their own
// width and whose layers each have an input of every token: its logits follow from the definition,
// in calls and roles of all kinds, and its cache has the layers with keys alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/engine_plan.h"
#include "engine/testing/attention_contract.h"
#include "model/architecture.h"
#include "model/decoder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kSharedRows = 150;  // more than two pages
constexpr std::uint32_t kSharedContext = 256;

// Gemma 4 E2B.
ModelSpec sharing_spec() {
  ModelSpec spec = naive_llama(7, kSharedContext);
  spec.architecture = "gemma4";
  spec.activation = Activation::kGeluTanh;
  spec.attention_scale = 0.4F;
  spec.embedding_scale = 1.5F;
  spec.value_norms = true;
  set_layer_heads({{3, 6}, {1, 16}, {3, 6}, {1, 16}, {3, 6}, {3, 6}, {1, 16}}, spec);
  spec.sliding_window = {40, 0, 40, 0, 40, 40, 0};
  spec.layer_rope = {2, 1, 2, 1, 2, 2, 1};
  spec.local_rope_theta = 500.0F;
  spec.kv_layers = {0, 1, 2, 3, 2, 2, 3};
  set_layer_ffn({20, 20, 20, 20, 36, 36, 36}, spec);
  spec.layer_input_dim = 5;
  return spec;
}

class SharedKvTest : public AttentionContractTest {
 protected:
  void SetUp() override {
    most_difference_ = 2e-4;  // seven layers in f32
    spills_ = false;
    make_model(sharing_spec(), kSharedRows);
  }
};

TEST_F(SharedKvTest, EveryKvTypeFollowsTheDefinition) {
  expect_kv_types(kSharedContext, 1.6);
}

TEST_F(SharedKvTest, CallsPassesAndCancellingDoNotShow) {
  expect_calls_do_not_show(exact_options(kSharedContext));
}

TEST_F(SharedKvTest, GeneratedRowsFollowTheDefinition) {
  expect_generated_rows(exact_options(kSharedContext));
}

TEST_F(SharedKvTest, WindowsOfTheCacheFollowTheDefinition) {
  expect_window(exact_options(kSharedContext));
  expect_reindexed_window(exact_options(kSharedContext));
}

TEST_F(SharedKvTest, TheCacheHasTheLayersWithKeysAlone) {
  const EngineOptions options = exact_options(kSharedContext);
  const KvShape shape = kv_shape(model_->spec(), options);
  EXPECT_EQ(shape.n_layers, 4U);
  EXPECT_EQ(shape.page_bytes(), 2 * (2 * 3 * kv_block_bytes(options.k_type, 6) +
                                     2 * kv_block_bytes(options.k_type, 16)));
}

TEST_F(SharedKvTest, SavedAndForkedTextsGoOnWithTheSameBits) {
  expect_texts_go_on(exact_options(kSharedContext));
}

TEST_F(SharedKvTest, PartsOfTheLayersHaveTheirInputs) {
  std::vector<std::vector<std::vector<double>>> hidden;
  model_->logits({tokens_.begin(), tokens_.end()}, kSharedContext, {}, nullptr, &hidden);
  std::vector<float> rows;
  for (const auto& row : hidden[1]) rows.insert(rows.end(), row.begin(), row.end());
  const auto engine = open(exact_options(kSharedContext));
  ASSERT_TRUE(engine->run_layers(tokens_, 2, 7, rows).ok());
  const std::size_t n_cols = model_->spec().hidden;
  double difference = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    difference = std::max(difference, std::abs(rows[i] - hidden[6][i / n_cols][i % n_cols]));
  }
  EXPECT_LT(difference, 1e-4);
  const Status status = engine->run_layers(tokens_, 3, 7, rows);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(),
              HasSubstr("layers 3 to 6: layer 4 attends to the keys and values of layer 2"));
}

TEST_F(SharedKvTest, WhatNeedsKeysOfEachLayerRefusesTheModel) {
  EngineOptions sparse = exact_options(kSharedContext);
  sparse.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(refusal(sparse),
              HasSubstr("this model's layers use keys and values of other layers"));
  EngineOptions spilled = exact_options(kSharedContext);
  spilled.kv_spill_path = path_ + ".kv";
  EXPECT_THAT(refusal(spilled), HasSubstr("kv_spill: layers of this model share keys and values"));
}

TEST(SharedKvSpecTest, RefusesWhatIsNotRun) {
  const auto refused = [](void (*change)(ModelSpec&)) {
    ModelSpec spec = sharing_spec();
    change(spec);
    const Status status = check_supported(spec);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    return std::string(status.message());
  };
  EXPECT_TRUE(check_supported(sharing_spec()).ok());
  EXPECT_THAT(refused([](ModelSpec& s) { s.architecture = "gemma3"; }),
              HasSubstr("\"gemma3\" with inputs of each layer"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.architecture = "olmo2"; }),
              HasSubstr("or norms of all heads"));
}

TEST(SharedKvSpecTest, InputsOfLayersMayBeTheWidestRows) {
  ModelSpec spec = sharing_spec();
  const std::uint32_t others = Decoder::max_product_cols(spec);
  spec.layer_input_dim = others + 8;
  EXPECT_EQ(Decoder::max_product_cols(spec), others + 8);
}

}  // namespace
}  // namespace qsf
