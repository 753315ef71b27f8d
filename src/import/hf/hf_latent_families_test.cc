// SPDX-License-Identifier: MIT
//
// Published models with latent attention: their config.json, and where their tensors are stored.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "import/hf/hf_config.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using K = TensorKind;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

Json deepseek_v2_lite() {
  return Json::parse(R"({"architectures":["DeepseekV2ForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"aux_loss_alpha":0.001,"bos_token_id":100000,"eos_token_id":100001,
    "first_k_dense_replace":1,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
    "intermediate_size":10944,"kv_lora_rank":512,"max_position_embeddings":163840,
    "model_type":"deepseek_v2","moe_intermediate_size":1408,"moe_layer_freq":1,"n_group":1,
    "n_routed_experts":64,"n_shared_experts":2,"norm_topk_prob":false,"num_attention_heads":16,
    "num_experts_per_tok":6,"num_hidden_layers":27,"num_key_value_heads":16,"pretraining_tp":1,
    "q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-06,
    "rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":0.707,
    "mscale_all_dim":0.707,"original_max_position_embeddings":4096,"type":"yarn"},
    "rope_theta":10000,"routed_scaling_factor":1.0,"scoring_func":"softmax","seq_aux":true,
    "tie_word_embeddings":false,"topk_group":1,"topk_method":"greedy","torch_dtype":"bfloat16",
    "use_cache":true,"v_head_dim":128,"vocab_size":102400})");
}

Json deepseek_v3() {
  return Json::parse(R"({"architectures":["DeepseekV3ForCausalLM"],"attention_bias":false,
    "bos_token_id":0,"eos_token_id":1,"ep_size":1,"first_k_dense_replace":3,"hidden_act":"silu",
    "hidden_size":7168,"intermediate_size":18432,"kv_lora_rank":512,
    "max_position_embeddings":163840,"model_type":"deepseek_v3","moe_intermediate_size":2048,
    "moe_layer_freq":1,"n_group":8,"n_routed_experts":256,"n_shared_experts":1,
    "norm_topk_prob":true,"num_attention_heads":128,"num_experts_per_tok":8,
    "num_hidden_layers":61,"num_key_value_heads":128,"num_nextn_predict_layers":1,
    "q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-06,
    "rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":1.0,"mscale_all_dim":1.0,
    "original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":10000,
    "routed_scaling_factor":2.5,"scoring_func":"sigmoid","tie_word_embeddings":false,
    "topk_group":4,"topk_method":"noaux_tc","v_head_dim":128,"vocab_size":129280})");
}

TEST(HfLatentFamiliesTest, DeepseekV2Lite) {
  const HfConfig config = parsed(deepseek_v2_lite());
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "deepseek2");
  expect_sizes(s, 2048, 27, 16, 1, 576, 10944);
  EXPECT_EQ(s.latent_dim, 512U);
  EXPECT_EQ(s.latent_query_dim, 0U);
  EXPECT_EQ(s.latent_key_dim, 128U);
  EXPECT_EQ(s.latent_value_dim, 128U);
  EXPECT_EQ(s.latent_epsilon, 1e-6F);
  EXPECT_EQ(s.rope.dims, 64U);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(s.rope.attention_factor, 1.0F);
  const double mscale = 0.1 * 0.707 * std::log(40.0) + 1.0;
  EXPECT_FLOAT_EQ(s.attention_scale, static_cast<float>(mscale * mscale / std::sqrt(192.0)));
  EXPECT_EQ(s.n_experts, 64U);
  EXPECT_EQ(s.n_experts_used, 6U);
  EXPECT_EQ(s.shared_ffn, 2816U);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSoftmax);
  EXPECT_EQ(s.expert_groups, 1U);
  EXPECT_FALSE(s.expert_renormalised);
  EXPECT_TRUE(!s.has_experts(0) && s.has_experts(1));
  // As the larger one.
  Json json = deepseek_v2_lite();
  json["q_lora_rank"] = 1536;
  json["topk_method"] = "group_limited_greedy";
  json["n_group"] = 8;
  json["topk_group"] = 3;
  json["n_routed_experts"] = 160;
  json["routed_scaling_factor"] = 16.0;
  const ModelSpec large = parsed(json).spec;
  EXPECT_EQ(large.latent_query_dim, 1536U);
  EXPECT_EQ(large.expert_groups, 8U);
  EXPECT_EQ(large.expert_groups_used, 3U);
  EXPECT_EQ(large.expert_scale, 16.0F);
  json.erase("q_lora_rank");
  EXPECT_EQ(parsed(json).spec.latent_query_dim, 1536U) << "the default of the class";
}

