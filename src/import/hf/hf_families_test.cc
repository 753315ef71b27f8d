// SPDX-License-Identifier: MIT
//
// The config.json of published models, reduced to the keys that matter, as their authors wrote
// them: what becomes of each family, and which of its variants are refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "import/hf/hf_config.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

const char* kPhi2Config = R"({"architectures":["PhiForCausalLM"],"bos_token_id":50256,
  "eos_token_id":50256,"hidden_act":"gelu_new","hidden_size":2560,"intermediate_size":10240,
  "layer_norm_eps":1e-05,"max_position_embeddings":2048,"model_type":"phi",
  "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
  "partial_rotary_factor":0.4,"qk_layernorm":false,"rope_scaling":null,"rope_theta":10000.0,
  "tie_word_embeddings":false,"vocab_size":51200})";

TEST(HfFamiliesTest, Phi2) {
  const HfConfig config = parsed(Json::parse(kPhi2Config));
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "phi2");
  expect_sizes(s, 2560, 32, 32, 32, 80, 10240);
  EXPECT_EQ(s.rope.dims, 32U);
  EXPECT_TRUE(s.parallel_block);
  EXPECT_FALSE(s.gated_ffn || s.tied_head);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_FLOAT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_TRUE(config.qkv_bias && config.attn_out_bias && config.ffn_bias);
  expect_refused(Json::parse(kPhi2Config), "qk_layernorm", true);
  expect_refused(Json::parse(kPhi2Config), "hidden_act", "silu");
  Json json = Json::parse(kPhi2Config);
  json.erase("partial_rotary_factor");
  EXPECT_EQ(parsed(json).spec.rope.dims, 40U);
  json["partial_rotary_factor"] = 0.19;  // 15 columns
  EXPECT_THAT(message_of(json), HasSubstr("is 15, expected an even number"));
  for (const Json& wrong : {Json(0), Json(1.5), Json(-0.5), Json("half")}) {
    json["partial_rotary_factor"] = wrong;
    EXPECT_THAT(message_of(json), HasSubstr("partial_rotary_factor"));
  }
}

Json phi3_mini_4k() {
  return Json::parse(R"({"architectures":["Phi3ForCausalLM"],"attention_bias":false,
    "bos_token_id":1,"eos_token_id":32000,"hidden_act":"silu","hidden_size":3072,
    "intermediate_size":8192,"max_position_embeddings":4096,"model_type":"phi3",
    "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
    "original_max_position_embeddings":4096,"pad_token_id":32000,"rms_norm_eps":1e-05,
    "rope_scaling":null,"rope_theta":10000.0,"sliding_window":2047,"tie_word_embeddings":false,
    "vocab_size":32064})");
}
Json phi3_mini_128k() {
  Json json = phi3_mini_4k();
  json["max_position_embeddings"] = 131072;
  json["sliding_window"] = 262144;
  json["rope_scaling"] = {{"type", "longrope"}};
  for (int i = 0; i < 48; ++i) {
    json["rope_scaling"]["short_factor"].push_back(1.0 + 0.03 * i);
    json["rope_scaling"]["long_factor"].push_back(1.07 + i);
  }
  return json;
}

TEST(HfFamiliesTest, Phi3Mini4k) {
  const ModelSpec s = parsed(phi3_mini_4k()).spec;
  EXPECT_EQ(s.architecture, "phi3");
  expect_sizes(s, 3072, 32, 32, 32, 96, 8192);
  EXPECT_THAT(s.sliding_window, ElementsAre(2047U));
  EXPECT_EQ(s.rope.dims, 0U);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(s.rope.attention_factor, 1.0F);
  EXPECT_TRUE(s.gated_ffn);
  Json json = phi3_mini_4k();
  json["sliding_window"] = nullptr;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  json["partial_rotary_factor"] = 0.75;  // as Phi-4-mini has it
  EXPECT_EQ(parsed(json).spec.rope.dims, 72U);
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
    expect_refused(phi3_mini_4k(), key, true);
  }
  json["architectures"] = {"Phi3SmallForCausalLM"};
  EXPECT_THAT(message_of(json), HasSubstr("\"Phi3SmallForCausalLM\""));
}

