// SPDX-License-Identifier: MIT
//
// Qwen 3.5 and Qwen3-Next, of which most layers have a delta rule in place of attention: published
// config.json files, and where the tensors are stored.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "import/hf/hf_config.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/opened_model.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

Json qwen35_text() {
  Json json = Json::parse(R"({"attention_bias":false,"attention_dropout":0.0,
    "attn_output_gate":true,"dtype":"bfloat16","eos_token_id":248044,"full_attention_interval":4,
    "head_dim":256,"hidden_act":"silu","hidden_size":1024,"initializer_range":0.02,
    "intermediate_size":3584,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,
    "linear_num_key_heads":16,"linear_num_value_heads":16,"linear_value_head_dim":128,
    "max_position_embeddings":262144,"mlp_only_layers":[],"model_type":"qwen3_5_text",
    "mtp_num_hidden_layers":1,"mtp_use_dedicated_embeddings":false,"num_attention_heads":8,
    "num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,
    "tie_word_embeddings":true,"use_cache":true,"vocab_size":248320,"mamba_ssm_dtype":"float32",
    "rope_parameters":{"mrope_interleaved":true,"mrope_section":[11,11,10],
      "rope_type":"default","rope_theta":10000000,"partial_rotary_factor":0.25}})");
  for (int layer = 1; layer <= 24; ++layer) {
    json["layer_types"].push_back(layer % 4 == 0 ? "full_attention" : "linear_attention");
  }
  return json;
}

// Of text and images, as published.
Json qwen35_08b() {
  Json json = Json::parse(R"({"architectures":["Qwen3_5ForConditionalGeneration"],
    "image_token_id":248056,"model_type":"qwen3_5","tie_word_embeddings":true,
    "video_token_id":248057,"vision_config":{"depth":12,"model_type":"qwen3_5"},
    "vision_end_token_id":248054,"vision_start_token_id":248053})");
  json["text_config"] = qwen35_text();
  return json;
}

// The text model alone, so that keys are at the top.
Json qwen35_alone(const char* name = "Qwen3_5ForCausalLM") {
  Json json = qwen35_text();
  json["architectures"] = {name};
  return json;
}

TEST(HfQwen35Test, DenseHasDeltaRulesAndGatedAttention) {
  const HfConfig config = parsed(qwen35_08b());
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "qwen35");
  EXPECT_TRUE(config.multimodal);
  expect_sizes(s, 1024, 24, 8, 2, 256, 3584);
  EXPECT_EQ(s.n_attention_layers(), 6U);
  EXPECT_EQ(s.mixer_of(0), LayerMixer::kDeltaNet);
  EXPECT_EQ(s.mixer_of(3), LayerMixer::kAttention);
  EXPECT_EQ(s.mixer_of(23), LayerMixer::kAttention);
  EXPECT_EQ(s.mixer_heads, 16U);
  EXPECT_EQ(s.mixer_groups, 16U);
  EXPECT_EQ(s.mixer_head_dim, 128U);
  EXPECT_EQ(s.mixer_state, 128U);
  EXPECT_FALSE(s.mixer_heads_in_turn);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.mixer_in(), 6144U);
  EXPECT_EQ(s.conv_channels(), 6144U);
  EXPECT_EQ(s.mixer_out(), 2048U);
  EXPECT_EQ(s.scan_values(), 1U << 18);  // 1 MiB
  EXPECT_EQ(s.rope_dims(), 64U);
  EXPECT_EQ(s.rope.theta, 1e7F);
  EXPECT_EQ(s.norm_epsilon, 1e-6F);
  EXPECT_THAT(s.eos_ids, ElementsAre(248044));
  ModelSpec alone = parsed(qwen35_alone()).spec;
  alone.source = s.source;
  EXPECT_EQ(alone, s);
}

TEST(HfQwen35Test, AnIntervalIsEnough) {
  Json json = qwen35_alone();
  json.erase("layer_types");
  EXPECT_EQ(parsed(json).spec, parsed(qwen35_alone()).spec);
  json["full_attention_interval"] = 3;
  EXPECT_EQ(parsed(json).spec.n_attention_layers(), 8U);
  json["full_attention_interval"] = 1;  // then nothing is left to carry
  EXPECT_FALSE(parsed(json).spec.has_state());
  json["full_attention_interval"] = 25;
  EXPECT_THAT(message_of(json), HasSubstr("layer_types: no layer is full_attention"));
}

