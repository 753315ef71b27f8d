// SPDX-License-Identifier: MIT
//
// The config.json of published Gemma 3n models, which have several residual streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "import/hf/hf_config.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

Json gemma3n_text(std::uint32_t n_layers, std::uint32_t ffn, std::uint32_t n_sharing) {
  Json json = Json::parse(R"({"architectures":["Gemma3nForCausalLM"],"altup_active_idx":0,
    "altup_coef_clip":120.0,"altup_correct_scale":true,"altup_lr_multiplier":1.0,
    "altup_num_inputs":4,"attention_bias":false,"attention_dropout":0.0,
    "final_logit_softcapping":30.0,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
    "hidden_size":2048,"hidden_size_per_layer_input":256,"initializer_range":0.02,
    "laurel_rank":64,"max_position_embeddings":32768,"model_type":"gemma3n_text",
    "num_attention_heads":8,"num_key_value_heads":2,"query_pre_attn_scalar":256,
    "rms_norm_eps":1e-06,"rope_local_base_freq":10000.0,"rope_scaling":null,
    "rope_theta":1000000.0,"sliding_window":512,"torch_dtype":"bfloat16","use_cache":true,
    "vocab_size":262400,"vocab_size_per_layer_input":262144})");
  json["num_hidden_layers"] = n_layers;
  json["num_kv_shared_layers"] = n_sharing;
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    json["intermediate_size"].push_back(ffn);
    json["activation_sparsity_pattern"].push_back(layer < 10 ? 0.95 : 0.0);
    json["layer_types"].push_back((layer + 1) % 5 == 0 ? "full_attention" : "sliding_attention");
  }
  return json;
}

Json gemma3n_e2b() {
  Json text = gemma3n_text(30, 8192, 10);
  text.erase("architectures");
  return {{"architectures", {"Gemma3nForConditionalGeneration"}},
          {"model_type", "gemma3n"},
          {"eos_token_id", {1, 106}},
          {"text_config", text}};
}

Json gemma3n_e4b() {
  return gemma3n_text(35, 16384, 15);
}

TEST(HfGemma3nTest, Gemma3nE2B) {
  const HfConfig config = parsed(gemma3n_e2b());
  const ModelSpec& s = config.spec;
  EXPECT_TRUE(config.multimodal);
  EXPECT_EQ(s.architecture, "gemma3n");
  expect_sizes(s, 2048, 30, 8, 2, 256, 8192);
  EXPECT_EQ(s.n_vocab, 262400U);
  EXPECT_EQ(s.layer_input_rows, 262144U);
  EXPECT_EQ(s.layer_input_dim, 256U);
  EXPECT_EQ(s.n_streams, 4U);
  EXPECT_EQ(s.laurel_dim, 64U);
  EXPECT_FLOAT_EQ(s.ffn_cutoff, 1.6448535F);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(s.embedding_scale, std::sqrt(2048.0F));
  EXPECT_EQ(s.attention_scale, 1.0F);
  EXPECT_EQ(s.logit_soft_cap, 30.0F);
  EXPECT_TRUE(s.tied_head && s.gated_ffn && s.value_norms);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_EQ(s.local_rope_theta, 1e4F);
  EXPECT_THAT(s.layer_ffn, IsEmpty());
  for (std::uint32_t layer = 0; layer < 30; ++layer) {
    const bool global = (layer + 1) % 5 == 0;
    EXPECT_EQ(s.window_of(layer), global ? 0U : 512U) << layer;
    EXPECT_EQ(s.rope_of(layer), global ? LayerRope::kMain : LayerRope::kLocal) << layer;
    EXPECT_EQ(s.cuts_gates(layer), layer < 10) << layer;
    EXPECT_EQ(s.attention_of(layer).kv_layer, layer < 20 ? layer : (global ? 19U : 18U)) << layer;
  }
}

