// SPDX-License-Identifier: MIT
//
// A model whose layers have experts beside an FFN, with norms of each and a router that reads the
// stream: its logits follow from the definition, in calls and roles of all kinds, and with experts
// that are read from the file by need.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/testing/naive_model_test.h"
#include "model/architecture.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kBesideRows = 90;
constexpr std::uint32_t kBesideContext = 128;

ModelSpec beside_ffn_spec() {
  ModelSpec spec = naive_llama(3, kBesideContext);
  spec.architecture = "gemma4moe";
  spec.activation = Activation::kGeluTanh;
  spec.attention_scale = 0.4F;
  spec.value_norms = true;
  spec.layer_heads = {{3, 6}, {1, 16}, {3, 6}};
  spec.n_kv_heads = 3;
  spec.head_dim = 16;
  spec.key_value_layers = {0, 1, 0};
  spec.sliding_window = {40, 0, 40};
  spec.layer_rope = {2, 1, 2};
  spec.n_experts = 5;
  spec.n_experts_used = 2;
  spec.expert_ffn = 20;
  spec.expert_renormalised = true;
  spec.experts_beside_ffn = true;
  return spec;
}

class ExpertsBesideTest : public NaiveModelTest {
 protected:
  void SetUp() override { make_model(beside_ffn_spec(), kBesideRows); }
};

TEST_F(ExpertsBesideTest, RowsOfPromptsAndTextsFollowTheDefinition) {
  const auto want = model_->logits({tokens_.begin(), tokens_.end()}, kBesideContext, {});
  const EngineOptions options = exact_options(kBesideContext);
  EXPECT_LT(largest_difference(run(options, {kBesideRows}, kBesideRows), want), 1e-5);
  const auto engine = open(options);
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 50, got);
  for (std::size_t token = 50; token < kBesideRows; ++token) step(*session, token, got);
  EXPECT_LT(largest_difference(got, want), 1e-5);
}

TEST_F(ExpertsBesideTest, CallsPassesAndCancellingDoNotShow) {
  EngineOptions options = exact_options(kBesideContext);
  const Logits want = run(options, {kBesideRows}, kBesideRows);
  EXPECT_EQ(run(options, {1, 64, 7}, kBesideRows), want);
  options.rows_per_pass = 16;
  EXPECT_EQ(run(options, {kBesideRows}, kBesideRows), want);
  expect_no_trace_of_cancelling(options, {0, 40}, {1, 3}, want);
}

TEST(ExpertsBesideSpecTest, RefusesWhatIsNotRun) {
  const auto refused = [](void (*change)(ModelSpec&)) {
    ModelSpec spec = beside_ffn_spec();
    change(spec);
    const Status status = check_supported(spec);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    return std::string(status.message());
  };
  EXPECT_TRUE(check_supported(beside_ffn_spec()).ok());
  EXPECT_THAT(refused([](ModelSpec& s) { s.experts_beside_ffn = false; }),
              HasSubstr("\"gemma4moe\" without an FFN beside its experts"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.architecture = "mixtral"; }),
              HasSubstr("\"mixtral\" with an FFN beside its experts"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.shared_ffn = 8; }),
              HasSubstr("a shared expert and an FFN beside the experts"));
}

}  // namespace
}  // namespace qsf
