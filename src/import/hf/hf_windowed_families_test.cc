// SPDX-License-Identifier: MIT
//
// The config.json of published models whose layers differ, in windows, in RoPE or in where their
// norms are: Gemma 3, OLMo 2 and 3, EXAONE 4, GLM-4, Command-R.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "import/hf/hf_config.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

Json gemma3_1b() {
  return Json::parse(R"({"architectures":["Gemma3ForCausalLM"],"attention_bias":false,
    "attn_logit_softcapping":null,"bos_token_id":2,"eos_token_id":[1,106],
    "final_logit_softcapping":null,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
    "hidden_size":1152,"intermediate_size":6912,"max_position_embeddings":32768,
    "model_type":"gemma3_text","num_attention_heads":4,"num_hidden_layers":26,
    "num_key_value_heads":1,"pad_token_id":0,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,
    "rope_local_base_freq":10000,"rope_scaling":null,"rope_theta":1000000,"sliding_window":512,
    "sliding_window_pattern":6,"vocab_size":262144})");
}

TEST(HfWindowedFamiliesTest, Gemma3Of1B) {
  Json json = gemma3_1b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "gemma3");
  expect_sizes(s, 1152, 26, 4, 1, 256, 6912);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(s.embedding_scale, std::sqrt(1152.0F));
  EXPECT_EQ(s.attention_scale, 1.0F / 16.0F);
  EXPECT_EQ(s.attention_soft_cap, 0.0F);
  EXPECT_EQ(s.logit_soft_cap, 0.0F);
  EXPECT_TRUE(s.tied_head && s.gated_ffn);
  EXPECT_FALSE(config.multimodal);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_EQ(s.local_rope_theta, 1e4F);
  ASSERT_EQ(s.layer_rope.size(), 26U);
  for (std::uint32_t layer = 0; layer < 26; ++layer) {
    const bool global = (layer + 1) % 6 == 0;
    EXPECT_EQ(s.window_of(layer), global ? 0U : 512U) << layer;
    EXPECT_EQ(s.rope_of(layer), global ? LayerRope::kMain : LayerRope::kLocal) << layer;
  }
  // As transformers 5 saves it.
  for (const char* key :
       {"rope_local_base_freq", "rope_scaling", "rope_theta", "sliding_window_pattern"}) {
    json.erase(key);
  }
  for (int layer = 0; layer < 26; ++layer) {
    json["layer_types"].push_back((layer + 1) % 6 == 0 ? "full_attention" : "sliding_attention");
  }
  json["rope_parameters"] = Json::parse(R"({
    "full_attention":{"rope_theta":1000000.0,"rope_type":"default"},
    "sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}})");
  EXPECT_EQ(parsed(json).spec, s);
  json.erase("rope_parameters");  // the class's values are these
  EXPECT_EQ(parsed(json).spec, s);
}

