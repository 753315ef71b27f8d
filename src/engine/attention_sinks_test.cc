// SPDX-License-Identifier: MIT
//
// A model whose heads have sinks, scores without a value: its logits follow from the definition
// with keys and values of every type, in calls and roles of all kinds and under a KV window; what
// cannot take sinks refuses the model by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/testing/attention_contract.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr std::size_t kSinkRows = 150;  // more than two pages
constexpr std::uint32_t kSinkContext = 256;

class AttentionSinksTest : public AttentionContractTest {
 protected:
  void SetUp() override {
    ModelSpec spec = naive_llama(2, kSinkContext);
    spec.architecture = "gpt-oss";
    spec.activation = Activation::kSwishClamped;
    spec.n_experts = 2;
    spec.n_experts_used = 2;  // a rounded score would choose others
    spec.expert_ffn = 24;
    spec.expert_renormalised = true;
    spec.sliding_window = {20, 0};
    make_model(spec, kSinkRows);
  }
};

TEST_F(AttentionSinksTest, EveryKvTypeFollowsTheDefinition) {
  expect_kv_types(kSinkContext, 1.5);
}

TEST_F(AttentionSinksTest, CallsPassesAndCancellingDoNotShow) {
  expect_calls_do_not_show(exact_options(kSinkContext));
}

TEST_F(AttentionSinksTest, GeneratedRowsFollowTheDefinition) {
  expect_generated_rows(exact_options(kSinkContext));
}

TEST_F(AttentionSinksTest, WindowsOfTheCacheFollowTheDefinition) {
  expect_window(exact_options(kSinkContext));
}

TEST_F(AttentionSinksTest, WhatCannotTakeSinksRefusesTheModel) {
  EngineOptions sparse = exact_options(16);  // within the model's own window
  sparse.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(refusal(sparse), HasSubstr("attention h2o: this model's heads have sinks"));
  EngineOptions evicting = exact_options(16);
  evicting.kv_policy.policy = KvPolicy::kH2o;
  EXPECT_THAT(refusal(evicting), HasSubstr("kv policy h2o: this model's heads have sinks"));
}

}  // namespace
}  // namespace qsf