TEST(HfQwen35Test, MixtureOfExperts) {
  Json json = qwen35_alone("Qwen3_5MoeForCausalLM");
  json.erase("intermediate_size");
  json.update({{"hidden_size", 2048},
               {"linear_num_value_heads", 32},
               {"moe_intermediate_size", 512},
               {"num_experts", 256},
               {"num_experts_per_tok", 8},
               {"shared_expert_intermediate_size", 768}});
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "qwen35moe");
  EXPECT_EQ(s.n_experts, 256U);
  EXPECT_EQ(s.n_experts_used, 8U);
  EXPECT_EQ(s.expert_ffn, 512U);
  EXPECT_EQ(s.shared_ffn, 768U);
  EXPECT_TRUE(s.expert_renormalised);
  EXPECT_THAT(s.expert_layers, IsEmpty());
  EXPECT_EQ(s.mixer_heads, 32U);
  EXPECT_EQ(s.mixer_in(), 8192U);
}

TEST(HfQwen35Test, Qwen3Next) {
  Json json = qwen35_alone("Qwen3NextForCausalLM");
  json.erase("layer_types");
  json.erase("rope_parameters");
  json.update({{"intermediate_size", 5120},
               {"moe_intermediate_size", 512},
               {"mlp_only_layers", {2}},
               {"decoder_sparse_step", 1},
               {"norm_topk_prob", false},
               {"partial_rotary_factor", 0.25},
               {"rope_scaling", nullptr},
               {"rope_theta", 5000000}});
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "qwen3next");
  EXPECT_EQ(s.n_experts, 512U);
  EXPECT_EQ(s.n_experts_used, 10U);
  EXPECT_EQ(s.shared_ffn, 512U);
  EXPECT_FALSE(s.expert_renormalised);
  EXPECT_FALSE(s.has_experts(2));
  EXPECT_TRUE(s.has_experts(3));
  EXPECT_EQ(s.ffn, 5120U);
  EXPECT_EQ(s.rope_dims(), 64U);
  EXPECT_EQ(s.rope.theta, 5e6F);
}

// What the class has where a file is silent.
TEST(HfQwen35Test, Defaults) {
  Json json = qwen35_alone();
  for (const char* key :
       {"linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads",
        "linear_num_value_heads", "linear_value_head_dim", "head_dim", "num_attention_heads",
        "num_key_value_heads", "attn_output_gate", "rope_parameters"}) {
    json.erase(key);
  }
  const ModelSpec s = parsed(json).spec;
  expect_sizes(s, 1024, 24, 16, 4, 256, 3584);
  EXPECT_EQ(s.mixer_heads, 32U);
  EXPECT_EQ(s.mixer_groups, 16U);
  EXPECT_EQ(s.mixer_head_dim, 128U);
  EXPECT_EQ(s.mixer_state, 128U);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.rope_dims(), 64U);
  EXPECT_EQ(s.rope.theta, 1e4F);
}

TEST(HfQwen35Test, RefusesWhatItDoesNotRun) {
  expect_refused(qwen35_alone(), "attention_bias", true);
  expect_refused(qwen35_alone(), "attn_output_gate", false);
  expect_refused(qwen35_alone(), "layer_types", std::vector<std::string>(24, "linear_attention"));
  expect_refused(qwen35_alone(), "layer_types", std::vector<std::string>(24, "mamba"));
  const std::pair<const char*, Json> wrong[] = {
      {"linear_num_value_heads", 0},     {"linear_num_value_heads", 24},
      {"linear_num_value_heads", 4096},  {"linear_num_key_heads", 0},
      {"linear_num_key_heads", 32},      {"linear_key_head_dim", 0},
      {"linear_key_head_dim", 2000},     {"linear_value_head_dim", 0},
      {"linear_value_head_dim", 512},    {"linear_conv_kernel_dim", 1},
      {"full_attention_interval", "no"}, {"layer_types", {"full_attention"}}};
  for (const auto& [key, value] : wrong) {
    Json json = qwen35_alone();
    json[key] = value;
    if (std::string_view(key) == "full_attention_interval") json.erase("layer_types");
    EXPECT_FALSE(parse(json)) << key << ' ' << value;
  }
  Json json = qwen35_alone();
  json["linear_num_value_heads"] = 24;
  EXPECT_THAT(
      message_of(json),
      HasSubstr("linear_num_value_heads: 24 is not a multiple of linear_num_key_heads, 16"));
}