TEST(HfWindowedFamiliesTest, Gemma3Variants) {
  Json json = gemma3_1b();
  json["num_hidden_layers"] = 4;
  json["sliding_window_pattern"] = 3;
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(512U, 512U, 0U, 512U));
  EXPECT_THAT(parsed(json).spec.layer_rope,
              ElementsAre(kLocalRope, kLocalRope, kMainRope, kLocalRope));
  json["layer_types"] = {"full_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(0U, 0U, 512U, 0U));
  EXPECT_THAT(parsed(json).spec.layer_rope,
              ElementsAre(kMainRope, kMainRope, kLocalRope, kMainRope));
  // Without windows the layers still rotate differently.
  json["sliding_window"] = nullptr;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  EXPECT_EQ(parsed(json).spec.layer_rope.size(), 4U);
  json["rope_local_base_freq"] = 1000000;
  EXPECT_TRUE(parsed(json).spec.layer_rope.empty()) << "one rope for all layers";
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  EXPECT_EQ(parsed(json).spec.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(parsed(json).spec.local_rope_theta, 1e6F);
  EXPECT_EQ(parsed(json).spec.rope_of(2), LayerRope::kLocal);
  json["attn_logit_softcapping"] = 40.0;
  json["final_logit_softcapping"] = 20.0;
  json["query_pre_attn_scalar"] = 144;
  EXPECT_EQ(parsed(json).spec.attention_soft_cap, 40.0F);
  EXPECT_EQ(parsed(json).spec.logit_soft_cap, 20.0F);
  EXPECT_FLOAT_EQ(parsed(json).spec.attention_scale, 1.0F / 12.0F);
  expect_refused(gemma3_1b(), "use_bidirectional_attention", true);
  json = gemma3_1b();
  json.erase("rope_scaling");
  json["rope_parameters"]["sliding_attention"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(message_of(json), HasSubstr("sliding_attention: rope_type: \"linear\""));
  json["rope_parameters"]["sliding_attention"] = {{"partial_rotary_factor", 0.5}};
  EXPECT_THAT(message_of(json), HasSubstr("partial_rotary_factor"));
  json["rope_parameters"]["sliding_attention"] = 3;
  EXPECT_THAT(message_of(json), HasSubstr("sliding_attention: expected an object"));
  json["rope_parameters"]["sliding_attention"] = nullptr;
  json["rope_parameters"]["full_attention"] = 3;
  EXPECT_THAT(message_of(json), HasSubstr("expected an object"));
}

// The published file leaves out whatever the class has.
TEST(HfWindowedFamiliesTest, Gemma3Of4B) {
  Json json = Json::parse(R"({"architectures":["Gemma3ForConditionalGeneration"],
    "boi_token_index":255999,"eoi_token_index":256000,"eos_token_id":[1,106],
    "image_token_index":262144,"mm_tokens_per_image":256,"model_type":"gemma3","text_config":
    {"hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text",
    "num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},
    "sliding_window":1024},"vision_config":{"hidden_size":1152,"num_hidden_layers":27}})");
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_TRUE(config.multimodal);
  expect_sizes(s, 2560, 34, 8, 4, 256, 10240);
  EXPECT_EQ(s.n_vocab, 262208U);
  EXPECT_EQ(s.max_positions, 131072U);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(s.rope.factor, 8.0F);
  EXPECT_EQ(s.local_rope_theta, 1e4F);
  EXPECT_EQ(s.window_of(0), 1024U);
  EXPECT_EQ(s.window_of(5), 0U);
  EXPECT_THAT(s.eos_ids, ElementsAre(1U, 106U));
  // The 27B scales scores by its width over its heads.
  json["text_config"].update(Json::parse(R"({"head_dim":128,"hidden_size":5376,
    "intermediate_size":21504,"num_attention_heads":32,"num_hidden_layers":62,
    "num_key_value_heads":16,"query_pre_attn_scalar":168})"));
  expect_sizes(parsed(json).spec, 5376, 62, 32, 16, 128, 21504);
  EXPECT_FLOAT_EQ(parsed(json).spec.attention_scale, 1.0F / std::sqrt(168.0F));
  json["text_config"]["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  json["text_config"].erase("rope_scaling");
  EXPECT_EQ(parsed(json).spec.rope.factor, 8.0F);
  EXPECT_EQ(parsed(json).spec.local_rope_theta, 2e4F);
}

Json olmo2_7b() {
  return Json::parse(R"({"architectures":["Olmo2ForCausalLM"],"attention_bias":false,
    "eos_token_id":100257,"hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,
    "max_position_embeddings":4096,"model_type":"olmo2","num_attention_heads":32,
    "num_hidden_layers":32,"num_key_value_heads":32,"pad_token_id":100277,"rms_norm_eps":1e-06,
    "rope_scaling":null,"rope_theta":500000,"tie_word_embeddings":false,"vocab_size":100352})");
}

TEST(HfWindowedFamiliesTest, Olmo2) {
  Json json = olmo2_7b();
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "olmo2");
  expect_sizes(config.spec, 4096, 32, 32, 32, 128, 11008);
  EXPECT_EQ(config.spec.rope.theta, 5e5F);
  EXPECT_FALSE(config.spec.tied_head || config.qkv_bias || config.attn_out_bias);
  EXPECT_TRUE(config.spec.layer_rope.empty() && config.spec.sliding_window.empty());
  json.erase("rms_norm_eps");
  json["attention_bias"] = true;
  EXPECT_FLOAT_EQ(parsed(json).spec.norm_epsilon, 1e-5F);
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias);
}

