// SPDX-License-Identifier: MIT
//
// The config.json of published mixtures of experts: Mixtral, Qwens, OLMoE, GLM-4.5, Granite, Phi.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "import/hf/hf_config.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

Json qwen3_30b_a3b() {
  return Json::parse(R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,
    "bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,"head_dim":128,
    "hidden_act":"silu","hidden_size":2048,"intermediate_size":6144,
    "max_position_embeddings":40960,"max_window_layers":48,"mlp_only_layers":[],
    "model_type":"qwen3_moe","moe_intermediate_size":768,"norm_topk_prob":true,
    "num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,
    "num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000.0,
    "sliding_window":null,"tie_word_embeddings":false,"use_sliding_window":false,
    "vocab_size":151936})");
}

void expect_experts(const ModelSpec& s, std::uint32_t n, std::uint32_t used, std::uint32_t ffn) {
  EXPECT_EQ(s.n_experts, n);
  EXPECT_EQ(s.n_experts_used, used);
  EXPECT_EQ(s.expert_ffn, ffn);
}

TEST(HfExpertFamiliesTest, Qwen3Of30B) {
  Json json = qwen3_30b_a3b();
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "qwen3moe");
  expect_sizes(s, 2048, 48, 32, 4, 128, 6144);
  expect_experts(s, 128, 8, 768);
  EXPECT_TRUE(s.expert_renormalised && s.sliding_window.empty());
  json.erase("norm_topk_prob");  // the class's default
  EXPECT_FALSE(parsed(json).spec.expert_renormalised);
  // Every layer has the window, whatever max_window_layers says.
  json["use_sliding_window"] = true;
  json["sliding_window"] = 1024;
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(1024U));
}

// Layers count from 0, the step from 1.
TEST(HfExpertFamiliesTest, QwensHaveDenseLayers) {
  Json json = qwen3_30b_a3b();
  json["num_hidden_layers"] = 6;
  json["mlp_only_layers"] = {0, 4, 77};
  EXPECT_THAT(parsed(json).spec.expert_layers, ElementsAre(0, 1, 1, 1, 0, 1));
  json["decoder_sparse_step"] = 3;
  json["mlp_only_layers"] = {2};
  EXPECT_THAT(parsed(json).spec.expert_layers, ElementsAre(0, 0, 0, 0, 0, 1));
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nullptr;
  EXPECT_THAT(parsed(json).spec.expert_layers, ElementsAre());
}

Json qwen15_moe_a27b() {
  return Json::parse(R"({"architectures":["Qwen2MoeForCausalLM"],"attention_dropout":0.0,
    "bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151643,"hidden_act":"silu",
    "hidden_size":2048,"initializer_range":0.02,"intermediate_size":5632,
    "max_position_embeddings":8192,"max_window_layers":21,"model_type":"qwen2_moe",
    "moe_intermediate_size":1408,"norm_topk_prob":false,"num_attention_heads":16,
    "num_experts":60,"num_experts_per_tok":4,"num_hidden_layers":24,"num_key_value_heads":16,
    "output_router_logits":false,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
    "router_aux_loss_coef":0.001,"shared_expert_intermediate_size":5632,"sliding_window":8192,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,
    "use_sliding_window":false,"vocab_size":151936})");
}

TEST(HfExpertFamiliesTest, Qwen15OfA27B) {
  Json json = qwen15_moe_a27b();
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "qwen2moe");
  EXPECT_TRUE(config.qkv_bias && !config.attn_out_bias);
  expect_sizes(config.spec, 2048, 24, 16, 16, 128, 5632);
  expect_experts(config.spec, 60, 4, 1408);
  EXPECT_EQ(config.spec.shared_ffn, 5632U);
  EXPECT_FALSE(config.spec.expert_renormalised);
  EXPECT_TRUE(config.spec.expert_layers.empty() && config.spec.sliding_window.empty());
  json["norm_topk_prob"] = true;
  EXPECT_TRUE(parsed(json).spec.expert_renormalised);
  json["num_hidden_layers"] = 5;
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 3;  // of which every second has it
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(8192, 0, 8192, 0, 0));
  json["shared_expert_intermediate_size"] = 0;
  EXPECT_THAT(message_of(json), HasSubstr("shared_expert_intermediate_size"));
  expect_statuses(qwen15_moe_a27b(), {"mlp_only_layers", "qkv_bias", "layer_types"});
}

TEST(HfExpertFamiliesTest, WhatIsNotRunIsRefusedByName) {
  const Json json = qwen3_30b_a3b();
  expect_refused(json, "decoder_sparse_step", 49);  // of 48 layers
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"num_experts", 1},
           {"num_experts", 1025},
           {"num_experts_per_tok", 129},
           {"decoder_sparse_step", 0},
           {"mlp_only_layers", 3},
           {"mlp_only_layers", Json::array({-1})},
           {"mlp_only_layers", Json::array({"0"})}}) {
    Json wrong = json;
    wrong[key] = value;
    EXPECT_THAT(message_of(wrong), HasSubstr(key));
  }
  Json few = json;
  few["num_experts"] = 4;
  few.erase("num_experts_per_tok");
  EXPECT_THAT(message_of(few), HasSubstr("num_experts_per_tok: missing"));
  expect_statuses(json, {});
}

