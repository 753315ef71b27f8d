// SPDX-License-Identifier: MIT
//
// Falcon-H1, whose layers scan and attend side by side: published config.json files, and
// multipliers that are folded into weights.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "import/hf/hf_config.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/opened_model.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

Json falcon_h1_half_b() {
  return Json::parse(R"({"architectures":["FalconH1ForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"attention_in_multiplier":1.0,"attention_out_multiplier":0.9375,
    "attn_layer_indices":null,"bos_token_id":1,"embedding_multiplier":5.656854249492381,
    "eos_token_id":11,"head_dim":64,"hidden_act":"silu","hidden_size":1024,
    "initializer_range":0.02,"intermediate_size":2048,"key_multiplier":0.39062499999999994,
    "lm_head_multiplier":0.0390625,"mamba_chunk_size":128,"mamba_conv_bias":true,
    "mamba_d_conv":4,"mamba_d_head":64,"mamba_d_ssm":1536,"mamba_d_state":128,"mamba_expand":2,
    "mamba_n_groups":1,"mamba_n_heads":24,"mamba_norm_before_gate":false,
    "mamba_proj_bias":false,"mamba_rms_norm":false,"mamba_use_mlp":true,
    "max_position_embeddings":16384,"mlp_bias":false,
    "mlp_multipliers":[0.8838834764831844,0.5859375],"model_type":"falcon_h1",
    "num_attention_heads":8,"num_hidden_layers":36,"num_key_value_heads":2,
    "num_logits_to_keep":1,"pad_token_id":0,"projectors_bias":false,"rms_norm_eps":1e-05,
    "rope_scaling":null,"rope_theta":100000000000.0,"ssm_in_multiplier":1.25,
    "ssm_multipliers":[0.3535533905932738,0.25,0.3535533905932738,0.5,0.3535533905932738],
    "ssm_out_multiplier":0.23570226039551587,"tie_word_embeddings":false,
    "torch_dtype":"bfloat16","use_cache":true,"vocab_size":32784})");
}

TEST(HfFalconH1Test, EveryLayerScansAndAttends) {
  const HfConfig config = parsed(falcon_h1_half_b());
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "falcon-h1");
  expect_sizes(s, 1024, 36, 8, 2, 64, 2048);
  EXPECT_EQ(s.mixer_heads, 24U);
  EXPECT_EQ(s.mixer_head_dim, 64U);
  EXPECT_EQ(s.mixer_state, 128U);
  EXPECT_EQ(s.mixer_groups, 1U);
  EXPECT_EQ(s.layer_mixers, std::vector<std::uint32_t>(36, 5));
  EXPECT_EQ(s.n_attention_layers(), 36U);
  EXPECT_EQ(s.n_state_layers(), 36U);
  EXPECT_EQ(s.rope.theta, 1e11F);
  EXPECT_TRUE(config.conv_bias && !config.scan_norm);
  EXPECT_EQ(s.embedding_scale, 1.0F) << "in the weights";
  EXPECT_EQ(config.factors.at(TensorKind::kHead).front().first, 0.0390625F);
  EXPECT_EQ(config.factors.at(TensorKind::kMixerIn).size(), 5U);
  // A head that is the embedding has other multipliers than the embedding.
  Json json = falcon_h1_half_b();
  json["tie_word_embeddings"] = true;
  const HfConfig tied = parsed(json);
  EXPECT_EQ(tied.spec.embedding_scale, 5.656854249492381F);
  EXPECT_EQ(tied.spec.logit_scale, 0.0390625F);
  EXPECT_FALSE(tied.factors.contains(TensorKind::kTokenEmbedding));
  json["mamba_rms_norm"] = true;
  EXPECT_TRUE(parsed(json).scan_norm);
}

// What the class has where a file is silent.
TEST(HfFalconH1Test, Defaults) {
  Json json = falcon_h1_half_b();
  for (const char* key : {"attention_in_multiplier",
                          "attention_out_multiplier",
                          "embedding_multiplier",
                          "key_multiplier",
                          "lm_head_multiplier",
                          "ssm_in_multiplier",
                          "ssm_out_multiplier",
                          "ssm_multipliers",
                          "mlp_multipliers",
                          "mamba_d_head",
                          "mamba_d_ssm",
                          "mamba_d_state",
                          "mamba_n_heads",
                          "mamba_n_groups",
                          "mamba_d_conv",
                          "mamba_conv_bias",
                          "head_dim",
                          "rope_theta",
                          "num_attention_heads",
                          "num_key_value_heads"}) {
    json.erase(key);
  }
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  expect_sizes(s, 1024, 36, 32, 8, 32, 2048);
  EXPECT_EQ(s.mixer_heads, 128U);
  EXPECT_EQ(s.mixer_head_dim, 8U);
  EXPECT_EQ(s.mixer_state, 256U);
  EXPECT_EQ(s.mixer_groups, 1U);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.rope.theta, 10000.0F);
  EXPECT_TRUE(config.conv_bias);
  for (const auto& [kind, parts] : config.factors) {
    for (const auto& part : parts) EXPECT_EQ(part.first * part.second, 1.0F);
  }
  json["mamba_d_ssm"] = nullptr;
  EXPECT_EQ(parsed(json).spec.mixer_head_dim, 16U) << "of twice the hidden size";
}

