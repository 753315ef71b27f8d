// SPDX-License-Identifier: MIT
//
// Granite 4 H, of which most layers scan in place of attention: published config.json files, and
// where the tensors are stored.

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

Json granite4_h_micro() {
  Json json = Json::parse(R"({"architectures":["GraniteMoeHybridForCausalLM"],
    "attention_bias":false,"attention_dropout":0.0,"attention_multiplier":0.015625,
    "bos_token_id":100257,"embedding_multiplier":12,"eos_token_id":100257,"hidden_act":"silu",
    "hidden_size":2048,"init_method":"mup","initializer_range":0.1,"intermediate_size":8192,
    "logits_scaling":8,"mamba_chunk_size":256,"mamba_conv_bias":true,"mamba_d_conv":4,
    "mamba_d_head":64,"mamba_d_state":128,"mamba_expand":2,"mamba_n_groups":1,
    "mamba_n_heads":64,"mamba_proj_bias":false,"max_position_embeddings":131072,
    "model_type":"granitemoehybrid","normalization_function":"rmsnorm",
    "num_attention_heads":32,"num_experts_per_tok":0,"num_hidden_layers":40,
    "num_key_value_heads":8,"num_local_experts":0,"output_router_logits":false,
    "pad_token_id":100256,"position_embedding_type":"nope","residual_multiplier":0.22,
    "rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000,"router_aux_loss_coef":0.01,
    "shared_intermediate_size":8192,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
    "use_cache":true,"vocab_size":100352})");
  for (int layer = 0; layer < 40; ++layer) {
    json["layer_types"].push_back(layer % 10 == 5 ? "attention" : "mamba");
  }
  return json;
}

TEST(HfGranite4Test, MicroHasScansAndNoExperts) {
  Json json = granite4_h_micro();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "granitehybrid");
  EXPECT_THAT(config.tensor_table, IsEmpty());
  expect_sizes(s, 2048, 40, 32, 8, 64, 8192);
  EXPECT_EQ(s.n_experts, 0U);
  EXPECT_EQ(s.mixer_heads, 64U);
  EXPECT_EQ(s.mixer_head_dim, 64U);
  EXPECT_EQ(s.mixer_state, 128U);
  EXPECT_EQ(s.mixer_groups, 1U);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.mixer_in(), 4096U + 4352U + 64U);
  EXPECT_EQ(s.mixer_out(), 4096U);
  EXPECT_EQ(s.conv_channels(), 4352U);
  EXPECT_EQ(s.scan_values(), 4096U * 128U);
  EXPECT_TRUE(config.conv_bias && !config.mixer_bias && !config.qkv_bias);
  EXPECT_EQ(s.n_attention_layers(), 4U);
  EXPECT_EQ(s.mixer_of(5), LayerMixer::kAttention);
  EXPECT_EQ(s.mixer_of(6), LayerMixer::kMamba2);
  EXPECT_EQ(s.rope_of(5), LayerRope::kNone);
  EXPECT_EQ(s.logit_scale, 0.125F);
  EXPECT_EQ(s.attention_scale, 0.015625F);
  // As transformers 5 saves it.
  for (Json& type : json["layer_types"]) {
    type = type == "mamba" ? "linear_attention" : "full_attention";
  }
  json["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}};
  json["mamba_d_head"] = "auto";
  EXPECT_EQ(parsed(json).spec, s);
  json["position_embedding_type"] = "rope";
  EXPECT_TRUE(parsed(json).spec.layer_rope.empty());
}

TEST(HfGranite4Test, SmallHasExpertsBesideAShared) {
  Json json = granite4_h_micro();
  json.update({{"hidden_size", 4096},
               {"mamba_n_heads", 128},
               {"num_local_experts", 72},
               {"num_experts_per_tok", 10},
               {"intermediate_size", 768},
               {"shared_intermediate_size", 1536}});
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "granitemoehybrid");
  EXPECT_EQ(s.n_experts, 72U);
  EXPECT_EQ(s.n_experts_used, 10U);
  EXPECT_EQ(s.expert_ffn, 768U);
  EXPECT_EQ(s.shared_ffn, 1536U);
  EXPECT_TRUE(s.expert_renormalised);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSoftmax);
  json["layer_types"] = std::vector<std::string>(40, "attention");
  EXPECT_THAT(message_of(json), HasSubstr("num_local_experts: 72 are not supported"));
}

// What the class has where a file is silent.
TEST(HfGranite4Test, Defaults) {
  Json json = granite4_h_micro();
  json["hidden_size"] = 4096;
  for (const char* key : {"mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv",
                          "mamba_expand", "mamba_n_groups", "mamba_conv_bias", "mamba_proj_bias",
                          "num_local_experts", "num_experts_per_tok", "shared_intermediate_size"}) {
    json.erase(key);
  }
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.mixer_heads, 128U);
  EXPECT_EQ(s.mixer_head_dim, 64U);
  EXPECT_EQ(s.mixer_state, 256U);
  EXPECT_EQ(s.mixer_groups, 1U);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.n_experts, 8U);
  EXPECT_EQ(s.n_experts_used, 2U);
  EXPECT_EQ(s.shared_ffn, 1024U);
  EXPECT_TRUE(config.conv_bias && !config.mixer_bias);
}