TEST(HfQwen35Test, AnyValueGivesAStatus) {
  expect_statuses(qwen35_alone(), {"layer_types", "full_attention_interval"});
}

// Two layers of a model of 12 columns: 4 heads of 3 values for 2 keys of 5 columns, and 2 heads of
// attention of 8.
TensorShapes tiny_shapes(const std::string& base, bool by_group) {
  const std::string state = base + "layers.0.linear_attn.";
  const std::string attention = base + "layers.1.self_attn.";
  TensorShapes shapes = {{base + "embed_tokens.weight", {9, 12}},
                         {base + "norm.weight", {12}},
                         {state + "conv1d.weight", {32, 1, 3}},
                         {state + "A_log", {4}},
                         {state + "dt_bias", {4}},
                         {state + "norm.weight", {3}},
                         {state + "out_proj.weight", {12, 12}},
                         {attention + "q_proj.weight", {32, 12}},
                         {attention + "k_proj.weight", {8, 12}},
                         {attention + "v_proj.weight", {8, 12}},
                         {attention + "o_proj.weight", {12, 16}},
                         {attention + "q_norm.weight", {8}},
                         {attention + "k_norm.weight", {8}}};
  if (by_group) {
    shapes[state + "in_proj_qkvz.weight"] = {44, 12};
    shapes[state + "in_proj_ba.weight"] = {8, 12};
  } else {
    shapes[state + "in_proj_qkv.weight"] = {32, 12};
    shapes[state + "in_proj_z.weight"] = {12, 12};
    shapes[state + "in_proj_b.weight"] = {4, 12};
    shapes[state + "in_proj_a.weight"] = {4, 12};
  }
  for (const char* layer : {"layers.0.", "layers.1."}) {
    const std::string at = base + layer;
    shapes[at + "input_layernorm.weight"] = {12};
    shapes[at + "post_attention_layernorm.weight"] = {12};
    if (!by_group) {
      shapes[at + "mlp.gate_proj.weight"] = shapes[at + "mlp.up_proj.weight"] = {7, 12};
      shapes[at + "mlp.down_proj.weight"] = {12, 7};
      continue;
    }
    shapes[at + "mlp.gate.weight"] = {2, 12};
    shapes[at + "mlp.shared_expert_gate.weight"] = {1, 12};
    shapes[at + "mlp.shared_expert.gate_proj.weight"] = {5, 12};
    shapes[at + "mlp.shared_expert.up_proj.weight"] = {5, 12};
    shapes[at + "mlp.shared_expert.down_proj.weight"] = {12, 5};
    for (const char* expert : {"mlp.experts.0.", "mlp.experts.1."}) {
      shapes[at + expert + "gate_proj.weight"] = shapes[at + expert + "up_proj.weight"] = {4, 12};
      shapes[at + expert + "down_proj.weight"] = {12, 4};
    }
  }
  return shapes;
}

TestTensors tiny_tensors_of(const TensorShapes& shapes) {
  Rng rng(4);
  return random_tensors(shapes, rng);
}

Json tiny_delta_config(bool by_group) {
  Json json = Json::parse(R"({"hidden_size":12,"hidden_act":"silu","num_hidden_layers":2,
    "num_attention_heads":2,"num_key_value_heads":1,"head_dim":8,"vocab_size":9,
    "intermediate_size":7,"max_position_embeddings":5,"tie_word_embeddings":true,
    "layer_types":["linear_attention","full_attention"],"linear_num_value_heads":4,
    "linear_num_key_heads":2,"linear_value_head_dim":3,"linear_key_head_dim":5,
    "linear_conv_kernel_dim":3,"num_experts":2,"num_experts_per_tok":1,
    "moe_intermediate_size":4,"shared_expert_intermediate_size":5})");
  json["architectures"] = {by_group ? "Qwen3NextForCausalLM" : "Qwen3_5ForCausalLM"};
  return json;
}