TEST(HfFalconH1Test, RefusesWhatItDoesNotRun) {
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"}) {
    expect_refused(falcon_h1_half_b(), key, true);
  }
  expect_refused(falcon_h1_half_b(), "mamba_use_mlp", false);
  expect_refused(falcon_h1_half_b(), "attn_layer_indices", Json::parse("[0,1]"));
  expect_refused(falcon_h1_half_b(), "time_step_limit", Json::parse("[0.001,0.1]"));
  expect_refused(falcon_h1_half_b(), "hidden_act", "gelu");
  Json json = falcon_h1_half_b();
  json["mamba_rms_norm"] = true;
  expect_refused(json, "mamba_norm_before_gate", true);
  const std::pair<const char*, Json> wrong[] = {
      {"mamba_n_heads", 23},
      {"mamba_d_head", 32},
      {"mamba_n_groups", 5},
      {"mamba_d_conv", 1},
      {"mamba_d_state", 0},
      {"mlp_multipliers", Json::parse("[1.0]")},
      {"mlp_multipliers", Json::parse("[1.0,0.0]")},
      {"ssm_multipliers", Json::parse("[1.0,1.0,1.0,1.0]")},
      {"ssm_multipliers", Json::parse("[1.0,1.0,1.0,1.0,-1.0]")},
      {"ssm_multipliers", 1.0},
      {"key_multiplier", 0.0},
      {"lm_head_multiplier", "one"}};
  for (const auto& [key, value] : wrong) {
    json = falcon_h1_half_b();
    json[key] = value;
    EXPECT_FALSE(parse(json)) << key << ' ' << value;
  }
}

TEST(HfFalconH1Test, AnyValueGivesAStatus) {
  expect_statuses(falcon_h1_half_b(), {"time_step_limit"});
}

Json tiny_falcon_h1() {
  return Json::parse(R"({"architectures":["FalconH1ForCausalLM"],"hidden_size":12,"head_dim":4,
    "num_attention_heads":3,"num_key_value_heads":1,"vocab_size":9,"intermediate_size":5,
    "num_hidden_layers":1,"max_position_embeddings":5,"mamba_n_heads":4,"mamba_d_ssm":24,
    "mamba_n_groups":2,"mamba_d_state":8,"mamba_d_conv":3,"key_multiplier":0.3,
    "attention_in_multiplier":1.1,"attention_out_multiplier":0.7,"ssm_in_multiplier":1.3,
    "ssm_out_multiplier":0.6,"embedding_multiplier":5.1,"lm_head_multiplier":0.17,
    "mlp_multipliers":[0.9,0.55],"ssm_multipliers":[0.35,0.25,0.45,0.5,0.65],
    "mamba_norm_before_gate":false,"mamba_rms_norm":true})");
}

TestTensors tiny_tensors(Rng& rng) {
  const std::string layer = "model.layers.0.";
  return random_tensors({{"model.embed_tokens.weight", {9, 12}},
                         {"lm_head.weight", {9, 12}},
                         {"model.final_layernorm.weight", {12}},
                         {layer + "input_layernorm.weight", {12}},
                         {layer + "pre_ff_layernorm.weight", {12}},
                         {layer + "mamba.in_proj.weight", {84, 12}},
                         {layer + "mamba.conv1d.weight", {56, 1, 3}},
                         {layer + "mamba.conv1d.bias", {56}},
                         {layer + "mamba.A_log", {4}},
                         {layer + "mamba.D", {4}},
                         {layer + "mamba.dt_bias", {4}},
                         {layer + "mamba.norm.weight", {24}},
                         {layer + "mamba.out_proj.weight", {12, 24}},
                         {layer + "self_attn.q_proj.weight", {12, 12}},
                         {layer + "self_attn.k_proj.weight", {4, 12}},
                         {layer + "self_attn.v_proj.weight", {4, 12}},
                         {layer + "self_attn.o_proj.weight", {12, 12}},
                         {layer + "feed_forward.gate_proj.weight", {5, 12}},
                         {layer + "feed_forward.up_proj.weight", {5, 12}},
                         {layer + "feed_forward.down_proj.weight", {12, 5}}},
                        rng);
}