TEST(HfLatentFamiliesTest, DeepseekV3) {
  const HfConfig config = parsed(deepseek_v3());
  const ModelSpec& s = config.spec;
  expect_sizes(s, 7168, 61, 128, 1, 576, 18432);
  EXPECT_EQ(s.latent_query_dim, 1536U);
  const double mscale = 0.1 * std::log(40.0) + 1.0;
  EXPECT_FLOAT_EQ(s.attention_scale, static_cast<float>(mscale * mscale / std::sqrt(192.0)));
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(s.expert_renormalised);
  EXPECT_EQ(s.expert_epsilon, 1e-20F);
  EXPECT_EQ(s.expert_scale, 2.5F);
  EXPECT_EQ(s.expert_groups, 8U);
  EXPECT_EQ(s.expert_groups_used, 4U);
  EXPECT_TRUE(!s.has_experts(2) && s.has_experts(3));
  EXPECT_EQ(config.n_mtp_layers, 1U);
}

Json glm_flash() {
  return Json::parse(R"({"architectures":["Glm4MoeLiteForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"eos_token_id":[154820,154827,154829],"first_k_dense_replace":1,
    "hidden_act":"silu","hidden_size":2048,"intermediate_size":10240,"kv_lora_rank":512,
    "max_position_embeddings":202752,"model_type":"glm4_moe_lite","moe_intermediate_size":1536,
    "n_group":1,"n_routed_experts":64,"n_shared_experts":1,"norm_topk_prob":true,
    "num_attention_heads":20,"num_experts_per_tok":4,"num_hidden_layers":47,
    "num_key_value_heads":20,"num_nextn_predict_layers":1,"pad_token_id":154820,
    "partial_rotary_factor":1.0,"q_lora_rank":768,"qk_nope_head_dim":192,"qk_rope_head_dim":64,
    "rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":1000000,"routed_scaling_factor":1.8,
    "tie_word_embeddings":false,"topk_group":1,"topk_method":"noaux_tc","v_head_dim":256,
    "vocab_size":154880})");
}

TEST(HfLatentFamiliesTest, Glm47Flash) {
  Json json = glm_flash();
  const ModelSpec s = parsed(json).spec;
  expect_sizes(s, 2048, 47, 20, 1, 576, 10240);
  EXPECT_EQ(s.latent_query_dim, 768U);
  EXPECT_EQ(s.latent_key_dim, 192U);
  EXPECT_EQ(s.latent_value_dim, 256U);
  EXPECT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.latent_epsilon, 1e-6F) << "of these norms the class has no other";
  EXPECT_FLOAT_EQ(s.attention_scale, 0.0625F);
  EXPECT_TRUE(!s.has_experts(0) && s.has_experts(1));
  // As transformers 5 saves it.
  json.erase("first_k_dense_replace");
  json["mlp_layer_types"] = {"dense"};
  for (int layer = 1; layer < 47; ++layer) json["mlp_layer_types"].push_back("sparse");
  EXPECT_EQ(parsed(json).spec, s);
  json["mlp_layer_types"][0] = "sparse";
  EXPECT_TRUE(parsed(json).spec.expert_layers.empty());
  json["mlp_layer_types"] = {"dense", "sparse"};
  EXPECT_THAT(message_of(json), HasSubstr("mlp_layer_types: expected a list of 47"));
  expect_refused(glm_flash(), "mlp_layer_types", std::vector<std::string>(47, "dense"));
  expect_refused(glm_flash(), "mlp_layer_types", std::vector<std::string>(47, "wide"));
}

