// SPDX-License-Identifier: MIT
//
// The config.json of published Gemma 4 models, whose layers have heads of their own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "import/hf/hf_config.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

Json gemma4_types(std::uint32_t n_layers) {
  Json types = Json::array();
  for (std::uint32_t layer = 1; layer <= n_layers; ++layer) {
    types.push_back(layer % 6 == 0 ? "full_attention" : "sliding_attention");
  }
  return types;
}

Json gemma4_31b() {
  Json text = Json::parse(R"({"attention_bias":false,"attention_dropout":0.0,
    "attention_k_eq_v":true,"bos_token_id":2,"enable_moe_block":false,"eos_token_id":1,
    "final_logit_softcapping":30.0,"global_head_dim":512,"head_dim":256,
    "hidden_activation":"gelu_pytorch_tanh","hidden_size":5376,"hidden_size_per_layer_input":0,
    "intermediate_size":21504,"max_position_embeddings":262144,"model_type":"gemma4_text",
    "num_attention_heads":32,"num_global_key_value_heads":4,"num_hidden_layers":60,
    "num_key_value_heads":16,"num_kv_shared_layers":0,"pad_token_id":0,"rms_norm_eps":1e-06,
    "rope_parameters":{"full_attention":{"partial_rotary_factor":0.25,"rope_theta":1000000.0,
    "rope_type":"proportional"},"sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}},
    "sliding_window":1024,"tie_word_embeddings":true,"use_bidirectional_attention":"vision",
    "use_double_wide_mlp":false,"vocab_size":262144,"vocab_size_per_layer_input":262144})");
  text["layer_types"] = gemma4_types(60);
  return {{"architectures", {"Gemma4ForConditionalGeneration"}},
          {"model_type", "gemma4"},
          {"eos_token_id", {1, 106}},
          {"text_config", text}};
}

Json gemma4_text() {
  Json json = gemma4_31b()["text_config"];
  json["architectures"] = {"Gemma4ForCausalLM"};
  return json;
}

TEST(HfGemma4Test, Gemma4Of31B) {
  const HfConfig config = parsed(gemma4_31b());
  const ModelSpec& s = config.spec;
  EXPECT_TRUE(config.multimodal);
  EXPECT_EQ(s.architecture, "gemma4");
  expect_sizes(s, 5376, 60, 32, 16, 512, 21504);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(s.embedding_scale, std::sqrt(5376.0F));
  EXPECT_EQ(s.attention_scale, 1.0F);
  EXPECT_EQ(s.logit_soft_cap, 30.0F);
  EXPECT_TRUE(s.tied_head && s.gated_ffn && s.value_norms);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_EQ(s.rope.n_turning, 64U);
  EXPECT_EQ(s.rope.dims, 0U);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(s.local_rope_theta, 1e4F);
  for (std::uint32_t layer = 0; layer < 60; ++layer) {
    const bool global = (layer + 1) % 6 == 0;
    const AttentionShape shape = s.attention_of(layer);
    EXPECT_EQ(shape.head_dim, global ? 512U : 256U) << layer;
    EXPECT_EQ(shape.n_kv_heads, global ? 4U : 16U) << layer;
    EXPECT_EQ(shape.values_are_keys, global) << layer;
    EXPECT_EQ(s.window_of(layer), global ? 0U : 1024U) << layer;
    EXPECT_EQ(s.rope_of(layer), global ? LayerRope::kMain : LayerRope::kLocal) << layer;
  }
}

TEST(HfGemma4Test, ATextModelAndWhatItsFileMayLeaveOut) {
  const ModelSpec whole = parsed(gemma4_31b()).spec;
  Json json = gemma4_text();
  for (const char* key :
       {"global_head_dim", "head_dim", "rope_parameters", "layer_types", "tie_word_embeddings",
        "use_bidirectional_attention", "vocab_size", "hidden_activation", "num_kv_shared_layers"}) {
    json.erase(key);
  }
  ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.source, "Hugging Face Gemma4ForCausalLM");
  s.source = whole.source;
  s.eos_ids = whole.eos_ids;
  EXPECT_EQ(s, whole);
}

TEST(HfGemma4Test, SizesOfEachLayerAsTransformersSavesThem) {
  const ModelSpec whole = parsed(gemma4_text()).spec;
  Json json = gemma4_text();
  json.erase("global_head_dim");
  json.erase("num_global_key_value_heads");
  for (std::uint32_t layer = 5; layer < 60; layer += 6) {
    json["per_layer_config"][std::to_string(layer)] = {{"head_dim", 512},
                                                       {"num_key_value_heads", 4}};
  }
  EXPECT_EQ(parsed(json).spec, whole);
  json["per_layer_config"]["5"]["head_dim"] = 256;
  EXPECT_THAT(message_of(json), HasSubstr("heads by layer"));
}

TEST(HfGemma4Test, LayersAlikeHaveNoListOfHeads) {
  Json json = gemma4_text();
  json["global_head_dim"] = 256;
  json["attention_k_eq_v"] = false;  // and with it the global layers' own number of heads
  const ModelSpec s = parsed(json).spec;
  EXPECT_THAT(s.layer_heads, IsEmpty());
  EXPECT_THAT(s.key_value_layers, IsEmpty());
  expect_sizes(s, 5376, 60, 32, 16, 256, 21504);
  EXPECT_EQ(s.rope.n_turning, 32U);
}

