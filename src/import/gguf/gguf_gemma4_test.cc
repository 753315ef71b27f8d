// SPDX-License-Identifier: MIT
//
// What the GGUF keys of Gemma 4 say of a model, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "import/testing/gguf_keys.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace testing_support;

GgufKeys gemma4_keys() {
  GgufKeys keys("gemma4");
  keys.arrays["attention.head_count_kv"] = {2, 2, 2, 2, 2, 1, 2};
  keys.numbers = {{"attention.key_length_swa", 8},        {"attention.value_length_swa", 8},
                  {"rope.dimension_count", 16},           {"rope.dimension_count_swa", 8},
                  {"attention.sliding_window", 32},       {"attention.shared_kv_layers", 0},
                  {"embedding_length_per_layer_input", 0}};
  keys.floats["rope.freq_base"] = 1000000.0F;
  keys.vectors["rope_freqs.weight"] = {1, 1, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F};
  for (const char* layer : {"0", "1", "2", "3", "4", "6"}) {
    keys.tensors.push_back("blk." + std::string(layer) + ".attn_v.weight");
  }
  return keys;
}

TEST(GgufGemma4Test, HasHeadsByLayer) {
  const ModelSpec s = valid_spec(gemma4_keys());
  EXPECT_EQ(s.architecture, "gemma4");
  EXPECT_EQ(s.n_kv_heads, 2U);
  EXPECT_EQ(s.head_dim, 16U);
  const KvHeads local = {2, 8};
  EXPECT_THAT(s.layer_heads, ElementsAre(local, local, local, local, local, KvHeads{1, 16}, local));
  EXPECT_THAT(s.key_value_layers, ElementsAre(0, 0, 0, 0, 0, 1, 0));
  EXPECT_THAT(s.sliding_window, ElementsAre(32, 32, 32, 32, 32, 0, 32));
  EXPECT_EQ(s.rope.n_turning, 2U);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kNone);
  EXPECT_TRUE(s.rope.short_factors.empty());
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_EQ(s.local_rope_theta, 1e4F);
  EXPECT_EQ(s.attention_scale, 1.0F);
  EXPECT_TRUE(s.value_norms);
  GgufKeys keys = gemma4_keys();
  keys.vectors.clear();
  EXPECT_EQ(valid_spec(keys).rope.n_turning, 0U);
}

TEST(GgufGemma4Test, HasExpertsBesideItsFfn) {
  GgufKeys keys = gemma4_keys();
  keys.numbers["expert_count"] = 6;
  keys.numbers["expert_used_count"] = 3;
  keys.numbers["expert_feed_forward_length"] = 12;
  const ModelSpec s = valid_spec(keys);
  EXPECT_EQ(s.architecture, "gemma4moe");
  EXPECT_TRUE(s.experts_beside_ffn && s.expert_renormalised);
  EXPECT_EQ(s.n_experts, 6U);
  EXPECT_EQ(s.n_experts_used, 3U);
  EXPECT_EQ(s.expert_ffn, 12U);
  keys.numbers["expert_used_count"] = 7;
  expect_refused(keys, StatusCode::kCorrupt, "expert_used_count\" is 7");
}

TEST(GgufGemma4Test, SharesKeysAndHasInputsOfEachLayer) {
  GgufKeys keys = gemma4_keys();
  keys.numbers["attention.shared_kv_layers"] = 3;
  keys.numbers["embedding_length_per_layer_input"] = 24;
  keys.lists["attention.sliding_window_pattern"] = {true, true, false, true, true, false, true};
  keys.arrays["attention.head_count_kv"] = {2, 2, 1, 2, 2, 1, 2};
  keys.arrays["feed_forward_length"] = {80, 80, 80, 80, 160, 160, 160};
  keys.tensors = {"blk.0.attn_v.weight", "blk.1.attn_v.weight", "blk.2.attn_v.weight",
                  "blk.3.attn_v.weight"};
  const ModelSpec s = valid_spec(keys);
  EXPECT_THAT(s.kv_layers, ElementsAre(0, 1, 2, 3, 3, 2, 3));
  EXPECT_THAT(s.key_value_layers, IsEmpty());
  EXPECT_THAT(s.layer_ffn, ElementsAre(80, 80, 80, 80, 160, 160, 160));
  EXPECT_EQ(s.ffn, 160U);
  EXPECT_EQ(s.layer_input_dim, 24U);
  keys.arrays["feed_forward_length"] = std::vector<std::uint32_t>(7, 80);
  EXPECT_THAT(valid_spec(keys).layer_ffn, IsEmpty());
  keys.arrays["feed_forward_length"][1] = 0;
  expect_refused(keys, StatusCode::kInvalidArgument, "ffn by layer: 0");
}

TEST(GgufGemma4Test, RefusesWhatDoesNotFit) {
  const auto with = [](const char* name, std::uint32_t value) {
    GgufKeys keys = gemma4_keys();
    keys.numbers[name] = value;
    return keys;
  };
  for (const char* key : {"attention.shared_kv_layers", "embedding_length_per_layer_input"}) {
    GgufKeys experts = with(key, 3);
    experts.numbers["expert_count"] = 6;
    expect_refused(experts, StatusCode::kUnsupported, key);
  }
  expect_refused(with("attention.shared_kv_layers", 7), StatusCode::kCorrupt, "shared_kv_layers");
  expect_refused(with("attention.shared_kv_layers", 2), StatusCode::kCorrupt,
                 "attention.shared_kv_layers: shared keys and values: no layer");
  for (const char* key : {"attention.value_length_swa", "rope.dimension_count_swa"}) {
    expect_refused(with(key, 6), StatusCode::kUnsupported, key);
  }
  GgufKeys keys = gemma4_keys();
  keys.numbers.erase("attention.sliding_window");
  expect_refused(keys, StatusCode::kCorrupt, "attention.sliding_window");
  keys = gemma4_keys();
  keys.numbers["block_count"] = 0;
  expect_refused(keys, StatusCode::kCorrupt, "block_count");
  keys = gemma4_keys();
  keys.arrays["attention.head_count_kv"][1] = 0;
  expect_refused(keys, StatusCode::kInvalidArgument, "0 key-value heads");
  for (const std::vector<float>& factors :
       {std::vector<float>(8, 2.0F),
        {1, 1, 1e30F, 1, 1e30F, 1e30F, 1e30F, 1e30F},
        {1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F}}) {
    keys = gemma4_keys();
    keys.vectors["rope_freqs.weight"] = factors;
    expect_refused(keys, StatusCode::kUnsupported, "expected factors of 1");
  }
}

}  // namespace
}  // namespace qsf