TEST(HfGemma3nTest, Gemma3nE4BAndWhatItsFileMayLeaveOut) {
  const ModelSpec whole = parsed(gemma3n_e4b()).spec;
  expect_sizes(whole, 2048, 35, 8, 2, 256, 16384);
  EXPECT_EQ(whole.n_kv_layers(), 20U);
  Json json = gemma3n_e4b();
  for (const char* key :
       {"activation_sparsity_pattern", "altup_active_idx", "altup_correct_scale",
        "altup_num_inputs", "final_logit_softcapping", "head_dim", "hidden_activation",
        "hidden_size_per_layer_input", "laurel_rank", "layer_types", "max_position_embeddings",
        "num_attention_heads", "num_key_value_heads", "num_kv_shared_layers",
        "rope_local_base_freq", "rope_theta", "sliding_window", "vocab_size",
        "vocab_size_per_layer_input"}) {
    json.erase(key);
  }
  json["intermediate_size"] = 16384;
  EXPECT_EQ(parsed(json).spec, whole);
  json["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(parsed(json).spec.logit_soft_cap, 0.0F);
  json["vocab_size_per_layer_input"] = 262400;
  EXPECT_EQ(parsed(json).spec.layer_input_rows, 0U);
}

TEST(HfGemma3nTest, FfnsOfEachLayer) {
  Json json = gemma3n_e4b();
  json["intermediate_size"][3] = 8192;
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.ffn, 16384U);
  EXPECT_EQ(s.ffn_of(3), 8192U);
  EXPECT_EQ(s.ffn_of(4), 16384U);
  json["intermediate_size"][3] = 0;
  EXPECT_THAT(message_of(json), HasSubstr("intermediate_size: 0, expected 1 to"));
  json = gemma3n_e4b();
  json["intermediate_size"].push_back(16384);
  EXPECT_THAT(message_of(json), HasSubstr("intermediate_size: 36 numbers"));
  json["intermediate_size"] = Json::array();
  EXPECT_THAT(message_of(json), HasSubstr("intermediate_size: 0 numbers"));
}

TEST(HfGemma3nTest, SharesOfGatesThatAreCut) {
  Json json = gemma3n_e4b();
  const char* key = "activation_sparsity_pattern";
  json[key] = std::vector<double>(35, 0.0);
  EXPECT_THAT(parsed(json).spec.ffn_cutoff_layers, IsEmpty());
  json[key] = std::vector<double>(35, 0.5);  // the mean
  EXPECT_THAT(parsed(json).spec.ffn_cutoff_layers, Each(1U));
  EXPECT_NEAR(parsed(json).spec.ffn_cutoff, 0.0F, 1e-7F);
  json[key][2] = 0.6;
  EXPECT_THAT(message_of(json), HasSubstr("0.5 in one layer and 0.6 in another"));
  json[key][2] = 1.0;
  EXPECT_THAT(message_of(json), HasSubstr("expected at least 0 and less than 1"));
  json[key][2] = -0.5;
  EXPECT_THAT(message_of(json), HasSubstr("expected at least 0 and less than 1"));
  json[key] = std::vector<double>(34, 0.0);
  EXPECT_THAT(message_of(json), HasSubstr("34 numbers, expected one for each of 35 layers"));
}

TEST(HfGemma3nTest, RefusesWhatItsGraphDoesNotHave) {
  const Json json = gemma3n_e4b();
  expect_refused(json, "altup_active_idx", 1);
  expect_refused(json, "altup_correct_scale", false);
  expect_refused(json, "attention_bias", true);
  expect_refused(json, "vocab_size_per_layer_input", 262401);
  const std::pair<const char*, int> others[] = {
      {"altup_num_inputs", 1},      {"altup_num_inputs", 9},
      {"laurel_rank", 1},           {"hidden_size_per_layer_input", 0},
      {"num_kv_shared_layers", 35}, {"num_kv_shared_layers", 32}};
  for (const auto& [key, value] : others) {
    Json wrong = json;
    wrong[key] = value;
    EXPECT_THAT(message_of(wrong), HasSubstr(key));
  }
  Json few = gemma3n_text(12, 64, 0);  // fewer layers than share by default
  few.erase("num_kv_shared_layers");
  EXPECT_THAT(message_of(few), HasSubstr("num_kv_shared_layers: 15 of 12 layers"));
}

TEST(HfGemma3nTest, AnyValueOfAnyKeyGivesAStatus) {
  expect_statuses(gemma3n_e4b(), {"rope_parameters"});
}

}  // namespace
}  // namespace qsf
