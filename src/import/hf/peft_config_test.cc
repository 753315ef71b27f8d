// SPDX-License-Identifier: MIT
//
// adapter_config.json: ranks and scales of modules, and every feature that is refused by name.

#include "import/hf/peft_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "import/testing/adapter_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using PeftJson = nlohmann::json;

PeftJson tiny_peft_json() {
  return PeftJson::parse(testing_support::kTinyPeftConfig);
}

PeftConfig parsed_peft(const PeftJson& json) {
  auto config = parse_peft_config(json.dump());
  EXPECT_TRUE(config.has_value()) << config.error().message();
  return std::move(config).value();
}

TEST(PeftConfigTest, ScaleIsAlphaOverRankOrItsRoot) {
  PeftJson json = tiny_peft_json();
  EXPECT_EQ(parsed_peft(json).rank_of("model.layers.0.mlp.up_proj").value(), 3U);
  EXPECT_EQ(parsed_peft(json).scale_of("model.layers.0.mlp.up_proj").value(), 2.0F);
  json["use_rslora"] = true;
  EXPECT_EQ(parsed_peft(json).scale_of("x").value(), static_cast<float>(6.0 / std::sqrt(3.0)));
  json["lora_alpha"] = -0.5;
  json["r"] = 4;
  EXPECT_EQ(parsed_peft(json).scale_of("x").value(), -0.25F);
}

TEST(PeftConfigTest, PatternsMatchAsInPeft) {
  PeftJson json = tiny_peft_json();
  json["rank_pattern"] = {{"k_proj", 12}, {"^model.layers.1.self_attn.q_proj", 2}};
  json["alpha_pattern"] = {{"layers\\.0\\.self_attn\\.v_proj", 24}, {"mlp.up.proj", 1.5}};
  const PeftConfig config = parsed_peft(json);
  const std::tuple<const char*, unsigned, float> cases[] = {
      {"model.layers.0.self_attn.k_proj", 12, 0.5F},
      {"k_proj", 12, 0.5F},
      {"model.layers.0.self_attn.ak_proj", 3, 2.0F},
      {"model.layers.0.k_proj.other", 3, 2.0F},
      {"model.layers.1.self_attn.q_proj", 2, 3.0F},
      {"other.model.layers.1.self_attn.q_proj", 3, 2.0F},
      {"model.layers.0.self_attn.v_proj", 3, 8.0F},
      {"model.layers.0.self_attn_v_proj", 3, 2.0F},
      {"model.layers.10.self_attn.v_proj", 3, 2.0F},
      {"model.layers.0.mlp.up_proj", 3, 0.5F},
      {"model.layers.0.mlp.up-proj", 3, 0.5F},
  };
  for (const auto& [module, rank, scale] : cases) {
    EXPECT_EQ(config.rank_of(module).value(), rank) << module;
    EXPECT_EQ(config.scale_of(module).value(), scale) << module;
  }
}

TEST(PeftConfigTest, PatternsThatDisagreeAreRefused) {
  PeftJson json = tiny_peft_json();
  json["alpha_pattern"] = {{"q_proj", 4}, {"layers.0.self_attn.q_proj", 5}};
  const auto scale = parsed_peft(json).scale_of("model.layers.0.self_attn.q_proj");
  ASSERT_FALSE(scale.has_value());
  EXPECT_THAT(scale.error().message(), HasSubstr("both match model.layers.0.self_attn.q_proj"));
  EXPECT_EQ(parsed_peft(json).scale_of("model.layers.1.self_attn.q_proj").value(), 4.0F / 3.0F);
  json["alpha_pattern"]["q_proj"] = 5;
  EXPECT_TRUE(parsed_peft(json).scale_of("model.layers.0.self_attn.q_proj").has_value());
}