TEST(HfExpertFamiliesTest, Mixtral8x7B) {
  const ModelSpec s = parsed(Json::parse(R"({"architectures":["MixtralForCausalLM"],
    "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,
    "intermediate_size":14336,"max_position_embeddings":32768,"model_type":"mixtral",
    "num_attention_heads":32,"num_experts_per_tok":2,"num_hidden_layers":32,
    "num_key_value_heads":8,"num_local_experts":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
    "sliding_window":null,"tie_word_embeddings":false,"vocab_size":32000})"))
                          .spec;
  EXPECT_EQ(s.architecture, "mixtral");
  expect_sizes(s, 4096, 32, 32, 8, 128, 14336);
  expect_experts(s, 8, 2, 14336);
  EXPECT_TRUE(s.expert_renormalised && s.sliding_window.empty());
}

TEST(HfExpertFamiliesTest, OlmoeOf7B) {
  Json json = Json::parse(R"({"architectures":["OlmoeForCausalLM"],"attention_bias":false,
    "clip_qkv":null,"eos_token_id":50279,"hidden_act":"silu","hidden_size":2048,
    "intermediate_size":1024,"max_position_embeddings":4096,"model_type":"olmoe",
    "norm_topk_prob":false,"num_attention_heads":16,"num_experts":64,"num_experts_per_tok":8,
    "num_hidden_layers":16,"num_key_value_heads":16,"pad_token_id":1,"rope_scaling":null,
    "rope_theta":10000.0,"tie_word_embeddings":false,"vocab_size":50304})");
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "olmoe");
  expect_experts(s, 64, 8, 1024);
  EXPECT_FALSE(s.expert_renormalised);
  EXPECT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.qkv_clip, 0.0F);
  json["clip_qkv"] = 8.0;
  EXPECT_EQ(parsed(json).spec.qkv_clip, 8.0F);
  json["clip_qkv"] = -8.0;
  EXPECT_THAT(message_of(json), HasSubstr("clip_qkv"));
}

TEST(HfExpertFamiliesTest, GraniteOf1B) {
  const ModelSpec s = parsed(Json::parse(R"({"architectures":["GraniteMoeForCausalLM"],
    "attention_bias":false,"attention_multiplier":0.015625,"bos_token_id":0,"eos_token_id":0,
    "embedding_multiplier":12.0,"hidden_act":"silu","hidden_size":1024,"intermediate_size":512,
    "logits_scaling":6.0,"max_position_embeddings":131072,"model_type":"granitemoe",
    "num_attention_heads":16,"num_experts_per_tok":8,"num_hidden_layers":24,
    "num_key_value_heads":8,"num_local_experts":32,"residual_multiplier":0.22,
    "rms_norm_eps":1e-06,"rope_theta":10000000,"tie_word_embeddings":true,
    "vocab_size":49155})"))
                          .spec;
  EXPECT_EQ(s.architecture, "granitemoe");
  expect_experts(s, 32, 8, 512);
  EXPECT_TRUE(s.expert_renormalised);
  EXPECT_EQ(s.embedding_scale, 12.0F);
  EXPECT_EQ(s.residual_scale, 0.22F);
  EXPECT_EQ(s.logit_scale, 1.0F / 6.0F);
  EXPECT_EQ(s.attention_scale, 0.015625F);
}

Json glm45_air() {
  return Json::parse(R"({"architectures":["Glm4MoeForCausalLM"],"attention_bias":true,
    "attention_dropout":0.0,"eos_token_id":[151329,151336,151338],"first_k_dense_replace":1,
    "head_dim":128,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,
    "intermediate_size":10944,"max_position_embeddings":131072,"model_type":"glm4_moe",
    "moe_intermediate_size":1408,"n_group":1,"n_routed_experts":128,"n_shared_experts":1,
    "norm_topk_prob":true,"num_attention_heads":96,"num_experts_per_tok":8,
    "num_hidden_layers":46,"num_key_value_heads":8,"num_nextn_predict_layers":1,
    "pad_token_id":151329,"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,"rope_scaling":null,
    "rope_theta":1000000,"routed_scaling_factor":1.0,"tie_word_embeddings":false,
    "topk_group":1,"use_qk_norm":false,"vocab_size":151552})");
}

