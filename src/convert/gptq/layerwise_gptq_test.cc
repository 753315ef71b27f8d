// SPDX-License-Identifier: MIT
//
// Factors equal those of separately summed Hessians, for any number of layers at once.

#include "convert/gptq/layerwise_gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using namespace testing_support;

constexpr std::uint32_t kWindow = 60;
constexpr std::size_t kTokens = 2 * kWindow;

class LayerwiseGptqTest : public testing::Test {
 protected:
  static std::unique_ptr<StatisticsCollector> open() {
    auto collector =
        StatisticsCollector::open(model().path(), {.context = kWindow, .n_threads = 2});
    EXPECT_TRUE(collector) << collector.error().message();
    return std::move(*collector);
  }
  static std::vector<TokenId> tokens() { return some_tokens(kTokens, StreamedShape{}.n_vocab); }
  static const StreamedModel& model() {
    static const StreamedModel model("layerwise_gptq", StreamedShape{});
    return model;
  }
};

bool are_equal(const GptqFactor& a, const GptqFactor& b) {
  if (!std::equal(a.importance().begin(), a.importance().end(), b.importance().begin(),
                  b.importance().end())) {
    return false;
  }
  for (std::size_t j = 0; j < a.n_cols(); ++j) {
    if (!std::equal(a.compensation(j), a.compensation(j) + j, b.compensation(j))) return false;
  }
  return true;
}

TEST_F(LayerwiseGptqTest, FactorsDoNotDependOnGroupsOfLayers) {
  const auto collector = open();
  const ModelSpec spec = collector->spec();
  ASSERT_GE(spec.n_layers, 2U);
  HessianSums sums(spec, 0, spec.n_layers, 2);
  const Status status = collector->run_layers(tokens(), 0, spec.n_layers, sums);
  ASSERT_TRUE(status.ok()) << status.message();
  auto keeps_rows = open();
  ASSERT_TRUE(keeps_rows->save_hidden_rows(kTokens).ok());
  LayerwiseGptq one(std::move(keeps_rows), tokens(), 1, 1);
  LayerwiseGptq all(open(), tokens(), spec.n_layers, 2);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    // Matrices in the order of files; those of one place share a factor.
    for (const TensorKind kind : {TensorKind::kAttnQ, TensorKind::kAttnK, TensorKind::kAttnO,
                                  TensorKind::kFfnUp, TensorKind::kFfnDown}) {
      const ProductInput input = *product_input_of(shape_of(spec), layer, kind);
      const std::uint32_t n_cols = input_cols(shape_of(spec), {input});
      const auto a = one.factor_of(kind, layer, n_cols);
      const auto b = all.factor_of(kind, layer, n_cols);
      ASSERT_TRUE(a && b && *a != nullptr && *b != nullptr);
      EXPECT_TRUE(are_equal(**a, **b)) << tensor_kind_name(kind) << layer;
      if (kind == TensorKind::kAttnK) continue;
      const auto want = GptqFactor::create(sums.take(input, layer), n_cols);
      ASSERT_TRUE(want) << want.error().message();
      EXPECT_TRUE(are_equal(**a, *want)) << tensor_kind_name(kind) << layer;
    }
  }
}