TEST(PeftConfigTest, UnsupportedFeaturesByName) {
  const std::pair<const char*, PeftJson> cases[] = {
      {"peft_type", "LOHA"},
      {"bias", "all"},
      {"bias", "lora_only"},
      {"use_dora", true},
      {"use_qalora", true},
      {"use_bdlora", {{"nblocks", 2}}},
      {"lora_bias", true},
      {"ensure_weight_tying", true},
      {"modules_to_save", {"embed_tokens"}},
      {"trainable_token_indices", {1, 2}},
      {"target_parameters", {"experts.gate_up_proj"}},
      {"layer_replication", {{0, 4}, {2, 5}}},
      {"alora_invocation_tokens", {7}},
      {"arrow_config", {{"top_k", 3}}},
      {"megatron_config", {{"a", 1}}},
      {"monteclora_config", {{"a", 1}}},
      {"kasa_config", {{"beta", 1}}},
      {"something_new", true},
      {"init_lora_weights", "pissa"},
      {"init_lora_weights", "pissa_niter_16"},
      {"init_lora_weights", "olora"},
      {"init_lora_weights", "corda"},
      {"init_lora_weights", "loftq"},
      {"init_lora_weights", "lora_ga"},
      {"init_lora_weights", 1},
      {"rank_pattern", {{"(q|k)_proj", 4}}},
      {"alpha_pattern", {{"layers.[0-9]+.q_proj", 4}}},
      {"alpha_pattern", {{"q_proj$", 4}}},
      {"alpha_pattern", {{"", 4}}},
      {"alpha_pattern", {{"q\\", 4}}},
  };
  for (const auto& [key, value] : cases) {
    PeftJson json = tiny_peft_json();
    json[key] = value;
    const auto config = parse_peft_config(json.dump());
    ASSERT_FALSE(config.has_value()) << json;
    EXPECT_EQ(config.error().code(), StatusCode::kUnsupported) << config.error().message();
    EXPECT_THAT(config.error().message(), HasSubstr(key));
  }
}

TEST(PeftConfigTest, WhatChangesNothingIsPassedOver) {
  PeftJson json = tiny_peft_json();
  for (const char* key : {"layer_replication", "trainable_token_indices", "target_parameters"}) {
    json[key] = nullptr;
  }
  json["modules_to_save"] = PeftJson::array();
  json["use_bdlora"] = PeftJson::object();
  json["layers_to_transform"] = {0, 1};
  json["layers_pattern"] = "layers";
  json["fan_in_fan_out"] = true;
  json["eva_config"] = {{"rho", 2.0}};
  json["loftq_config"] = {{"loftq_bits", 4}};
  json["peft_version"] = "0.21.2";
  json["some_number"] = 3;
  for (const PeftJson& start : {PeftJson(nullptr), PeftJson(false), PeftJson("gaussian"),
                                PeftJson("eva"), PeftJson("orthogonal")}) {
    json["init_lora_weights"] = start;
    EXPECT_EQ(parsed_peft(json).rank, 3U);
  }
  json.erase("bias");
  json.erase("rank_pattern");
  EXPECT_EQ(parsed_peft(json).alpha, 6.0);
}

TEST(PeftConfigTest, ValuesOutOfRange) {
  const std::pair<const char*, PeftJson> cases[] = {
      {"r", 0},
      {"r", 4097},
      {"r", -1},
      {"r", 2.5},
      {"r", "8"},
      {"r", nullptr},
      {"lora_alpha", "16"},
      {"lora_alpha", nullptr},
      {"lora_alpha", 1e10},
      {"use_rslora", "yes"},
      {"bias", 1},
      {"peft_type", 3},
      {"rank_pattern", 4},
      {"rank_pattern", {{"q_proj", 0}}},
      {"rank_pattern", {{"q_proj", 4097}}},
      {"rank_pattern", {{"q_proj", 2.5}}},
      {"rank_pattern", {{"q_proj", "2"}}},
      {"alpha_pattern", {{"q_proj", 1e10}}},
      {"alpha_pattern", {{"q_proj", true}}},
      {"alpha_pattern", {"q_proj"}},
  };
  for (const auto& [key, value] : cases) {
    PeftJson json = tiny_peft_json();
    json[key] = value;
    const auto config = parse_peft_config(json.dump());
    ASSERT_FALSE(config.has_value()) << json;
    EXPECT_EQ(config.error().code(), StatusCode::kCorrupt) << config.error().message();
    EXPECT_THAT(config.error().message(), HasSubstr(key));
  }
  EXPECT_FALSE(parse_peft_config("").has_value());
  EXPECT_FALSE(parse_peft_config("[]").has_value());
  EXPECT_THAT(parse_peft_config("{}").error().message(), HasSubstr("peft_type"));
}

}  // namespace
}  // namespace qsf
