// SPDX-License-Identifier: MIT
//
// A model whose heads have sinks, scores without a value: its logits follow from the definition
// with keys and values of every type, in calls and roles of all kinds and under a KV window; what
// cannot take sinks refuses the model by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/testing/naive_model_test.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kRows = 150;  // more than two pages
constexpr std::uint32_t kContext = 256;

class AttentionSinksTest : public NaiveModelTest {
 protected:
  void SetUp() override {
    ModelSpec spec = naive_llama(2, kContext);
    spec.architecture = "gpt-oss";
    spec.activation = Activation::kSwishClamped;
    spec.n_experts = 2;
    spec.n_experts_used = 2;  // a rounded score would choose others
    spec.expert_ffn = 24;
    spec.expert_renormalised = true;
    spec.sliding_window = {20, 0};
    make_model(spec, kRows);
  }
  std::vector<std::vector<double>> wanted(const NaiveModel::Sees& sees = nullptr) const {
    return model_->logits({tokens_.begin(), tokens_.end()}, kContext, {}, sees);
  }
};

TEST_F(AttentionSinksTest, EveryKvTypeFollowsTheDefinition) {
  const auto want = wanted();
  // The model doubles what a type rounds several times over; of 4 and 2 bits the
  // order of magnitude is left.
  for (const auto& [type, limit] : {std::pair{KvType::kF32, 1e-5}, std::pair{KvType::kF16, 0.01},
                                    std::pair{KvType::k8Bit, 0.15}, std::pair{KvType::k4Bit, 0.9},
                                    std::pair{KvType::k2Bit, 1.5}}) {
    EngineOptions options = exact_options(kContext);
    options.k_type = type;
    options.v_type = type;
    EXPECT_LT(largest_difference(run(options, {kRows}, kRows), want), limit)
        << static_cast<int>(type);
  }
}

TEST_F(AttentionSinksTest, CallsPassesAndCancellingDoNotShow) {
  EngineOptions options = exact_options(kContext);
  const Logits want = run(options, {kRows}, kRows);
  EXPECT_EQ(run(options, {1, 64, 7}, kRows), want);
  options.rows_per_pass = 16;
  EXPECT_EQ(run(options, {kRows}, kRows), want);
  expect_no_trace_of_cancelling(options, {0, 40}, {1, 4}, want);
  expect_truncation_leaves_no_trace(options, {0, 64, 100}, want);
}

TEST_F(AttentionSinksTest, GeneratedRowsFollowTheDefinition) {
  const auto want = wanted();
  const auto engine = open(exact_options(kContext));
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 100, got);
  for (std::size_t token = 100; token < kRows; ++token) step(*session, token, got);
  EXPECT_LT(largest_difference(got, want), 1e-5);
}

TEST_F(AttentionSinksTest, WindowsOfTheCacheFollowTheDefinition) {
  EngineOptions options = exact_options(kContext);
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = 50, .sinks = 3};
  const auto want = wanted([](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
    return j < 3 || i - j < 50;
  });
  EXPECT_LT(largest_difference(run(options, {kRows}, kRows), want), 1e-5);
}

TEST_F(AttentionSinksTest, WhatCannotTakeSinksRefusesTheModel) {
  const auto message = [this](const EngineOptions& options) {
    const auto engine = Engine::open(path_, options);
    EXPECT_FALSE(engine.has_value());
    return engine.has_value() ? std::string() : engine.error().message();
  };
  EngineOptions sparse = exact_options(16);  // within the model's own window
  sparse.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(message(sparse), HasSubstr("attention h2o: this model's heads have sinks"));
  EngineOptions evicting = exact_options(16);
  evicting.kv_policy.policy = KvPolicy::kH2o;
  EXPECT_THAT(message(evicting), HasSubstr("kv policy h2o: this model's heads have sinks"));
}

}  // namespace
}  // namespace qsf