TEST(HfExpertFamiliesTest, Glm45Air) {
  Json json = glm45_air();
  HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "glm4moe");
  expect_sizes(s, 4096, 46, 96, 8, 128, 10944);
  expect_experts(s, 128, 8, 1408);
  EXPECT_EQ(s.rope.dims, 64U);
  EXPECT_EQ(s.shared_ffn, 1408U);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(s.expert_renormalised);
  EXPECT_EQ(s.expert_epsilon, 1e-20F);
  EXPECT_EQ(s.expert_scale, 1.0F);
  ASSERT_EQ(s.expert_layers.size(), 46U);
  EXPECT_TRUE(!s.has_experts(0) && s.has_experts(1) && s.has_experts(45));
  EXPECT_TRUE(config.qkv_bias && !config.attn_out_bias && !config.head_norms);
  EXPECT_EQ(config.n_mtp_layers, 1U);

  json["use_qk_norm"] = true;  // the large one
  json["n_shared_experts"] = 2;
  json["routed_scaling_factor"] = 2.5;
  json["n_group"] = 8;
  json["topk_group"] = 4;
  json["norm_topk_prob"] = false;
  json["first_k_dense_replace"] = 0;
  config = parsed(json);
  EXPECT_TRUE(config.head_norms && s.expert_layers.empty());
  EXPECT_EQ(s.shared_ffn, 2816U);
  EXPECT_EQ(s.expert_scale, 2.5F);
  EXPECT_EQ(s.expert_groups, 8U);
  EXPECT_EQ(s.expert_groups_used, 4U);
  EXPECT_EQ(s.expert_epsilon, 0.0F);
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"n_group", 7}, {"n_group", 0}, {"topk_group", 9}, {"topk_group", 0}}) {
    Json wrong = json;
    wrong[key] = value;
    EXPECT_THAT(message_of(wrong), testing::ContainsRegex("group")) << key << value;
  }
  expect_statuses(glm45_air(), {});
}

TEST(HfExpertFamiliesTest, GraniteWithASharedExpert) {
  Json json = Json::parse(R"({"architectures":["GraniteMoeSharedForCausalLM"],
    "attention_bias":false,"attention_multiplier":0.0078125,"bos_token_id":0,"eos_token_id":0,
    "embedding_multiplier":12,"hidden_act":"silu","hidden_size":1536,"intermediate_size":512,
    "logits_scaling":6,"max_position_embeddings":131072,"model_type":"granitemoeshared",
    "num_attention_heads":12,"num_experts_per_tok":6,"num_hidden_layers":40,
    "num_key_value_heads":4,"num_local_experts":62,"residual_multiplier":0.22,
    "rms_norm_eps":1e-05,"rope_theta":10000,"shared_intermediate_size":1024,
    "tie_word_embeddings":true,"vocab_size":49160})");
  ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "granitemoe");
  expect_experts(s, 62, 6, 512);
  EXPECT_EQ(s.shared_ffn, 1024U);
  EXPECT_EQ(s.residual_scale, 0.22F);
  json.erase("shared_intermediate_size");
  s = parsed(json).spec;
  EXPECT_EQ(s.shared_ffn, 0U);
}

Json phi35_moe() {
  Json json = Json::parse(R"({"architectures":["PhiMoEForCausalLM"],"attention_bias":true,
    "bos_token_id":1,"eos_token_id":32000,"hidden_act":"silu","hidden_size":4096,
    "input_jitter_noise":0.01,"intermediate_size":6400,"lm_head_bias":true,
    "max_position_embeddings":131072,"model_type":"phimoe","num_attention_heads":32,
    "num_experts_per_tok":2,"num_hidden_layers":32,"num_key_value_heads":8,
    "num_local_experts":16,"original_max_position_embeddings":4096,"rms_norm_eps":1e-05,
    "rope_scaling":{"long_mscale":1.243163121016122,"original_max_position_embeddings":4096,
    "short_mscale":1.243163121016122,"type":"longrope"},"rope_theta":10000.0,
    "router_jitter_noise":0.01,"sliding_window":131072,"tie_word_embeddings":false,
    "vocab_size":32064})");
  json["rope_scaling"]["long_factor"] = std::vector<float>(64, 2.0F);
  json["rope_scaling"]["short_factor"] = std::vector<float>(64, 1.0F);
  return json;
}

TEST(HfExpertFamiliesTest, Phi35Moe) {
  Json json = phi35_moe();
  const HfConfig config = parsed(json);
  ModelSpec s = config.spec;
  EXPECT_EQ(s.architecture, "phimoe");
  expect_sizes(s, 4096, 32, 32, 8, 128, 6400);
  expect_experts(s, 16, 2, 6400);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSparsemixer);
  EXPECT_EQ(s.expert_margin, 0.01F);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kLongrope);
  EXPECT_EQ(s.rope.attention_factor, 1.243163121016122F);
  EXPECT_EQ(s.rope.short_attention_factor, 0.0F);
  EXPECT_TRUE(config.qkv_bias && config.attn_out_bias && config.head_bias);
  json["rope_scaling"]["short_mscale"] = 1.1;
  s = parsed(json).spec;
  EXPECT_EQ(s.rope.attention_factor, 1.243163121016122F);
  EXPECT_EQ(s.rope.short_attention_factor, 1.1F);
  json["rope_scaling"].erase("short_mscale");
  EXPECT_THAT(message_of(json), HasSubstr("short_mscale"));
  expect_refused(phi35_moe(), "num_experts_per_tok", 3);
  expect_refused(phi35_moe(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  expect_statuses(phi35_moe(), {});
}

}  // namespace
}  // namespace qsf