TEST(HfFamiliesTest, Phi3Mini128k) {
  Json json = phi3_mini_128k();
  const RopeSpec rope = parsed(json).spec.rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kLongrope);
  EXPECT_EQ(rope.original_context, 4096U);
  ASSERT_EQ(rope.short_factors.size(), 48U);
  EXPECT_FLOAT_EQ(rope.short_factors[1], 1.03F);
  EXPECT_FLOAT_EQ(rope.long_factors[1], 2.07F);
  EXPECT_FLOAT_EQ(rope.attention_factor,
                  static_cast<float>(std::sqrt(1.0 + std::log(32.0) / std::log(4096.0))));
  for (const char* older : {"su", "yarn"}) {
    json["rope_scaling"]["type"] = older;
    EXPECT_EQ(parsed(json).spec.rope, rope) << older;
  }
  json["rope_scaling"].erase("type");
  json["rope_scaling"]["rope_type"] = "longrope";
  EXPECT_EQ(parsed(json).spec.rope, rope);
  // The original context may stand among the parameters; beside the sizes it counts more.
  json["rope_scaling"]["original_max_position_embeddings"] = 8192;
  EXPECT_EQ(parsed(json).spec.rope.original_context, 4096U);
  json.erase("original_max_position_embeddings");
  EXPECT_EQ(parsed(json).spec.rope.original_context, 8192U);
  json["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(parsed(json).spec.rope.original_context, 4096U);
  json["rope_scaling"]["factor"] = 1.0;
  EXPECT_EQ(parsed(json).spec.rope.attention_factor, 1.0F);
  json["rope_scaling"]["attention_factor"] = 1.25;
  EXPECT_EQ(parsed(json).spec.rope.attention_factor, 1.25F);
}

TEST(HfFamiliesTest, LongropeParametersAreChecked) {
  for (const char* key : {"short_factor", "long_factor"}) {
    for (const Json& wrong : {Json(), Json(1.0), Json::array({1.0, "x"}), Json::array({1.0}),
                              Json(std::vector<double>(48, 0.0))}) {
      Json json = phi3_mini_128k();
      json["rope_scaling"][key] = wrong;
      EXPECT_FALSE(parse(json)) << key << " = " << wrong.dump();
    }
  }
  for (const Json& wrong : {Json(0), Json(1), Json("4k")}) {
    Json json = phi3_mini_128k();
    json["original_max_position_embeddings"] = wrong;
    EXPECT_THAT(message_of(json), HasSubstr("original_max_position_embeddings"));
  }
  for (const char* type : {"ntk", "proportional"}) {
    Json json = phi3_mini_128k();
    json["rope_scaling"]["type"] = type;
    EXPECT_THAT(message_of(json), HasSubstr(type));
  }
}

TEST(HfFamiliesTest, Qwen25Of500M) {
  const HfConfig config = parsed(Json::parse(R"({"architectures":["Qwen2ForCausalLM"],
    "bos_token_id":151643,"eos_token_id":151643,"hidden_act":"silu","hidden_size":896,
    "intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":24,
    "model_type":"qwen2","num_attention_heads":14,"num_hidden_layers":24,"num_key_value_heads":2,
    "rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,
    "use_mrope":false,"use_sliding_window":false,"vocab_size":151936})"));
  EXPECT_EQ(config.spec.architecture, "qwen2");
  expect_sizes(config.spec, 896, 24, 14, 2, 64, 4864);
  EXPECT_EQ(config.spec.rope.theta, 1e6F);
  EXPECT_TRUE(config.spec.tied_head && config.spec.sliding_window.empty());
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.attn_out_bias || config.ffn_bias);
}

