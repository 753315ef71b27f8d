// SPDX-License-Identifier: MIT
//
// Nemotron-H, of which every layer scans, attends or is an FFN: published config.json files, and
// where the tensors are stored.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
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

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

Json nemotron_nano_9b() {
  return Json::parse(R"({"architectures":["NemotronHForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"bos_token_id":1,"chunk_size":128,"conv_kernel":4,"eos_token_id":12,
    "expand":2,"head_dim":128,"hidden_dropout":0.0,"hidden_size":4480,
    "hybrid_override_pattern":"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "initializer_range":0.02,"intermediate_size":15680,"layer_norm_epsilon":1e-05,
    "mamba_head_dim":80,"mamba_hidden_act":"silu","mamba_num_heads":128,"mamba_proj_bias":false,
    "max_position_embeddings":131072,"mlp_bias":false,"mlp_hidden_act":"relu2",
    "model_type":"nemotron_h","n_groups":8,"num_attention_heads":40,"num_hidden_layers":56,
    "num_key_value_heads":8,"num_logits_to_keep":1,"pad_token_id":0,
    "rescale_prenorm_residual":true,"residual_in_fp32":false,"rms_norm_eps":1e-05,
    "sliding_window":null,"ssm_state_size":128,"tie_word_embeddings":false,
    "time_step_floor":0.0001,"time_step_max":0.1,"time_step_min":0.001,
    "torch_dtype":"bfloat16","use_bias":false,"use_cache":true,"use_conv_bias":true,
    "use_mamba_kernels":true,"vocab_size":131072})");
}

Json nemotron_3_nano() {
  Json json = nemotron_nano_9b();
  json.update(Json::parse(R"({"hidden_size":2688,"intermediate_size":1856,"mamba_head_dim":64,
    "mamba_num_heads":64,"num_attention_heads":32,"num_key_value_heads":2,"num_hidden_layers":52,
    "hybrid_override_pattern":"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "max_position_embeddings":262144,"moe_intermediate_size":1856,
    "moe_shared_expert_intermediate_size":3712,"n_group":1,"n_routed_experts":128,
    "n_shared_experts":1,"norm_topk_prob":true,"num_experts_per_tok":6,
    "routed_scaling_factor":2.5,"topk_group":1})"));
  return json;
}

TEST(HfNemotronTest, DenseLayersAreOneSublayerEach) {
  Json json = nemotron_nano_9b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "nemotron_h");
  expect_sizes(s, 4480, 56, 40, 8, 128, 15680);
  EXPECT_EQ(s.activation, Activation::kReluSquared);
  EXPECT_FALSE(s.gated_ffn);
  EXPECT_EQ(s.mixer_heads, 128U);
  EXPECT_EQ(s.mixer_head_dim, 80U);
  EXPECT_EQ(s.mixer_state, 128U);
  EXPECT_EQ(s.mixer_groups, 8U);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.mixer_of(0), LayerMixer::kMamba2);
  EXPECT_EQ(s.mixer_of(1), LayerMixer::kNone);
  EXPECT_EQ(s.mixer_of(14), LayerMixer::kAttention);
  EXPECT_FALSE(s.has_ffn(0) || s.has_ffn(14));
  EXPECT_TRUE(s.has_ffn(1));
  EXPECT_EQ(s.n_attention_layers(), 4U);
  EXPECT_EQ(s.n_state_layers(), 27U);
  EXPECT_EQ(s.rope_of(14), LayerRope::kNone);
  EXPECT_TRUE(config.conv_bias && !config.mixer_bias && !config.qkv_bias && !config.ffn_bias);
  // As transformers 5 saves it, and as python's json writes what has no bound.
  std::vector<std::string> names;
  for (const char letter : json["hybrid_override_pattern"].get<std::string>()) {
    names.push_back(letter == 'M' ? "linear_attention" : letter == '*' ? "full_attention" : "mlp");
  }
  json.erase("hybrid_override_pattern");
  json.erase("num_hidden_layers");
  json["layers_block_type"] = names;
  json["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}};
  EXPECT_EQ(parsed(json).spec, s);
  json["time_step_limit"] = {0.0, "Infinity"};
  std::string text = json.dump();
  const std::string quoted = "\"Infinity\"";
  text.replace(text.find(quoted), quoted.size(), "Infinity");
  const auto bare = parse_hf_config({.config = text,
                                     .generation_config = {},
                                     .tokenizer_config = {},
                                     .chat_template = {},
                                     .chat_template_json = {}});
  ASSERT_TRUE(bare) << bare.error().message();
  EXPECT_EQ(bare->spec, s);
}