TEST(HfLatentFamiliesTest, WhatIsNotRunIsRefused) {
  for (const Json& json : {deepseek_v2_lite(), deepseek_v3(), glm_flash()}) {
    expect_refused(json, "attention_bias", true);
    expect_refused(json, "rope_interleave", false);
    expect_refused(json, "num_key_value_heads", 2);
    expect_refused(json, "scoring_func", "none");
    expect_statuses(json, {"rope_parameters", "mlp_layer_types", "head_dim"});
  }
  expect_refused(deepseek_v2_lite(), "topk_method", "noaux_tc");
  expect_refused(deepseek_v2_lite(), "moe_layer_freq", 2);
}

// Two heads of 3 columns and 4 that rotate, values of 2, 5 latent columns.
Json tiny_deepseek_v2() {
  Json json = deepseek_v2_lite();
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int>>{{"hidden_size", 8},
                                                          {"intermediate_size", 6},
                                                          {"kv_lora_rank", 5},
                                                          {"moe_intermediate_size", 7},
                                                          {"n_routed_experts", 2},
                                                          {"n_shared_experts", 1},
                                                          {"num_attention_heads", 2},
                                                          {"num_experts_per_tok", 1},
                                                          {"num_hidden_layers", 2},
                                                          {"num_key_value_heads", 2},
                                                          {"qk_nope_head_dim", 3},
                                                          {"qk_rope_head_dim", 4},
                                                          {"v_head_dim", 2},
                                                          {"vocab_size", 9},
                                                          {"bos_token_id", 1},
                                                          {"eos_token_id", 2}}) {
    json[key] = value;
  }
  return json;
}

std::map<std::string, std::vector<std::uint64_t>> tiny_shapes(bool query_row) {
  std::map<std::string, std::vector<std::uint64_t>> shapes = {
      {"model.embed_tokens.weight", {9, 8}},
      {"lm_head.weight", {9, 8}},
      {"model.norm.weight", {8}},
      {"model.layers.0.mlp.gate_proj.weight", {6, 8}},
      {"model.layers.0.mlp.up_proj.weight", {6, 8}},
      {"model.layers.0.mlp.down_proj.weight", {8, 6}},
      {"model.layers.1.mlp.gate.weight", {2, 8}},
      {"model.layers.1.mlp.shared_experts.gate_proj.weight", {7, 8}},
      {"model.layers.1.mlp.shared_experts.up_proj.weight", {7, 8}},
      {"model.layers.1.mlp.shared_experts.down_proj.weight", {8, 7}}};
  for (const char* expert : {"0", "1"}) {
    const std::string at = std::string("model.layers.1.mlp.experts.") + expert;
    shapes[at + ".gate_proj.weight"] = {7, 8};
    shapes[at + ".up_proj.weight"] = {7, 8};
    shapes[at + ".down_proj.weight"] = {8, 7};
  }
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string at = std::string(layer) + "self_attn.";
    if (query_row) {
      shapes[at + "q_a_proj.weight"] = {6, 8};
      shapes[at + "q_a_layernorm.weight"] = {6};
      shapes[at + "q_b_proj.weight"] = {14, 6};
    } else {
      shapes[at + "q_proj.weight"] = {14, 8};
    }
    shapes[at + "kv_a_proj_with_mqa.weight"] = {9, 8};
    shapes[at + "kv_a_layernorm.weight"] = {5};
    shapes[at + "kv_b_proj.weight"] = {10, 5};
    shapes[at + "o_proj.weight"] = {8, 4};
    shapes[std::string(layer) + "input_layernorm.weight"] = {8};
    shapes[std::string(layer) + "post_attention_layernorm.weight"] = {8};
  }
  return shapes;
}