// Rows of 12 columns, in the order given.
std::vector<float> rows_of(const std::vector<float>& stored, const std::vector<std::size_t>& rows) {
  std::vector<float> values;
  for (const std::size_t row : rows) {
    const auto first = stored.begin() + static_cast<std::ptrdiff_t>(row * 12);
    values.insert(values.end(), first, first + 12);
  }
  return values;
}

TEST(HfQwen35Test, TensorsAreWhereTheyAreStored) {
  const TestTensors tensors = tiny_tensors_of(tiny_shapes("model.", false));
  const TemporaryFolder folder;
  write_model(folder, tiny_delta_config(false).dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto stored = [&](const char* name) {
    return tensors.at(std::string("model.layers.") + name).values;
  };
  const std::pair<TensorKind, const char*> kinds[] = {
      {TensorKind::kMixerIn, "0.linear_attn.in_proj_qkv.weight"},
      {TensorKind::kMixerGate, "0.linear_attn.in_proj_z.weight"},
      {TensorKind::kDeltaRate, "0.linear_attn.in_proj_b.weight"},
      {TensorKind::kDeltaStep, "0.linear_attn.in_proj_a.weight"},
      {TensorKind::kScanBias, "0.linear_attn.dt_bias"},
      {TensorKind::kDeltaNorm, "0.linear_attn.norm.weight"},
      {TensorKind::kMixerOut, "0.linear_attn.out_proj.weight"},
      {TensorKind::kFfnUp, "0.mlp.up_proj.weight"}};
  for (const auto& [kind, name] : kinds) {
    EXPECT_EQ(tensor_values(**model, 0, kind), stored(name)) << name;
  }
  EXPECT_EQ(tensor_values(**model, 0, TensorKind::kAttnNorm),
            plus_one(stored("0.input_layernorm.weight")));
  EXPECT_EQ(tensor_values(**model, 1, TensorKind::kFfnNorm),
            plus_one(stored("1.post_attention_layernorm.weight")));
  EXPECT_EQ(tensor_values(**model, 1, TensorKind::kQNorm),
            plus_one(stored("1.self_attn.q_norm.weight")));
  const std::vector<float> decays = tensor_values(**model, 0, TensorKind::kScanDecay);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(decays[i], -std::exp(stored("0.linear_attn.A_log")[i]));
  }
  // Each head has 8 queries and 8 gates.
  std::vector<std::size_t> queries, gates;
  for (std::size_t row = 0; row < 32; ++row) (row / 8 % 2 == 0 ? queries : gates).push_back(row);
  const std::vector<float> both = stored("1.self_attn.q_proj.weight");
  EXPECT_EQ(tensor_values(**model, 1, TensorKind::kAttnQ), rows_of(both, queries));
  EXPECT_EQ(tensor_values(**model, 1, TensorKind::kAttnGate), rows_of(both, gates));
}

TEST(HfQwen35Test, GroupsOfQwen3NextArePutApart) {
  const TestTensors tensors = tiny_tensors_of(tiny_shapes("model.", true));
  const TemporaryFolder folder;
  write_model(folder, tiny_delta_config(true).dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto stored = [&](const char* name) {
    return tensors.at(std::string("model.layers.0.linear_attn.") + name).values;
  };
  // Of each group: query 0 to 4, key 5 to 9, values 10 to 15, gates 16 to 21.
  std::vector<std::size_t> in, gates;
  for (const auto& [first, n] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 5}, {10, 6}}) {
    for (const std::size_t group : {0U, 22U}) {
      for (std::size_t i = 0; i < n; ++i) in.push_back(group + first + i);
    }
  }
  for (const std::size_t group : {0U, 22U}) {
    for (std::size_t i = 16; i < 22; ++i) gates.push_back(group + i);
  }
  EXPECT_EQ(tensor_values(**model, 0, TensorKind::kMixerIn),
            rows_of(stored("in_proj_qkvz.weight"), in));
  EXPECT_EQ(tensor_values(**model, 0, TensorKind::kMixerGate),
            rows_of(stored("in_proj_qkvz.weight"), gates));
  EXPECT_EQ(tensor_values(**model, 0, TensorKind::kDeltaRate),
            rows_of(stored("in_proj_ba.weight"), {0, 1, 4, 5}));
  EXPECT_EQ(tensor_values(**model, 0, TensorKind::kDeltaStep),
            rows_of(stored("in_proj_ba.weight"), {2, 3, 6, 7}));
}