TEST(HfNemotronTest, NanoHasExpertsWithoutGates) {
  const HfConfig config = parsed(nemotron_3_nano());
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "nemotron_h_moe");
  expect_sizes(s, 2688, 52, 32, 2, 128, 1856);
  EXPECT_EQ(s.n_experts, 128U);
  EXPECT_EQ(s.n_experts_used, 6U);
  EXPECT_EQ(s.expert_ffn, 1856U);
  EXPECT_EQ(s.shared_ffn, 3712U);
  EXPECT_EQ(s.expert_scale, 2.5F);
  EXPECT_EQ(s.expert_epsilon, 1e-20F);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(s.expert_renormalised && !s.gated_ffn && config.router_correction);
  EXPECT_THAT(s.expert_layers, IsEmpty());
  EXPECT_TRUE(s.has_experts(1) && !s.has_experts(0) && !s.has_experts(5));
  EXPECT_EQ(s.widest_ffn(), 3712U);
  Json json = nemotron_3_nano();
  std::string pattern = json["hybrid_override_pattern"];
  pattern[1] = '-';
  json["hybrid_override_pattern"] = pattern;
  const ModelSpec mixed = parsed(json).spec;
  EXPECT_TRUE(mixed.has_ffn(1) && !mixed.has_experts(1) && mixed.has_experts(3));
}

// What the class has where a file is silent.
TEST(HfNemotronTest, Defaults) {
  Json json = nemotron_3_nano();
  json["hidden_size"] = 4096;
  for (const char* key : {"mamba_num_heads",
                          "mamba_head_dim",
                          "ssm_state_size",
                          "conv_kernel",
                          "n_groups",
                          "use_conv_bias",
                          "use_bias",
                          "head_dim",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "n_routed_experts",
                          "num_experts_per_tok",
                          "moe_intermediate_size",
                          "mlp_hidden_act",
                          "moe_shared_expert_intermediate_size",
                          "routed_scaling_factor",
                          "norm_topk_prob",
                          "layer_norm_epsilon",
                          "max_position_embeddings",
                          "n_group",
                          "topk_group"}) {
    json.erase(key);
  }
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  expect_sizes(s, 4096, 52, 32, 8, 128, 7688);
  EXPECT_EQ(s.mixer_heads, 128U);
  EXPECT_EQ(s.mixer_head_dim, 64U);
  EXPECT_EQ(s.mixer_state, 128U);
  EXPECT_EQ(s.mixer_groups, 8U);
  EXPECT_EQ(s.n_experts, 8U);
  EXPECT_EQ(s.n_experts_used, 2U);
  EXPECT_EQ(s.expert_ffn, 7688U);
  EXPECT_EQ(s.shared_ffn, 7688U);
  EXPECT_EQ(s.expert_scale, 1.0F);
  EXPECT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.max_positions, 4096U);
  EXPECT_EQ(s.activation, Activation::kReluSquared);
  EXPECT_TRUE(config.conv_bias && s.expert_renormalised);
}