TEST(HfFamiliesTest, Qwen3Of600M) {
  Json json = Json::parse(R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,
    "bos_token_id":151643,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu",
    "hidden_size":1024,"intermediate_size":3072,"max_position_embeddings":40960,
    "max_window_layers":28,"model_type":"qwen3","num_attention_heads":16,"num_hidden_layers":28,
    "num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,
    "sliding_window":null,"tie_word_embeddings":true,"use_sliding_window":false,
    "vocab_size":151936})");
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "qwen3");
  expect_sizes(config.spec, 1024, 28, 16, 8, 128, 3072);
  EXPECT_FALSE(config.qkv_bias || config.attn_out_bias);
  json.erase("head_dim");
  EXPECT_EQ(parsed(json).spec.head_dim, 128U);
  json["attention_bias"] = true;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias);
  // Windows where they are switched on and have a length.
  json["use_sliding_window"] = true;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  json["sliding_window"] = 512;
  json["max_window_layers"] = 27;
  EXPECT_EQ(parsed(json).spec.window_of(26), 0U);
  EXPECT_EQ(parsed(json).spec.window_of(27), 512U);
  json.erase("sliding_window");
  json.erase("max_window_layers");
  json["num_hidden_layers"] = 29;
  EXPECT_EQ(parsed(json).spec.window_of(27), 0U);
  EXPECT_EQ(parsed(json).spec.window_of(28), 4096U);
  json.erase("num_key_value_heads");
  EXPECT_THAT(message_of(json), HasSubstr("num_key_value_heads: missing"));
  json["num_attention_heads"] = 32;
  EXPECT_EQ(parsed(json).spec.n_kv_heads, 32U);
}

Json opt_125m() {
  return Json::parse(R"({"_remove_final_layer_norm":false,"activation_function":"relu",
    "architectures":["OPTForCausalLM"],"bos_token_id":2,"do_layer_norm_before":true,
    "eos_token_id":2,"ffn_dim":3072,"hidden_size":768,"max_position_embeddings":2048,
    "model_type":"opt","num_attention_heads":12,"num_hidden_layers":12,"pad_token_id":1,
    "vocab_size":50272,"word_embed_proj_dim":768})");
}

TEST(HfFamiliesTest, Opt125m) {
  const HfConfig config = parsed(opt_125m());
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "opt");
  expect_sizes(s, 768, 12, 12, 12, 64, 3072);
  EXPECT_EQ(s.max_positions, 2048U);
  EXPECT_EQ(s.positions, PositionEncoding::kLearned);
  EXPECT_EQ(s.activation, Activation::kRelu);
  EXPECT_FLOAT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_TRUE(s.tied_head);
  EXPECT_FALSE(s.gated_ffn || s.parallel_block);
  EXPECT_TRUE(config.qkv_bias && config.attn_out_bias && config.ffn_bias);
  Json json = opt_125m();
  json["enable_bias"] = false;
  json["activation_function"] = "gelu";
  json.erase("word_embed_proj_dim");
  EXPECT_EQ(parsed(json).spec.activation, Activation::kGeluErf);
  EXPECT_FALSE(parsed(json).qkv_bias || parsed(json).attn_out_bias || parsed(json).ffn_bias);
  expect_refused(opt_125m(), "_remove_final_layer_norm", true);
  expect_refused(opt_125m(), "layer_norm_elementwise_affine", false);
  expect_refused(opt_125m(), "word_embed_proj_dim", 512);
}

TEST(HfFamiliesTest, Opt350mIsRefused) {
  Json json = opt_125m();
  json["hidden_size"] = 1024;
  json["ffn_dim"] = 4096;
  json["num_attention_heads"] = 16;
  json["num_hidden_layers"] = 24;
  json["word_embed_proj_dim"] = 512;
  expect_refused(json, "do_layer_norm_before", false);
}

TEST(HfFamiliesTest, Bloom560m) {
  Json json = Json::parse(R"({"apply_residual_connection_post_layernorm":false,
    "architectures":["BloomForCausalLM"],"bos_token_id":1,"eos_token_id":2,
    "layer_norm_epsilon":1e-05,"model_type":"bloom","n_embed":1024,"n_inner":null,"n_layer":24,
    "num_attention_heads":16,"offset_alibi":100,"pad_token_id":3,"pretraining_tp":1,
    "unk_token_id":0,"vocab_size":250880})");
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "bloom");
  expect_sizes(s, 1024, 24, 16, 16, 64, 4096);
  EXPECT_EQ(s.positions, PositionEncoding::kAlibi);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_EQ(s.max_positions, 2048U);
  EXPECT_TRUE(s.tied_head);
  EXPECT_TRUE(config.qkv_bias && config.attn_out_bias && config.ffn_bias);
  // Later files spell the sizes in other ways.
  Json later = json;
  for (const char* key : {"n_embed", "n_layer", "num_attention_heads"}) later.erase(key);
  later["hidden_size"] = 1024;
  later["num_hidden_layers"] = 24;
  later["n_head"] = 16;
  later["seq_length"] = 1024;
  expect_sizes(parsed(later).spec, 1024, 24, 16, 16, 64, 4096);
  EXPECT_EQ(parsed(later).spec.max_positions, 1024U);
  later.erase("hidden_size");
  EXPECT_THAT(message_of(later), HasSubstr("hidden_size: missing"));
  expect_refused(json, "apply_residual_connection_post_layernorm", true);
}