std::vector<float> times(std::vector<float> values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

TEST(HfFalconH1Test, MultipliersAreInTheWeights) {
  Rng rng(4);
  const TestTensors tensors = tiny_tensors(rng);
  const TemporaryFolder folder;
  write_model(folder, tiny_falcon_h1().dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto stored = [&](const std::string& name) {
    return tensors.at("model.layers.0." + name + ".weight").values;
  };
  const auto values = [&](TensorKind kind) { return tensor_values(**model, 0, kind); };
  EXPECT_EQ(values(TensorKind::kAttnQ), times(stored("self_attn.q_proj"), 1.1F));
  EXPECT_EQ(values(TensorKind::kAttnK), times(times(stored("self_attn.k_proj"), 0.3F), 1.1F));
  EXPECT_EQ(values(TensorKind::kAttnV), times(stored("self_attn.v_proj"), 1.1F));
  EXPECT_EQ(values(TensorKind::kAttnO), times(stored("self_attn.o_proj"), 0.7F));
  EXPECT_EQ(values(TensorKind::kMixerOut), times(stored("mamba.out_proj"), 0.6F));
  EXPECT_EQ(values(TensorKind::kFfnGate), times(stored("feed_forward.gate_proj"), 0.9F));
  EXPECT_EQ(values(TensorKind::kFfnUp), stored("feed_forward.up_proj"));
  EXPECT_EQ(values(TensorKind::kFfnDown), times(stored("feed_forward.down_proj"), 0.55F));
  EXPECT_EQ(values(TensorKind::kScanNorm), stored("mamba.norm"));
  // z, x, B and C of two groups, and time steps.
  std::vector<float> in = times(stored("mamba.in_proj"), 1.3F);
  const std::pair<std::size_t, float> parts[] = {
      {24, 0.35F}, {24, 0.25F}, {16, 0.45F}, {16, 0.5F}, {4, 0.65F}};
  std::size_t row = 0;
  for (const auto& [n_rows, factor] : parts) {
    for (std::size_t i = row * 12; i < (row + n_rows) * 12; ++i) in[i] *= factor;
    row += n_rows;
  }
  EXPECT_EQ(values(TensorKind::kMixerIn), in);
  // Rows by themselves, and what could be kept as stored.
  const auto list = (*model)->tensors(SectionKind::kLayer, 0);
  const auto found = std::ranges::find(list, TensorKind::kMixerIn, &SourceTensor::kind);
  const auto index = static_cast<std::size_t>(found - list.begin());
  std::vector<float> some(30 * 12);
  ASSERT_TRUE((*model)->read_rows(SectionKind::kLayer, 0, index, 40, some).ok());
  EXPECT_EQ(some, std::vector<float>(in.begin() + 480, in.begin() + 840));
  EXPECT_EQ((*model)->kept_format(SectionKind::kLayer, 0, index)->type, QuantType::kF32);
  std::vector<float> rows(9 * 12);
  ASSERT_TRUE((*model)->read_rows(SectionKind::kEmbedding, 0, 0, 0, rows).ok());
  EXPECT_EQ(rows, times(tensors.at("model.embed_tokens.weight").values, 5.1F));
  const std::size_t head = (*model)->tensors(SectionKind::kFinal, 0).size() - 1;
  ASSERT_TRUE((*model)->read_rows(SectionKind::kFinal, 0, head, 0, rows).ok());
  EXPECT_EQ(rows, times(tensors.at("lm_head.weight").values, 0.17F));
}

// A product of a weight of 16 bits and a multiplier is none.
TEST(HfFalconH1Test, MultipliedWeightsAreNotKeptAsStored) {
  const auto model = HfModel::open(QSF_SOURCE_DIR "/testdata/golden/falcon_h1");
  ASSERT_TRUE(model) << model.error().message();
  const auto list = (*model)->tensors(SectionKind::kLayer, 0);
  for (const auto& [kind, type] : {std::pair{TensorKind::kMixerIn, QuantType::kF32},
                                   {TensorKind::kAttnK, QuantType::kF32},
                                   {TensorKind::kFfnUp, QuantType::kBF16}}) {
    const auto found = std::ranges::find(list, kind, &SourceTensor::kind);
    const auto index = static_cast<std::size_t>(found - list.begin());
    EXPECT_EQ((*model)->kept_format(SectionKind::kLayer, 0, index)->type, type);
  }
}

// Two equal matrices have multipliers of their own.
TEST(HfFalconH1Test, AHeadLikeTheEmbeddingIsItsOwn) {
  Rng rng(4);
  TestTensors tensors = tiny_tensors(rng);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  const TemporaryFolder folder;
  write_model(folder, tiny_falcon_h1().dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_FALSE((*model)->spec().tied_head);
}

TEST(HfFalconH1Test, WrongTensorsAreNamed) {
  Rng rng(4);
  const TestTensors tensors = tiny_tensors(rng);
  ASSERT_THAT(opening_error(tiny_falcon_h1().dump(), tensors), IsEmpty());
  TestTensors wrong = tensors;
  wrong.erase("model.layers.0.mamba.norm.weight");
  EXPECT_THAT(opening_error(tiny_falcon_h1().dump(), wrong),
              HasSubstr("\"model.layers.0.mamba.norm.weight\" is missing, expected [24]"));
  Json plain = tiny_falcon_h1();
  plain["mamba_rms_norm"] = false;
  EXPECT_THAT(opening_error(plain.dump(), tensors),
              HasSubstr("\"model.layers.0.mamba.norm.weight\" [24] is unexpected"));
  EXPECT_THAT(opening_error(plain.dump(), wrong), IsEmpty());
}

}  // namespace
}  // namespace qsf