Json olmo3_7b() {
  Json json = olmo2_7b();
  json.update(Json::parse(R"({"architectures":["Olmo3ForCausalLM"],"model_type":"olmo3",
    "max_position_embeddings":65536,"rope_scaling":{"attention_factor":1.2079441541679836,
    "beta_fast":32.0,"beta_slow":1.0,"factor":8.0,"original_max_position_embeddings":8192,
    "rope_type":"yarn"},"sliding_window":4096,"vocab_size":100278})"));
  return json;
}

TEST(HfWindowedFamiliesTest, Olmo3) {
  Json json = olmo3_7b();
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "olmo2");
  EXPECT_EQ(s.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(s.rope.original_context, 8192U);
  EXPECT_FLOAT_EQ(s.rope.attention_factor, static_cast<float>(0.1 * std::log(8.0) + 1.0));
  EXPECT_EQ(s.local_rope_theta, 5e5F);
  Json other_base = json;
  other_base["rope_theta"] = 1e6;
  EXPECT_EQ(parsed(other_base).spec.rope.theta, 1e6F);
  EXPECT_EQ(parsed(other_base).spec.local_rope_theta, 5e5F);
  for (std::uint32_t layer = 0; layer < 32; ++layer) {
    const bool global = (layer + 1) % 4 == 0;
    EXPECT_EQ(s.window_of(layer), global ? 0U : 4096U) << layer;
    EXPECT_EQ(s.rope_of(layer), global ? LayerRope::kMain : LayerRope::kLocal) << layer;
  }
  // As transformers 5 saves it.
  const Json yarn = json["rope_scaling"];
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"]["full_attention"] = yarn;
  json["rope_parameters"]["full_attention"]["rope_theta"] = 500000;
  json["rope_parameters"]["sliding_attention"] = {{"rope_type", "default"}, {"rope_theta", 500000}};
  EXPECT_EQ(parsed(json).spec, s);
  // Before its context was extended: one rope.
  json["rope_parameters"]["full_attention"] = {{"rope_type", "default"}, {"rope_theta", 500000}};
  EXPECT_TRUE(parsed(json).spec.layer_rope.empty());
  json["rope_parameters"] = nullptr;
  EXPECT_EQ(parsed(json).spec.rope.theta, 5e5F);
}

// transformers writes the older key's parameters over those of the layers that see all.
TEST(HfWindowedFamiliesTest, ScalingBesideParametersByLayer) {
  for (Json json : {gemma3_1b(), olmo3_7b()}) {
    json.erase("rope_theta");
    json["rope_parameters"] = Json::parse(R"({"sliding_attention":{"rope_theta":2e4},
      "full_attention":{"rope_theta":3e5,"rope_type":"default","factor":2.0}})");
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
    ModelSpec s = parsed(json).spec;
    EXPECT_EQ(s.rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(s.rope.factor, 8.0F);
    EXPECT_EQ(s.rope.theta, 3e5F);
    EXPECT_EQ(s.local_rope_theta, 2e4F);
    json["rope_scaling"] = {{"rope_theta", 4e5}, {"rope_type", "linear"}};
    s = parsed(json).spec;
    EXPECT_EQ(s.rope.factor, 2.0F);
    EXPECT_EQ(s.rope.theta, 4e5F);
    json["rope_scaling"] = 3;
    EXPECT_THAT(message_of(json), HasSubstr("rope_scaling: expected an object"));
    json.erase("rope_scaling");
    json["rope_parameters"] = {{"rope_theta", 1e5}, {"rope_type", "default"}};
    EXPECT_THAT(message_of(json), HasSubstr("rope_parameters: parameters for every layer"));
    json["rope_parameters"] = 3;
    EXPECT_THAT(message_of(json), HasSubstr("rope_parameters: expected an object"));
  }
}