TEST(HfGemma4Test, Gemma4Of26BHasExpertsBesideTheFfn) {
  Json json = gemma4_text();
  json.update(Json::parse(R"({"enable_moe_block":true,"hidden_size":2816,"intermediate_size":2112,
    "moe_intermediate_size":704,"num_attention_heads":16,"num_experts":128,
    "num_global_key_value_heads":2,"num_hidden_layers":30,"num_key_value_heads":8,
    "top_k_experts":8})"));
  json["layer_types"] = gemma4_types(30);
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "gemma4moe");
  expect_sizes(s, 2816, 30, 16, 8, 512, 2112);
  EXPECT_TRUE(s.experts_beside_ffn && s.expert_renormalised);
  EXPECT_EQ(s.n_experts, 128U);
  EXPECT_EQ(s.n_experts_used, 8U);
  EXPECT_EQ(s.expert_ffn, 704U);
  EXPECT_EQ(s.widest_ffn(), 2112U);
  Json wrong = json;
  wrong["top_k_experts"] = 129;
  EXPECT_THAT(message_of(wrong), HasSubstr("top_k_experts"));
  wrong = json;
  wrong.erase("moe_intermediate_size");
  EXPECT_THAT(message_of(wrong), HasSubstr("moe_intermediate_size"));
  expect_statuses(json, {});
}

Json gemma4_e2b() {
  Json json = gemma4_text();
  json.update(Json::parse(R"({"attention_k_eq_v":false,"hidden_size":1536,
    "hidden_size_per_layer_input":256,"intermediate_size":6144,"max_position_embeddings":131072,
    "num_attention_heads":8,"num_global_key_value_heads":null,"num_hidden_layers":35,
    "num_key_value_heads":1,"num_kv_shared_layers":20,"sliding_window":512,
    "use_double_wide_mlp":true})"));
  json["layer_types"] = Json::array();
  for (std::uint32_t layer = 1; layer <= 35; ++layer) {
    json["layer_types"].push_back(layer % 5 == 0 ? "full_attention" : "sliding_attention");
  }
  return json;
}

TEST(HfGemma4Test, Gemma4E2BSharesKeysAndHasInputsOfEachLayer) {
  const ModelSpec s = parsed(gemma4_e2b()).spec;
  EXPECT_EQ(s.architecture, "gemma4");
  expect_sizes(s, 1536, 35, 8, 1, 512, 12288);
  EXPECT_EQ(s.layer_input_dim, 256U);
  EXPECT_EQ(s.n_kv_layers(), 15U);
  for (std::uint32_t layer = 0; layer < 35; ++layer) {
    const std::uint32_t shared = (layer + 1) % 5 == 0 ? 14 : 13;
    EXPECT_EQ(s.attention_of(layer).kv_layer, layer < 15 ? layer : shared) << layer;
    EXPECT_EQ(s.ffn_of(layer), layer < 15 ? 6144U : 12288U) << layer;
    EXPECT_EQ(s.attention_of(layer).head_dim, (layer + 1) % 5 == 0 ? 512U : 256U) << layer;
  }
  Json narrow = gemma4_e2b();
  narrow["use_double_wide_mlp"] = false;
  EXPECT_THAT(parsed(narrow).spec.layer_ffn, IsEmpty());
  Json experts = gemma4_e2b();
  experts.update(Json::parse(R"({"enable_moe_block":true,"num_experts":8,"top_k_experts":2,
    "moe_intermediate_size":64})"));
  EXPECT_THAT(message_of(experts), HasSubstr("are not supported with experts"));
  expect_statuses(gemma4_e2b(), {});
}

TEST(HfGemma4Test, TheLastLayerSeesEverything) {
  Json json = gemma4_text();
  json["layer_types"][59] = "sliding_attention";
  EXPECT_EQ(parsed(json).spec.window_of(59), 0U);
}

TEST(HfGemma4Test, RefusesWhatItsGraphDoesNotHave) {
  const Json json = gemma4_text();
  expect_refused(json, "use_bidirectional_attention", "all");
  expect_refused(json, "attention_bias", true);
  Json inputs = json;
  inputs["hidden_size_per_layer_input"] = 256;
  inputs["vocab_size_per_layer_input"] = 262400;
  EXPECT_THAT(message_of(inputs), HasSubstr("vocab_size_per_layer_input: 262400 is not supported"));
  Json sharing = json;
  sharing["num_kv_shared_layers"] = 60;
  EXPECT_THAT(message_of(sharing), HasSubstr("num_kv_shared_layers"));
  sharing["num_kv_shared_layers"] = 55;
  EXPECT_THAT(message_of(sharing), HasSubstr("num_kv_shared_layers: shared keys and values"));
  Json rope = json;
  rope["rope_parameters"]["full_attention"]["rope_type"] = "yarn";
  EXPECT_THAT(message_of(rope), HasSubstr("rope_type: \"yarn\" is not supported"));
  rope = json;
  rope["rope_parameters"].erase("full_attention");
  EXPECT_THAT(message_of(rope), HasSubstr("rope_parameters: expected objects"));
  rope = json;
  rope["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 0.001;
  EXPECT_THAT(message_of(rope), HasSubstr("partial_rotary_factor"));
  Json heads = json;
  heads["num_global_key_value_heads"] = 5;
  EXPECT_THAT(message_of(heads), HasSubstr("5 key-value heads"));
}

TEST(HfGemma4Test, AnyValueOfAnyKeyGivesAStatus) {
  expect_statuses(gemma4_text(), {"per_layer_config"});
}

}  // namespace
}  // namespace qsf