TEST(HfGranite4Test, RefusesWhatItDoesNotRun) {
  expect_refused(granite4_h_micro(), "layer_types", std::vector<std::string>(40, "mamba"));
  expect_refused(granite4_h_micro(), "layer_types", std::vector<std::string>(40, "conv"));
  expect_refused(granite4_h_micro(), "time_step_limit", Json::parse("[0.001,0.1]"));
  expect_refused(granite4_h_micro(), "time_step_limit", Json::parse("[0.0,0.1]"));
  expect_refused(granite4_h_micro(), "time_step_limit",
                 Json::parse(R"([0.001,{"__float__":"Infinity"}])"));
  const std::pair<const char*, Json> wrong[] = {
      {"mamba_n_heads", 0},      {"mamba_n_heads", 63},
      {"mamba_n_heads", 4096},   {"mamba_d_head", 32},
      {"mamba_d_head", "wide"},  {"mamba_d_head", 0},
      {"mamba_d_state", 0},      {"mamba_d_state", 2000},
      {"mamba_n_groups", 5},     {"mamba_n_groups", 65},
      {"mamba_d_conv", 1},       {"mamba_expand", 0},
      {"mamba_expand", 3},       {"layer_types", {"mamba", "attention"}},
      {"num_local_experts", -1}, {"shared_intermediate_size", 0}};
  for (const auto& [key, value] : wrong) {
    Json json = granite4_h_micro();
    json[key] = value;
    EXPECT_FALSE(parse(json)) << key << ' ' << value;
  }
  Json json = granite4_h_micro();
  json["mamba_n_heads"] = 63;
  EXPECT_THAT(message_of(json), HasSubstr("mamba_n_heads: 63 of 64 columns each, expected 4096"));
}

TEST(HfGranite4Test, AnyValueGivesAStatus) {
  expect_statuses(granite4_h_micro(), {"time_step_limit", "head_dim"});
}

// Two layers of a model of 12 columns, with 4 heads of 6 columns in 2 groups, states of 8, and 3
// experts of 5 rows beside one of 7.
TestTensors tiny_tensors(bool experts, Rng& rng) {
  TensorShapes shapes = {
      {"model.embed_tokens.weight", {9, 12}},
      {"model.layers.0.mamba.in_proj.weight", {84, 12}},  // 24 + (24 + 2 * 2 * 8) + 4
      {"model.layers.0.mamba.in_proj.bias", {84}},
      {"model.layers.0.mamba.conv1d.weight", {56, 1, 3}},
      {"model.layers.0.mamba.conv1d.bias", {56}},
      {"model.layers.0.mamba.A_log", {4}},
      {"model.layers.0.mamba.D", {4}},
      {"model.layers.0.mamba.dt_bias", {4}},
      {"model.layers.0.mamba.norm.weight", {24}},
      {"model.layers.0.mamba.out_proj.weight", {12, 24}},
      {"model.layers.0.mamba.out_proj.bias", {12}},
      {"model.layers.1.self_attn.q_proj.weight", {12, 12}},
      {"model.layers.1.self_attn.k_proj.weight", {4, 12}},
      {"model.layers.1.self_attn.v_proj.weight", {4, 12}},
      {"model.layers.1.self_attn.o_proj.weight", {12, 12}},
      {"model.norm.weight", {12}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    shapes[layer + "input_layernorm.weight"] = {12};
    shapes[layer + "post_attention_layernorm.weight"] = {12};
    shapes[layer + "shared_mlp.input_linear.weight"] = {14, 12};
    shapes[layer + "shared_mlp.output_linear.weight"] = {12, 7};
    if (!experts) continue;
    shapes[layer + "block_sparse_moe.router.layer.weight"] = {3, 12};
    shapes[layer + "block_sparse_moe.input_linear.weight"] = {3, 10, 12};
    shapes[layer + "block_sparse_moe.output_linear.weight"] = {3, 12, 5};
  }
  return random_tensors(shapes, rng);
}

Json tiny_config(bool experts) {
  Json json = Json::parse(R"({"architectures":["GraniteMoeHybridForCausalLM"],"hidden_size":12,
    "hidden_act":"silu","num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,
    "vocab_size":9,"intermediate_size":5,"shared_intermediate_size":7,
    "max_position_embeddings":5,"layer_types":["mamba","attention"],"mamba_n_heads":4,
    "mamba_n_groups":2,"mamba_d_state":8,"mamba_d_conv":3,"mamba_proj_bias":true,
    "num_experts_per_tok":2,"tie_word_embeddings":true})");
  json["num_local_experts"] = experts ? 3 : 0;
  return json;
}