Json gemma_2b() {
  return Json::parse(R"({"architectures":["GemmaForCausalLM"],"attention_bias":false,
    "bos_token_id":2,"eos_token_id":1,"head_dim":256,"hidden_act":"gelu","hidden_size":2048,
    "intermediate_size":16384,"max_position_embeddings":8192,"model_type":"gemma",
    "num_attention_heads":8,"num_hidden_layers":18,"num_key_value_heads":1,"pad_token_id":0,
    "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":10000.0,"vocab_size":256000})");
}

TEST(HfFamiliesTest, Gemma2b) {
  Json json = gemma_2b();
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "gemma");
  expect_sizes(config.spec, 2048, 18, 8, 1, 256, 16384);
  EXPECT_EQ(config.spec.activation, Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(config.spec.embedding_scale, std::sqrt(2048.0F));
  EXPECT_TRUE(config.spec.tied_head && config.spec.gated_ffn);
  EXPECT_EQ(config.spec.attention_scale, 0.0F);
  EXPECT_FALSE(config.qkv_bias || config.attn_out_bias);
  json.erase("head_dim");
  json.erase("hidden_act");
  EXPECT_EQ(parsed(json).spec.head_dim, 256U);
  EXPECT_EQ(parsed(json).spec.activation, Activation::kGeluTanh);
  json["attention_bias"] = true;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias);
  expect_refused(gemma_2b(), "hidden_act", "silu");
  expect_refused(gemma_2b(), "use_bidirectional_attention", true);
}

TEST(HfFamiliesTest, Gemma22b) {
  Json json = gemma_2b();
  json.erase("hidden_act");
  json.update(Json::parse(R"({"architectures":["Gemma2ForCausalLM"],
    "attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,
    "hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,"intermediate_size":9216,
    "num_hidden_layers":26,"num_key_value_heads":4,"query_pre_attn_scalar":256,
    "sliding_window":4096})"));
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "gemma2");
  expect_sizes(s, 2304, 26, 8, 4, 256, 9216);
  EXPECT_EQ(s.attention_soft_cap, 50.0F);
  EXPECT_EQ(s.logit_soft_cap, 30.0F);
  EXPECT_EQ(s.attention_scale, 1.0F / 16.0F);
  EXPECT_FLOAT_EQ(s.embedding_scale, 48.0F);
  ASSERT_EQ(s.sliding_window.size(), 26U);
  EXPECT_EQ(s.window_of(0), 4096U);
  EXPECT_EQ(s.window_of(1), 0U);
  EXPECT_EQ(s.window_of(24), 4096U);
  // The defaults are these numbers; null switches a cap off.
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window",
                          "query_pre_attn_scalar", "hidden_activation", "num_key_value_heads"}) {
    json.erase(key);
  }
  EXPECT_EQ(parsed(json).spec, s);
  json["attn_logit_softcapping"] = nullptr;
  json["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(parsed(json).spec.attention_soft_cap, 0.0F);
  EXPECT_EQ(parsed(json).spec.logit_soft_cap, 0.0F);
  json["query_pre_attn_scalar"] = 144;
  EXPECT_FLOAT_EQ(parsed(json).spec.attention_scale, 1.0F / 12.0F);
  json["num_hidden_layers"] = 2;
  json["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(0U, 4096U));
  json["sliding_window"] = nullptr;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  json["hidden_activation"] = "gelu";  // here it means what it says
  EXPECT_EQ(parsed(json).spec.activation, Activation::kGeluErf);
}

TEST(HfFamiliesTest, SmolLm2Of135M) {
  const HfConfig config = parsed(Json::parse(R"({"architectures":["LlamaForCausalLM"],
    "attention_bias":false,"bos_token_id":0,"eos_token_id":0,"hidden_act":"silu",
    "hidden_size":576,"intermediate_size":1536,"is_llama_config":true,
    "max_position_embeddings":8192,"mlp_bias":false,"model_type":"llama","num_attention_heads":9,
    "num_hidden_layers":30,"num_key_value_heads":3,"pretraining_tp":1,"rms_norm_eps":1e-05,
    "rope_interleaved":false,"rope_scaling":null,"rope_theta":100000,"tie_word_embeddings":true,
    "vocab_size":49152})"));
  EXPECT_EQ(config.spec.architecture, "llama");
  expect_sizes(config.spec, 576, 30, 9, 3, 64, 1536);
  EXPECT_EQ(config.spec.rope.theta, 1e5F);
  EXPECT_TRUE(config.spec.tied_head);
}

Json stablelm_3b() {
  return Json::parse(R"({"architectures":["StableLmForCausalLM"],"bos_token_id":0,
    "eos_token_id":0,"hidden_act":"silu","hidden_size":2560,"intermediate_size":6912,
    "layer_norm_eps":1e-05,"max_position_embeddings":4096,"model_type":"stablelm",
    "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
    "partial_rotary_factor":0.25,"rope_theta":10000,"tie_word_embeddings":false,
    "use_qkv_bias":false,"vocab_size":50304})");
}