TEST(HfQwen35Test, WhatSeesAndWhatLooksAheadIsLeftOutWithANotice) {
  Json config = tiny_delta_config(false);
  Json whole = {{"architectures", {"Qwen3_5ForConditionalGeneration"}}, {"text_config", config}};
  TensorShapes shapes = tiny_shapes("model.language_model.", false);
  shapes["model.visual.merger.norm.weight"] = {3};
  shapes["mtp.fc.weight"] = {3, 4};
  shapes["mtp.norm.weight"] = {3};
  const TestTensors tensors = tiny_tensors_of(shapes);
  {
    const TemporaryFolder folder;
    write_model(folder, whole.dump(), tensors);
    const auto model = HfModel::open(folder.path());
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_THAT((*model)->warnings(),
                ElementsAre(HasSubstr("left out 1 tensors of images"),
                            HasSubstr("left out 2 tensors that predict further tokens")));
  }
  // The text model alone may have the names of the whole, but nothing that sees.
  EXPECT_THAT(opening_error(config.dump(), tensors), HasSubstr("model.visual.merger.norm.weight"));
}

TEST(HfQwen35Test, WrongTensorsOfDeltaRulesAreNamed) {
  const TensorShapes right = tiny_shapes("model.", false);
  ASSERT_THAT(opening_error(tiny_delta_config(false).dump(), tiny_tensors_of(right)), IsEmpty());
  const std::string at = "model.layers.0.linear_attn.";
  const std::tuple<std::string, std::vector<std::uint64_t>, const char*> wrong[] = {
      {at + "conv1d.weight", {32, 1, 4}, "shape [32, 1, 4], expected [32, 1, 3]"},
      {at + "in_proj_qkv.weight", {36, 12}, "shape [36, 12], expected [32, 12]"},
      {at + "in_proj_z.weight", {11, 12}, "shape [11, 12], expected [12, 12]"},
      {at + "in_proj_b.weight", {5, 12}, "shape [5, 12], expected [4, 12]"},
      {at + "norm.weight", {12}, "shape [12], expected [3]"},
      {at + "A_log", {2}, "shape [2], expected [4]"},
      {"model.layers.1.self_attn.q_proj.weight", {16, 12}, "shape [16, 12], expected [32, 12]"},
      {at + "in_proj_qkvz.weight", {44, 12}, "is unexpected"}};
  for (const auto& [name, shape, message] : wrong) {
    TensorShapes shapes = right;
    shapes[name] = shape;
    const std::string got = opening_error(tiny_delta_config(false).dump(), tiny_tensors_of(shapes));
    EXPECT_THAT(got, HasSubstr(message));
    EXPECT_THAT(got, HasSubstr(name));
  }
  TensorShapes missing = right;
  missing.erase(at + "in_proj_a.weight");
  EXPECT_THAT(opening_error(tiny_delta_config(false).dump(), tiny_tensors_of(missing)),
              HasSubstr("in_proj_a.weight\" is missing, expected [4, 12]"));
  TensorShapes groups = tiny_shapes("model.", true);
  groups[at + "in_proj_ba.weight"] = {4, 12};
  EXPECT_THAT(opening_error(tiny_delta_config(true).dump(), tiny_tensors_of(groups)),
              HasSubstr("shape [4, 12], expected [8, 12]"));
}

}  // namespace
}  // namespace qsf
