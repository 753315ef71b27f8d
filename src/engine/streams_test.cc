// SPDX-License-Identifier: MIT
//
// A model of several residual streams, with a product beside attention and gates that are cut: its
// logits follow from the definition, in calls and roles of all kinds, resident and streamed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/testing/attention_contract.h"
#include "engine/testing/streamed_model.h"
#include "model/architecture.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kStreamedRows = 150;  // more than two pages
constexpr std::uint32_t kStreamedContext = 256;

// Gemma 3n.
ModelSpec streams_spec(std::uint32_t n_streams) {
  ModelSpec spec = naive_llama(5, kStreamedContext);
  spec.architecture = "gemma3n";
  spec.activation = Activation::kGeluTanh;
  spec.attention_scale = 0.5F;
  spec.embedding_scale = 1.5F;
  spec.logit_soft_cap = 12.0F;
  spec.value_norms = true;
  spec.sliding_window = {40, 40, 0, 40, 0};
  spec.layer_rope = {2, 2, 1, 2, 1};
  spec.local_rope_theta = 500.0F;
  spec.kv_layers = {0, 1, 2, 1, 2};
  spec.layer_input_dim = 5;
  spec.layer_input_rows = kNaiveVocab - 7;
  spec.n_streams = n_streams;
  spec.laurel_dim = 6;
  spec.ffn_cutoff = 0.4F;
  spec.ffn_cutoff_layers = {1, 0, 1, 0, 0};
  return spec;
}

class StreamsTest : public AttentionContractTest {
 protected:
  void SetUp() override {
    most_difference_ = 5e-5;  // five layers, each of several sums
    spills_ = false;
    make_model(streams_spec(3), kStreamedRows);
  }
};

TEST_F(StreamsTest, RowsFollowTheDefinition) {
  for (const std::uint32_t n_streams : {2U, 3U, 4U}) {
    make_model(streams_spec(n_streams), kStreamedRows);
    const Logits got = run(exact_options(kStreamedContext), {kStreamedRows}, kStreamedRows);
    EXPECT_LT(largest_difference(got, wanted(kStreamedContext)), most_difference_) << n_streams;
  }
}

TEST_F(StreamsTest, CallsPassesAndCancellingDoNotShow) {
  expect_calls_do_not_show(exact_options(kStreamedContext));
}

TEST_F(StreamsTest, GeneratedRowsFollowTheDefinition) {
  expect_generated_rows(exact_options(kStreamedContext));
}

TEST_F(StreamsTest, WindowsOfTheCacheFollowTheDefinition) {
  expect_window(exact_options(kStreamedContext));
  expect_reindexed_window(exact_options(kStreamedContext));
}

TEST_F(StreamsTest, SavedAndForkedTextsGoOnWithTheSameBits) {
  expect_texts_go_on(exact_options(kStreamedContext));
}

TEST_F(StreamsTest, OneLayerHasProductsIntoAndOutOfStreams) {
  ModelSpec spec = streams_spec(3);
  spec.n_layers = 1;
  spec.sliding_window = {40};
  spec.layer_rope = {2};
  spec.kv_layers.clear();
  spec.ffn_cutoff_layers = {1};
  make_model(spec, kStreamedRows);
  const Logits got = run(exact_options(kStreamedContext), {kStreamedRows}, kStreamedRows);
  EXPECT_LT(largest_difference(got, wanted(kStreamedContext)), most_difference_);
}

TEST_F(StreamsTest, StreamedWeightsGiveTheSameBits) {
  ModelSpec spec = streams_spec(4);
  spec.hidden = 192;
  spec.ffn = 800;
  spec.laurel_dim = 72;
  make_model(spec, kStreamedRows);
  EngineOptions options = exact_options(kStreamedContext);
  options.rows_per_pass = 32;
  const Logits want = run(options, {kStreamedRows}, kStreamedRows);
  options.ram_budget_bytes = smallest_budget(path_, options);
  const auto engine = open(options);
  EXPECT_FALSE(engine->plan().residency.everything_resident);
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 70, got);
  prefill(*session, 70, kStreamedRows, got);
  EXPECT_EQ(got, want);
}

TEST_F(StreamsTest, LayersOfAPartAreRefused) {
  const auto engine = open(exact_options(kStreamedContext));
  std::vector<float> rows(kStreamedRows * model_->spec().hidden);
  const Status status = engine->run_layers(tokens_, 0, 5, rows);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("the model has 3 residual streams"));
}

TEST(StreamsSpecTest, RefusesWhatIsNotRun) {
  const auto refused = [](void (*change)(ModelSpec&)) {
    ModelSpec spec = streams_spec(3);
    change(spec);
    const Status status = check_supported(spec);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    return std::string(status.message());
  };
  EXPECT_TRUE(check_supported(streams_spec(3)).ok());
  EXPECT_THAT(refused([](ModelSpec& s) { s.architecture = "gemma4"; }),
              HasSubstr("\"gemma4\" with 3 residual streams"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.n_streams = 1; }),
              HasSubstr("\"gemma3n\" with 1 residual streams"));
  EXPECT_THAT(refused([](ModelSpec& s) {
                s.architecture = "gemma4";
                s.n_streams = 1;
              }),
              HasSubstr("\"gemma4\" with gates that are cut"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.residual_scale = 0.5F; }),
              HasSubstr("residual streams and scaled residuals"));
}

}  // namespace
}  // namespace qsf