TEST(HfNemotronTest, RefusesWhatItDoesNotRun) {
  expect_refused(nemotron_3_nano(), "moe_latent_size", 1024);
  expect_refused(nemotron_3_nano(), "sliding_window", 4096);
  expect_refused(nemotron_3_nano(), "mlp_bias", true);
  expect_refused(nemotron_nano_9b(), "attention_bias", true);
  expect_refused(nemotron_3_nano(), "mamba_hidden_act", "relu");
  expect_refused(nemotron_3_nano(), "time_step_limit", Json::parse("[0.001,0.1]"));
  expect_refused(nemotron_3_nano(), "mlp_hidden_act", "silu");
  const std::pair<const char*, Json> wrong[] = {{"num_hidden_layers", 51},
                                                {"hybrid_override_pattern", ""},
                                                {"hybrid_override_pattern", 3},
                                                {"layers_block_type", {"mamba", "moe", "conv"}},
                                                {"layers_block_type", "moe"},
                                                {"n_groups", 7},
                                                {"n_groups", 65},
                                                {"mamba_num_heads", 0},
                                                {"mamba_head_dim", 257},
                                                {"ssm_state_size", 0},
                                                {"conv_kernel", 1},
                                                {"n_routed_experts", 1},
                                                {"num_experts_per_tok", 129},
                                                {"n_shared_experts", 2},
                                                {"n_group", 3},
                                                {"routed_scaling_factor", 0}};
  for (const auto& [key, value] : wrong) {
    Json json = nemotron_3_nano();
    json[key] = value;
    EXPECT_FALSE(parse(json)) << key << ' ' << value;
  }
  Json json = nemotron_3_nano();
  json["hybrid_override_pattern"] = "ME*x";
  EXPECT_THAT(message_of(json), HasSubstr("hybrid_override_pattern: \"x\", expected M, *, - or E"));
  for (const auto& [pattern, message] : {std::pair{"MEME", "no layer is attention"},
                                         {"*E*E", "no layer is mamba"},
                                         {"M*M*", "no layer is an FFN"}}) {
    json["hybrid_override_pattern"] = pattern;
    json["num_hidden_layers"] = 4;
    EXPECT_THAT(message_of(json), HasSubstr(message));
  }
}

TEST(HfNemotronTest, AnyValueGivesAStatus) {
  expect_statuses(nemotron_nano_9b(), {"time_step_limit", "layers_block_type"});
  expect_statuses(nemotron_3_nano(), {"moe_latent_size"});
}

// A model of 12 columns with 4 heads of 6 columns in 2 groups, states of 8, and 3 experts of 5 rows
// beside one of 7.
TestTensors tiny_tensors(const std::string& prefix, bool stacked, Rng& rng) {
  TensorShapes shapes = {{prefix + "embeddings.weight", {9, 12}},
                         {prefix + "norm_f.weight", {12}},
                         {"lm_head.weight", {9, 12}}};
  const auto add = [&](int layer, const char* name, std::vector<std::uint64_t> shape) {
    shapes[prefix + "layers." + std::to_string(layer) + "." + name] = std::move(shape);
  };
  for (int layer = 0; layer < 4; ++layer) add(layer, "norm.weight", {12});
  add(0, "mixer.in_proj.weight", {84, 12});  // 24 + (24 + 2 * 2 * 8) + 4
  add(0, "mixer.conv1d.weight", {56, 1, 3});
  add(0, "mixer.conv1d.bias", {56});
  add(0, "mixer.A_log", {4});
  add(0, "mixer.D", {4});
  add(0, "mixer.dt_bias", {4});
  add(0, "mixer.norm.weight", {24});
  add(0, "mixer.out_proj.weight", {12, 24});
  add(1, "mixer.gate.weight", {3, 12});
  add(1, "mixer.gate.e_score_correction_bias", {3});
  add(1, "mixer.shared_experts.up_proj.weight", {7, 12});
  add(1, "mixer.shared_experts.down_proj.weight", {12, 7});
  if (stacked) {
    add(1, "mixer.experts.up_proj", {3, 5, 12});
    add(1, "mixer.experts.down_proj", {3, 12, 5});
  }
  for (const char* expert : {"0", "1", "2"}) {
    if (stacked) break;
    add(1, (std::string("mixer.experts.") + expert + ".up_proj.weight").c_str(), {5, 12});
    add(1, (std::string("mixer.experts.") + expert + ".down_proj.weight").c_str(), {12, 5});
  }
  add(2, "mixer.q_proj.weight", {12, 12});
  add(2, "mixer.k_proj.weight", {4, 12});
  add(2, "mixer.v_proj.weight", {4, 12});
  add(2, "mixer.o_proj.weight", {12, 12});
  add(3, "mixer.up_proj.weight", {11, 12});
  add(3, "mixer.down_proj.weight", {12, 11});
  return random_tensors(shapes, rng);
}

Json tiny_nemotron_h() {
  return Json::parse(R"({"architectures":["NemotronHForCausalLM"],"hidden_size":12,"head_dim":4,
    "num_attention_heads":3,"num_key_value_heads":1,"vocab_size":9,"intermediate_size":11,
    "max_position_embeddings":5,"hybrid_override_pattern":"ME*-","mamba_num_heads":4,
    "mamba_head_dim":6,"n_groups":2,"ssm_state_size":8,"conv_kernel":3,"n_routed_experts":3,
    "moe_intermediate_size":5,"moe_shared_expert_intermediate_size":7,
    "num_experts_per_tok":2})");
}