TEST(HfFamiliesTest, StableLm) {
  Json json = stablelm_3b();
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "stablelm");
  expect_sizes(config.spec, 2560, 32, 32, 32, 80, 6912);
  EXPECT_EQ(config.spec.rope.dims, 20U);
  EXPECT_EQ(config.spec.norm, NormType::kLayerNorm);
  EXPECT_EQ(config.spec.activation, Activation::kSilu);
  EXPECT_TRUE(config.spec.gated_ffn);
  EXPECT_FALSE(config.qkv_bias || config.attn_out_bias || config.ffn_bias);
  EXPECT_FALSE(config.spec.parallel_block || config.spec.tied_head);
  // Of StableLM 2 1.6B.
  json.update(Json::parse(R"({"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,
    "use_qkv_bias":true,"vocab_size":100352,"eos_token_id":100257})"));
  json.erase("partial_rotary_factor");
  EXPECT_TRUE(parsed(json).qkv_bias);
  EXPECT_EQ(parsed(json).spec.rope.dims, 16U);
  // Of StableLM 2 12B, but for the norms of queries and keys that it has.
  json["use_parallel_residual"] = true;
  EXPECT_TRUE(parsed(json).spec.parallel_block);
  expect_refused(json, "qk_layernorm", true);
}

// Every family, with values of every wrong kind under every key: a Status that names the file.
TEST(HfFamiliesTest, WrongTypesAndRangesAreStatuses) {
  Json gemma2 = gemma_2b();
  gemma2["architectures"] = {"Gemma2ForCausalLM"};
  Json bloom = Json::parse(R"({"architectures":["BloomForCausalLM"],"n_embed":32,"n_layer":2,
    "num_attention_heads":4,"vocab_size":9})");
  Json qwen3 = phi3_mini_4k();
  qwen3["architectures"] = {"Qwen3ForCausalLM"};
  const std::vector<Json> bases = {Json::parse(kPhi2Config),
                                   phi3_mini_4k(),
                                   phi3_mini_128k(),
                                   qwen3,
                                   opt_125m(),
                                   bloom,
                                   gemma_2b(),
                                   gemma2,
                                   stablelm_3b()};
  for (const Json& base : bases) {
    expect_statuses(
        base, {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar",
               "layer_types", "hidden_activation", "seq_length", "n_head", "enable_bias",
               "use_qkv_bias", "use_parallel_residual", "rope_parameters", "use_sliding_window"});
  }
}

}  // namespace
}  // namespace qsf