TEST(HfGranite4Test, AScanHasItsTensorsInPlaceOfAttention) {
  for (const bool experts : {false, true}) {
    Rng rng(4);
    const TestTensors tensors = tiny_tensors(experts, rng);
    const TemporaryFolder folder;
    write_model(folder, tiny_config(experts).dump(), tensors);
    const auto model = HfModel::open(folder.path());
    ASSERT_TRUE(model) << model.error().message();
    const auto stored = [&](const char* name) {
      return tensors.at(std::string("model.layers.0.") + name).values;
    };
    const std::pair<TensorKind, const char*> kinds[] = {
        {TensorKind::kMixerIn, "mamba.in_proj.weight"},
        {TensorKind::kMixerInBias, "mamba.in_proj.bias"},
        {TensorKind::kConvBias, "mamba.conv1d.bias"},
        {TensorKind::kScanBias, "mamba.dt_bias"},
        {TensorKind::kScanSkip, "mamba.D"},
        {TensorKind::kScanNorm, "mamba.norm.weight"},
        {TensorKind::kMixerOut, "mamba.out_proj.weight"},
        {TensorKind::kMixerOutBias, "mamba.out_proj.bias"},
        {TensorKind::kFfnNorm, "post_attention_layernorm.weight"}};
    for (const auto& [kind, name] : kinds) {
      EXPECT_EQ(tensor_values(**model, 0, kind), stored(name)) << name;
    }
    const std::vector<float> taps = tensor_values(**model, 0, TensorKind::kConvTaps);
    ASSERT_EQ(taps.size(), 168U);
    for (std::size_t i = 0; i < taps.size(); ++i) {
      EXPECT_EQ(taps[i], stored("mamba.conv1d.weight")[i % 56 * 3 + i / 56]) << i;
    }
    const std::vector<float> decays = tensor_values(**model, 0, TensorKind::kScanDecay);
    ASSERT_EQ(decays.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_FLOAT_EQ(decays[i], -std::exp(stored("mamba.A_log")[i]));
    }
    const std::vector<float> both = stored("shared_mlp.input_linear.weight");
    const auto half = both.begin() + 7 * 12;
    const TensorKind gate = experts ? TensorKind::kSharedGate : TensorKind::kFfnGate;
    const TensorKind up = experts ? TensorKind::kSharedUp : TensorKind::kFfnUp;
    EXPECT_EQ(tensor_values(**model, 0, gate), std::vector<float>(both.begin(), half));
    EXPECT_EQ(tensor_values(**model, 0, up), std::vector<float>(half, both.end()));
  }
}

TEST(HfGranite4Test, WrongTensorsAreNamed) {
  Rng rng(4);
  const TestTensors tensors = tiny_tensors(true, rng);
  ASSERT_THAT(opening_error(tiny_config(true).dump(), tensors), IsEmpty());
  TestTensors wrong = tensors;
  wrong["model.layers.0.mamba.conv1d.weight"] = random_tensor({56, 1, 4}, rng);
  EXPECT_THAT(opening_error(tiny_config(true).dump(), wrong),
              HasSubstr("shape [56, 1, 4], expected [56, 1, 3]"));
  wrong = tensors;
  wrong["model.layers.0.mamba.A_log"] = random_tensor({4, 1}, rng);
  EXPECT_THAT(opening_error(tiny_config(true).dump(), wrong),
              HasSubstr("shape [4, 1], expected [4]"));
  wrong = tensors;
  wrong.erase("model.layers.0.mamba.dt_bias");
  EXPECT_THAT(opening_error(tiny_config(true).dump(), wrong),
              HasSubstr("\"model.layers.0.mamba.dt_bias\" is missing, expected [4]"));
  wrong = tensors;
  wrong["model.layers.1.mamba.D"] = random_tensor({4}, rng);
  EXPECT_THAT(opening_error(tiny_config(true).dump(), wrong),
              HasSubstr("\"model.layers.1.mamba.D\" [4] is unexpected"));
  EXPECT_THAT(opening_error(tiny_config(false).dump(), tensors), HasSubstr("is unexpected"));
}

TEST(HfGranite4Test, ADecayOutOfRangeIsNamed) {
  Rng rng(4);
  TestTensors tensors = tiny_tensors(false, rng);
  tensors["model.layers.0.mamba.A_log"].values[2] = 100.0F;
  const TemporaryFolder folder;
  write_model(folder, tiny_config(false).dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto list = (*model)->tensors(SectionKind::kLayer, 0);
  const auto found = std::ranges::find(list, TensorKind::kScanDecay, &SourceTensor::kind);
  std::vector<float> values(4);
  const Status status = (*model)->read_rows(
      SectionKind::kLayer, 0, static_cast<std::size_t>(found - list.begin()), 0, values);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("\"model.layers.0.mamba.A_log\": exp(100) is too large"));
}

}  // namespace
}  // namespace qsf