// One pass sums squares and Hessians, and gives the statistics and factors of two.
TEST_F(LayerwiseGptqTest, SumsOfTheCalibrationPassGiveTheSameFactors) {
  const auto collector = open();
  const ModelSpec spec = collector->spec();
  HessianSums sums(spec, 0, spec.n_layers, 2);
  sums.add_head(spec);
  const auto alone = collector->run(tokens());
  const auto together = collector->run(tokens(), {}, &sums);
  ASSERT_TRUE(alone && together);
  EXPECT_EQ(together->loss, alone->loss);
  sums.finish();
  bool is_open = false;
  const auto open_again = [&](std::uint32_t& /*layers_at_once*/) {
    is_open = true;
    return Result<std::unique_ptr<StatisticsCollector>>(open());
  };
  LayerwiseGptq with_sums(spec, std::move(sums), open_again, tokens(), 1);
  LayerwiseGptq separate(open(), tokens(), spec.n_layers, 1);
  const auto head = with_sums.factor_of(TensorKind::kHead, 0, spec.hidden);
  const auto head_alone = separate.factor_of(TensorKind::kHead, 0, spec.hidden);
  ASSERT_TRUE(head && head_alone && *head != nullptr && *head_alone != nullptr);
  EXPECT_TRUE(are_equal(**head, **head_alone));
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    EXPECT_EQ(together->layers[layer].mean_squares, alone->layers[layer].mean_squares);
    EXPECT_EQ(together->layers[layer].skip_loss, alone->layers[layer].skip_loss);
    const auto a = with_sums.factor_of(TensorKind::kFfnDown, layer, StreamedShape{}.ffn);
    const auto b = separate.factor_of(TensorKind::kFfnDown, layer, StreamedShape{}.ffn);
    ASSERT_TRUE(a && b && *a != nullptr && *b != nullptr);
    EXPECT_TRUE(are_equal(**a, **b)) << layer;
  }
  EXPECT_FALSE(is_open);
  const auto again = with_sums.factor_of(TensorKind::kFfnDown, 0, StreamedShape{}.ffn);
  const auto want = separate.factor_of(TensorKind::kFfnDown, 0, StreamedShape{}.ffn);
  ASSERT_TRUE(again && want) << again.error().message();
  EXPECT_TRUE(is_open);
  EXPECT_TRUE(are_equal(**again, **want));
}

TEST_F(LayerwiseGptqTest, GoesBackToTheFirstLayer) {
  LayerwiseGptq gptq(open(), tokens(), 1, 1);
  const std::uint32_t hidden = StreamedShape{}.hidden;
  const auto first = gptq.factor_of(TensorKind::kAttnQ, 0, hidden);
  ASSERT_TRUE(first) << first.error().message();
  const GptqFactor kept = **first;
  const auto other = gptq.factor_of(TensorKind::kAttnQ, 1, hidden);
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_FALSE(are_equal(kept, **other));
  const auto again = gptq.factor_of(TensorKind::kAttnQ, 0, hidden);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE(are_equal(kept, **again));
}

TEST_F(LayerwiseGptqTest, AnEmbeddingHasOneAsTheHeadAlone) {
  LayerwiseGptq gptq(open(), tokens(), 1, 1);
  const std::uint32_t hidden = StreamedShape{}.hidden;
  const auto looked_up = gptq.factor_of(TensorKind::kTokenEmbedding, 0, hidden);
  ASSERT_TRUE(looked_up) << looked_up.error().message();
  EXPECT_EQ(*looked_up, nullptr);
  const StreamedModel tied("layerwise_gptq_tied", StreamedShape{.tied_head = true});
  auto collector = StatisticsCollector::open(tied.path(), {.context = kWindow, .n_threads = 2});
  ASSERT_TRUE(collector) << collector.error().message();
  LayerwiseGptq of_tied(std::move(*collector), tokens(), 1, 1);
  const auto both = of_tied.factor_of(TensorKind::kTokenEmbedding, 0, hidden);
  ASSERT_TRUE(both) << both.error().message();
  ASSERT_NE(*both, nullptr);
  EXPECT_GT((*both)->damping(), kGptqDamping);
}

TEST(LayerwiseGptqLayersTest, HalfTheBudgetHasRoomForTheirHessians) {
  ModelSpec spec;
  spec.n_layers = 22;
  spec.hidden = 2048;
  spec.n_heads = 32;
  spec.head_dim = 64;
  spec.ffn = 5632;
  // Three sums of 2,048 columns and one of 5,632, 177 MB, beside 12 MB of rows.
  EXPECT_EQ(LayerwiseGptq::layers_at_once(spec, 1'000'000'000), 2U);
  EXPECT_EQ(LayerwiseGptq::layers_at_once(spec, 100'000'000), 1U);
  EXPECT_EQ(LayerwiseGptq::layers_at_once(spec, 100'000'000'000), 22U);
  EXPECT_EQ(LayerwiseGptq::layers_at_once(spec, 0), 22U);
}

}  // namespace
}  // namespace qsf