TEST(HfNemotronTest, EachLayerHasTheTensorsOfItsSublayer) {
  for (const std::string prefix : {"backbone.", "model."}) {
    const bool stacked = prefix == "model.";
    Rng rng(4);
    const TestTensors tensors = tiny_tensors(prefix, stacked, rng);
    const TemporaryFolder folder;
    write_model(folder, tiny_nemotron_h().dump(), tensors);
    const auto model = HfModel::open(folder.path());
    ASSERT_TRUE(model) << model.error().message();
    const auto stored = [&](std::uint32_t layer, const std::string& name) {
      return tensors.at(prefix + "layers." + std::to_string(layer) + "." + name).values;
    };
    const std::tuple<std::uint32_t, TensorKind, const char*> kinds[] = {
        {0, TensorKind::kAttnNorm, "norm.weight"},
        {0, TensorKind::kMixerIn, "mixer.in_proj.weight"},
        {0, TensorKind::kConvBias, "mixer.conv1d.bias"},
        {0, TensorKind::kScanBias, "mixer.dt_bias"},
        {0, TensorKind::kScanSkip, "mixer.D"},
        {0, TensorKind::kScanNorm, "mixer.norm.weight"},
        {0, TensorKind::kMixerOut, "mixer.out_proj.weight"},
        {1, TensorKind::kFfnNorm, "norm.weight"},
        {1, TensorKind::kRouter, "mixer.gate.weight"},
        {1, TensorKind::kRouterCorrection, "mixer.gate.e_score_correction_bias"},
        {1, TensorKind::kSharedUp, "mixer.shared_experts.up_proj.weight"},
        {1, TensorKind::kSharedDown, "mixer.shared_experts.down_proj.weight"},
        {2, TensorKind::kAttnNorm, "norm.weight"},
        {2, TensorKind::kAttnK, "mixer.k_proj.weight"},
        {2, TensorKind::kAttnV, "mixer.v_proj.weight"},
        {3, TensorKind::kFfnNorm, "norm.weight"},
        {3, TensorKind::kFfnUp, "mixer.up_proj.weight"},
        {3, TensorKind::kFfnDown, "mixer.down_proj.weight"}};
    for (const auto& [layer, kind, name] : kinds) {
      EXPECT_EQ(tensor_values(**model, layer, kind), stored(layer, name)) << layer << name;
    }
    std::size_t n_experts = 0;
    for (const SourceTensor& t : (*model)->tensors(SectionKind::kLayer, 1)) {
      if (t.kind == TensorKind::kExpertUp) ++n_experts;
      EXPECT_NE(t.kind, TensorKind::kExpertGate);
    }
    EXPECT_EQ(n_experts, 3U);
  }
}

TEST(HfNemotronTest, WrongTensorsAreNamed) {
  Rng rng(4);
  const TestTensors tensors = tiny_tensors("backbone.", false, rng);
  ASSERT_THAT(opening_error(tiny_nemotron_h().dump(), tensors), IsEmpty());
  TestTensors wrong = tensors;
  wrong.erase("backbone.layers.1.mixer.experts.2.up_proj.weight");
  EXPECT_THAT(opening_error(tiny_nemotron_h().dump(), wrong),
              HasSubstr("\"backbone.layers.1.mixer.experts.2.up_proj.weight\" is missing"));
  wrong = tensors;
  wrong["backbone.layers.1.mixer.gate.weight"] = random_tensor({4, 12}, rng);
  EXPECT_THAT(opening_error(tiny_nemotron_h().dump(), wrong),
              HasSubstr("shape [4, 12], expected [3, 12]"));
  wrong = tensors;
  wrong["backbone.layers.3.mixer.gate_proj.weight"] = random_tensor({11, 12}, rng);
  EXPECT_THAT(opening_error(tiny_nemotron_h().dump(), wrong),
              HasSubstr("\"backbone.layers.3.mixer.gate_proj.weight\" [11, 12] is unexpected"));
  wrong = tensors;
  wrong["mtp.layers.0.norm.weight"] = random_tensor({12}, rng);
  EXPECT_THAT(opening_error(tiny_nemotron_h().dump(), wrong), IsEmpty());
}

}  // namespace
}  // namespace qsf
