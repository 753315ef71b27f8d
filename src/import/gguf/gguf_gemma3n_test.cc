// SPDX-License-Identifier: MIT
//
// What the GGUF keys of Gemma 3n say of a model, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "import/testing/gguf_keys.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace testing_support;

constexpr float kDense = -std::numeric_limits<float>::infinity();

GgufKeys gemma3n_keys() {
  GgufKeys keys("gemma3n");
  keys.numbers = {{"altup.num_inputs", 4},
                  {"altup.active_idx", 0},
                  {"attention.shared_kv_layers", 2},
                  {"attention.sliding_window", 32},
                  {"embedding_length_per_layer_input", 6}};
  keys.arrays["feed_forward_length"] = std::vector<std::uint32_t>(7, 80);
  keys.lists["attention.sliding_window_pattern"] = {true, true, false, true, true, false, true};
  keys.floats = {{"rope.freq_base", 1000000.0F}, {"final_logit_softcapping", 30.0F}};
  keys.float_arrays["activation_sparsity_scale"] = {1.5F,   1.5F,   kDense, kDense,
                                                    kDense, kDense, kDense};
  keys.matrices = {{"blk.0.laurel_l.weight", {48, 5}}, {"per_layer_token_embd.weight", {42, 3}}};
  return keys;
}

TEST(GgufGemma3nTest, HasStreamsInputsAndCutGates) {
  const ModelSpec s = valid_spec(gemma3n_keys());
  EXPECT_EQ(s.architecture, "gemma3n");
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_EQ(s.n_streams, 4U);
  EXPECT_EQ(s.laurel_dim, 5U);
  EXPECT_EQ(s.layer_input_dim, 6U);
  EXPECT_EQ(s.layer_input_rows, 0U);
  EXPECT_EQ(s.ffn_cutoff, 1.5F);
  EXPECT_THAT(s.ffn_cutoff_layers, ElementsAre(1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(s.sliding_window, ElementsAre(32, 32, 0, 32, 32, 0, 32));
  EXPECT_THAT(s.kv_layers, ElementsAre(0, 1, 2, 3, 4, 2, 4));
  EXPECT_THAT(s.layer_ffn, IsEmpty());
  EXPECT_EQ(s.ffn, 80U);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_EQ(s.local_rope_theta, 1e4F);
  EXPECT_EQ(s.attention_scale, 1.0F);
  EXPECT_EQ(s.logit_soft_cap, 30.0F);
  EXPECT_TRUE(s.value_norms);
  GgufKeys keys = gemma3n_keys();
  keys.float_arrays["activation_sparsity_scale"] = std::vector<float>(7, kDense);
  EXPECT_THAT(valid_spec(keys).ffn_cutoff_layers, IsEmpty());
  keys.matrices["per_layer_token_embd.weight"] = {42, 2};
  EXPECT_EQ(valid_spec(keys).layer_input_rows, 2U);
}

TEST(GgufGemma3nTest, RefusesWhatDoesNotFit) {
  const auto with = [](const char* name, std::uint32_t value) {
    GgufKeys keys = gemma3n_keys();
    keys.numbers[name] = value;
    return keys;
  };
  expect_refused(with("altup.active_idx", 1), StatusCode::kUnsupported, "altup.active_idx");
  expect_refused(with("altup.num_inputs", 1), StatusCode::kCorrupt, "altup.num_inputs");
  expect_refused(with("altup.num_inputs", 9), StatusCode::kCorrupt, "altup.num_inputs");
  expect_refused(with("attention.shared_kv_layers", 7), StatusCode::kCorrupt, "shared_kv_layers");
  expect_refused(with("attention.shared_kv_layers", 5), StatusCode::kCorrupt,
                 "attention.shared_kv_layers: shared keys and values: no layer");
  for (const char* key :
       {"altup.num_inputs", "attention.shared_kv_layers", "embedding_length_per_layer_input"}) {
    GgufKeys keys = gemma3n_keys();
    keys.numbers.erase(key);
    expect_refused(keys, StatusCode::kCorrupt, key);
  }
  for (const char* name : {"blk.0.laurel_l.weight", "per_layer_token_embd.weight"}) {
    GgufKeys keys = gemma3n_keys();
    keys.matrices.erase(name);
    expect_refused(keys, StatusCode::kCorrupt, name);
  }
  GgufKeys keys = gemma3n_keys();
  keys.matrices["blk.0.laurel_l.weight"] = {48, 1};
  expect_refused(keys, StatusCode::kInvalidArgument, "columns beside attention: 1");
}

TEST(GgufGemma3nTest, RefusesCutsThatDoNotFit) {
  const auto with = [](const std::vector<float>& deviations) {
    GgufKeys keys = gemma3n_keys();
    keys.float_arrays["activation_sparsity_scale"] = deviations;
    return keys;
  };
  const char* key = "activation_sparsity_scale";
  expect_refused(with({1.5F, 1.5F}), StatusCode::kCorrupt, key);
  expect_refused(with({1.5F, 1.25F, kDense, kDense, kDense, kDense, kDense}),
                 StatusCode::kUnsupported, "1.5 in one layer and 1.25 in another");
  expect_refused(with({-kDense, 1, 1, 1, 1, 1, 1}), StatusCode::kCorrupt, key);
  expect_refused(with({std::numeric_limits<float>::quiet_NaN(), 1, 1, 1, 1, 1, 1}),
                 StatusCode::kCorrupt, key);
  GgufKeys keys = gemma3n_keys();
  keys.float_arrays.clear();
  expect_refused(keys, StatusCode::kCorrupt, "activation_sparsity_scale\" is missing");
}

}  // namespace
}  // namespace qsf