Json exaone4_32b() {
  return Json::parse(R"({"architectures":["Exaone4ForCausalLM"],"bos_token_id":1,
    "eos_token_id":361,"head_dim":128,"hidden_act":"silu","hidden_size":5120,
    "intermediate_size":27392,"max_position_embeddings":131072,"model_type":"exaone4",
    "num_attention_heads":40,"num_hidden_layers":64,"num_key_value_heads":8,"pad_token_id":0,
    "rms_norm_eps":1e-05,"rope_scaling":{"factor":16.0,"high_freq_factor":4.0,
    "low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},
    "rope_theta":1000000,"sliding_window":4096,"sliding_window_pattern":"LLLG",
    "tie_word_embeddings":false,"vocab_size":102400})");
}

TEST(HfWindowedFamiliesTest, Exaone4Of32B) {
  Json json = exaone4_32b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "exaone4");
  expect_sizes(s, 5120, 64, 40, 8, 128, 27392);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kLlama3);
  EXPECT_FALSE(config.qkv_bias || config.attn_out_bias || s.tied_head);
  for (std::uint32_t layer = 0; layer < 64; ++layer) {
    const bool global = (layer + 1) % 4 == 0;
    EXPECT_EQ(s.window_of(layer), global ? 0U : 4096U) << layer;
    EXPECT_EQ(s.rope_of(layer), global ? LayerRope::kNone : LayerRope::kMain) << layer;
  }
  json["sliding_window_pattern"] = 4;
  EXPECT_EQ(parsed(json).spec, s);
  json.erase("sliding_window_pattern");
  EXPECT_EQ(parsed(json).spec, s);
}

TEST(HfWindowedFamiliesTest, Exaone4Layers) {
  Json json = exaone4_32b();
  json["num_hidden_layers"] = 4;
  json["sliding_window_pattern"] = "LGL";
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(4096U, 0U, 4096U, 0U));
  json["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(0U, 4096U, 0U, 0U));
  EXPECT_THAT(parsed(json).spec.layer_rope, ElementsAre(kNoRope, kMainRope, kNoRope, kNoRope));
  json.erase("layer_types");
  for (const Json& wrong : {Json(""), Json("LXG"), Json(-1), Json::array()}) {
    json["sliding_window_pattern"] = wrong;
    EXPECT_THAT(message_of(json), HasSubstr("sliding_window_pattern")) << wrong;
  }
  // The 1.2B has no windows, and every layer rotates.
  json["sliding_window_pattern"] = nullptr;
  json["sliding_window"] = nullptr;
  json["layer_types"] = std::vector<std::string>(4, "full_attention");
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  EXPECT_TRUE(parsed(json).spec.layer_rope.empty());
}

TEST(HfWindowedFamiliesTest, Glm4Of9B) {
  Json json = Json::parse(R"({"architectures":["Glm4ForCausalLM"],"attention_bias":true,
    "eos_token_id":[151329,151336,151338],"head_dim":128,"hidden_act":"silu","hidden_size":4096,
    "intermediate_size":13696,"max_position_embeddings":32768,"model_type":"glm4",
    "num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":2,
    "pad_token_id":151329,"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,"rope_theta":10000.0,
    "tie_word_embeddings":false,"vocab_size":151552})");
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "glm4");
  expect_sizes(config.spec, 4096, 40, 32, 2, 128, 13696);
  EXPECT_EQ(config.spec.rope.dims, 64U);
  EXPECT_TRUE(config.qkv_bias && config.spec.gated_ffn);
  EXPECT_FALSE(config.attn_out_bias || config.ffn_bias || config.spec.tied_head);
  const ModelSpec s = config.spec;
  for (const char* key :
       {"head_dim", "num_key_value_heads", "partial_rotary_factor", "attention_bias"}) {
    json.erase(key);
  }
  EXPECT_EQ(parsed(json).spec, s);
  EXPECT_TRUE(parsed(json).qkv_bias);
  json.erase("rms_norm_eps");
  EXPECT_FLOAT_EQ(parsed(json).spec.norm_epsilon, 1.5625e-7F);
  json["attention_bias"] = false;
  EXPECT_FALSE(parsed(json).qkv_bias);
}