// A model of random tensors.
struct OpenedLatent {
  explicit OpenedLatent(bool query_row) {
    Rng rng(3);
    Json config = tiny_deepseek_v2();
    if (query_row) config["q_lora_rank"] = 6;
    for (const auto& [name, shape] : tiny_shapes(query_row)) {
      tensors[name] = random_tensor(shape, rng);
    }
    write_model(folder, config.dump(), tensors);
    auto result = HfModel::open(folder.path());
    EXPECT_TRUE(result) << result.error().message();
    if (result) model = *std::move(result);
  }
  // Every row of a matrix by itself, and all at once.
  std::vector<std::vector<float>> rows(K kind) const {
    const auto list = model->tensors(SectionKind::kLayer, 1);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != kind) continue;
      const std::uint32_t n_cols = list[i].cols;
      std::vector<float> all(std::size_t{list[i].rows} * n_cols);
      EXPECT_TRUE(model->read_rows(SectionKind::kLayer, 1, i, 0, all).ok());
      std::vector<std::vector<float>> rows;
      for (std::uint32_t r = 0; r < list[i].rows; ++r) {
        std::vector<float> row(n_cols);
        EXPECT_TRUE(model->read_rows(SectionKind::kLayer, 1, i, r, row).ok());
        EXPECT_EQ(row,
                  std::vector<float>(all.begin() + r * n_cols, all.begin() + (r + 1) * n_cols));
        rows.push_back(std::move(row));
      }
      return rows;
    }
    return {};
  }
  // Rows of a stored tensor, in this order.
  std::vector<std::vector<float>> stored(const std::string& name, std::size_t n_cols,
                                         const std::vector<int>& order) const {
    const std::vector<float>& all = tensors.at("model.layers.1.self_attn." + name).values;
    std::vector<std::vector<float>> rows;
    for (const int r : order) {
      rows.emplace_back(all.begin() + r * static_cast<int>(n_cols),
                        all.begin() + (r + 1) * static_cast<int>(n_cols));
    }
    return rows;
  }

  TemporaryFolder folder;
  TestTensors tensors;
  std::unique_ptr<HfModel> model;
};

TEST(HfLatentFamiliesTest, RowsThatRotateComeInHalves) {
  for (const bool query_row : {false, true}) {
    const OpenedLatent m(query_row);
    ASSERT_NE(m.model, nullptr);
    const char* const query = query_row ? "q_b_proj.weight" : "q_proj.weight";
    EXPECT_EQ(m.rows(K::kAttnQ),
              m.stored(query, query_row ? 6 : 8, {0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10, 12, 11, 13}));
    EXPECT_EQ(m.rows(K::kAttnK),
              m.stored("kv_a_proj_with_mqa.weight", 8, {5, 7, 6, 8, 0, 1, 2, 3, 4}));
  }
}

TEST(HfLatentFamiliesTest, KeysAndValuesOfEachHeadAreTakenApart) {
  const OpenedLatent m(false);
  ASSERT_NE(m.model, nullptr);
  EXPECT_EQ(m.rows(K::kLatentValues), m.stored("kv_b_proj.weight", 5, {3, 4, 8, 9}));
  const auto keys = m.rows(K::kLatentKeys);
  const auto by_row = m.stored("kv_b_proj.weight", 5, {0, 1, 2, 5, 6, 7});
  ASSERT_EQ(keys.size(), 10U);
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t c = 0; c < 5; ++c) {
      for (std::size_t d = 0; d < 3; ++d) {
        EXPECT_EQ(keys[head * 5 + c][d], by_row[head * 3 + d][c]) << head << c << d;
      }
    }
  }
}

// Products of one input lie side by side.
TEST(HfLatentFamiliesTest, TensorsComeInTheOrderOfTheirUse) {
  const OpenedLatent m(true);
  ASSERT_NE(m.model, nullptr);
  std::vector<K> kinds;
  for (const SourceTensor& t : m.model->tensors(SectionKind::kLayer, 0)) kinds.push_back(t.kind);
  EXPECT_THAT(kinds, ElementsAre(K::kAttnNorm, K::kLatentQuery, K::kAttnK, K::kLatentQueryNorm,
                                 K::kLatentNorm, K::kAttnQ, K::kLatentKeys, K::kLatentValues,
                                 K::kAttnO, K::kFfnNorm, K::kFfnGate, K::kFfnUp, K::kFfnDown));
}

}  // namespace
}  // namespace qsf