Json command_r() {
  return Json::parse(R"({"architectures":["CohereForCausalLM"],"attention_bias":false,
    "bos_token_id":5,"eos_token_id":255001,"hidden_act":"silu","hidden_size":8192,
    "intermediate_size":22528,"layer_norm_eps":1e-05,"logit_scale":0.0625,
    "max_position_embeddings":8192,"model_max_length":131072,"model_type":"cohere",
    "num_attention_heads":64,"num_hidden_layers":40,"num_key_value_heads":64,"pad_token_id":0,
    "rope_theta":8000000.0,"vocab_size":256000})");
}

TEST(HfWindowedFamiliesTest, CommandR) {
  Json json = command_r();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "command-r");
  expect_sizes(s, 8192, 40, 64, 64, 128, 22528);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_EQ(s.activation, Activation::kSilu);
  EXPECT_TRUE(s.parallel_block && s.gated_ffn && s.tied_head);
  EXPECT_EQ(s.logit_scale, 0.0625F);
  EXPECT_EQ(s.rope.theta, 8e6F);
  EXPECT_EQ(s.max_positions, 131072U);
  EXPECT_FALSE(config.qkv_bias || config.attn_out_bias);
  for (const char* key : {"model_max_length", "logit_scale", "rope_theta"}) json.erase(key);
  EXPECT_EQ(parsed(json).spec.max_positions, 8192U);
  EXPECT_EQ(parsed(json).spec.logit_scale, 0.0625F);
  EXPECT_EQ(parsed(json).spec.rope.theta, 5e5F);
  json["attention_bias"] = true;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias);
  EXPECT_FALSE(parsed(json).head_norms);
  json["use_qk_norm"] = true;  // Command-R+
  EXPECT_TRUE(parsed(json).head_norms);
}

TEST(HfWindowedFamiliesTest, CommandR7B) {
  Json json = command_r();
  json.update(Json::parse(R"({"architectures":["Cohere2ForCausalLM"],"model_type":"cohere2",
    "cache_implementation":"hybrid","head_dim":128,"hidden_size":4096,"intermediate_size":14336,
    "layer_switch":4,"logit_scale":0.25,"max_position_embeddings":132096,
    "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,
    "order_of_interleaved_layers":"local_attn_first","position_embedding_type":"rope_gptj",
    "rope_scaling":null,"rope_theta":50000,"rotary_pct":1.0,"sliding_window":4096,
    "sliding_window_pattern":4,"use_embedding_sharing":true,"use_gated_activation":true,
    "use_parallel_block":true,"use_parallel_embedding":false,"use_qk_norm":false})"));
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "cohere2");
  expect_sizes(s, 4096, 32, 32, 8, 128, 14336);
  EXPECT_EQ(s.logit_scale, 0.25F);
  EXPECT_EQ(s.max_positions, 132096U);
  for (std::uint32_t layer = 0; layer < 32; ++layer) {
    const bool global = (layer + 1) % 4 == 0;
    EXPECT_EQ(s.window_of(layer), global ? 0U : 4096U) << layer;
    EXPECT_EQ(s.rope_of(layer), global ? LayerRope::kNone : LayerRope::kMain) << layer;
  }
  json.erase("sliding_window_pattern");
  json.erase("sliding_window");
  EXPECT_EQ(parsed(json).spec, s);
  json.erase("rope_theta");
  EXPECT_EQ(parsed(json).spec.rope.theta, 1e4F);
  json["layer_types"] = std::vector<std::string>(32, "sliding_attention");
  EXPECT_THAT(parsed(json).spec.layer_rope, Each(kMainRope));
  expect_refused(json, "use_qk_norm", true);
  expect_refused(json, "use_parallel_block", false);
  expect_refused(json, "use_gated_activation", false);
  expect_refused(json, "sliding_window", nullptr);
}

TEST(HfWindowedFamiliesTest, WrongTypesAndRangesAreStatuses) {
  Json cohere2 = command_r();
  cohere2["architectures"] = {"Cohere2ForCausalLM"};
  Json glm4 = olmo2_7b();
  glm4["architectures"] = {"Glm4ForCausalLM"};
  for (const Json& base :
       {gemma3_1b(), olmo2_7b(), olmo3_7b(), exaone4_32b(), glm4, command_r(), cohere2}) {
    expect_statuses(base, {"layer_types", "rope_parameters", "sliding_window_pattern"});
  }
}

}  // namespace
}  // namespace qsf
