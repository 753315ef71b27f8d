// SPDX-License-Identifier: MIT
//
// The config.json of published Falcon, Pythia, StarCoder2 and MPT models, reduced to the keys that
// matter.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "import/hf/hf_config.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

Json falcon_7b() {
  return Json::parse(R"({"alibi":false,"apply_residual_connection_post_layernorm":false,
    "architectures":["FalconForCausalLM"],"bias":false,"bos_token_id":11,"eos_token_id":11,
    "hidden_dropout":0.0,"hidden_size":4544,"layer_norm_epsilon":1e-05,"model_type":"falcon",
    "multi_query":true,"new_decoder_architecture":false,"num_attention_heads":71,
    "num_hidden_layers":32,"parallel_attn":true,"vocab_size":65024})");
}
Json falcon_40b() {
  Json json = falcon_7b();
  json.erase("multi_query");
  json.update(Json::parse(R"({"hidden_size":8192,"new_decoder_architecture":true,
    "num_attention_heads":128,"num_hidden_layers":60,"num_kv_heads":8})"));
  return json;
}

TEST(HfGptFamiliesTest, Falcon7b) {
  Json json = falcon_7b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "falcon");
  expect_sizes(s, 4544, 32, 71, 1, 64, 18176);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_EQ(s.activation, Activation::kGeluErf);
  EXPECT_EQ(s.positions, PositionEncoding::kRope);
  EXPECT_EQ(s.max_positions, 2048U);
  EXPECT_TRUE(s.parallel_block && s.tied_head);
  EXPECT_FALSE(s.gated_ffn || config.qkv_bias || config.attn_out_bias || config.ffn_bias);
  // As transformers saves it, with a key that these models do not use.
  json.update(Json::parse(R"({"num_kv_heads":71,"num_ln_in_parallel_attn":null,
    "ffn_hidden_size":18176,"activation":"gelu","max_position_embeddings":2048,
    "rope_parameters":{"rope_theta":10000.0,"rope_type":"default"}})"));
  EXPECT_EQ(parsed(json).spec, s);
  json.erase("multi_query");
  EXPECT_EQ(parsed(json).spec, s);
  // A KV head for each query head.
  json["multi_query"] = false;
  EXPECT_EQ(parsed(json).spec.n_kv_heads, 71U);
  json["num_kv_heads"] = 1;
  EXPECT_THAT(message_of(json), HasSubstr("num_kv_heads: 1"));
  json = falcon_7b();
  json["bias"] = true;
  json["parallel_attn"] = false;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias && parsed(json).ffn_bias);
  EXPECT_FALSE(parsed(json).spec.parallel_block);
  expect_refused(falcon_7b(), "num_ln_in_parallel_attn", 2);
  expect_refused(falcon_7b(), "apply_residual_connection_post_layernorm", true);
  expect_refused(falcon_7b(), "activation", "silu");
}

TEST(HfGptFamiliesTest, Falcon40bAnd11b) {
  Json json = falcon_40b();
  EXPECT_EQ(parsed(json).spec.architecture, "falcon-two-norms");
  expect_sizes(parsed(json).spec, 8192, 60, 128, 8, 64, 32768);
  EXPECT_TRUE(parsed(json).spec.parallel_block);
  expect_refused(json, "parallel_attn", false);
  // Falcon 2 11B shares one norm.
  json.update(Json::parse(R"({"ff_factor":4,"hidden_size":4096,"max_position_embeddings":8192,
    "num_attention_heads":32,"num_ln_in_parallel_attn":1,"rope_scaling":null,
    "rope_theta":500042.0,"tie_word_embeddings":false})"));
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "falcon");
  expect_sizes(s, 4096, 60, 32, 8, 128, 16384);
  EXPECT_EQ(s.rope.theta, 500042.0F);
  EXPECT_EQ(s.max_positions, 8192U);
  EXPECT_TRUE(s.parallel_block);
  EXPECT_FALSE(s.tied_head);
}

// The first files of both, with the code of their authors.
TEST(HfGptFamiliesTest, RefinedWeb) {
  const Json seven = Json::parse(R"({"alibi":false,"architectures":["RWForCausalLM"],"bias":false,
    "bos_token_id":11,"eos_token_id":11,"hidden_size":4544,"layer_norm_epsilon":1e-05,
    "model_type":"RefinedWebModel","multi_query":true,"n_head":71,"n_layer":32,
    "parallel_attn":true,"vocab_size":65024})");
  expect_sizes(parsed(seven).spec, 4544, 32, 71, 1, 64, 18176);
  EXPECT_EQ(parsed(seven).spec.architecture, "falcon");
  Json forty = seven;
  forty.erase("multi_query");
  forty.update(Json::parse(R"({"model_type":"RefinedWeb","hidden_size":8192,"n_head":128,
    "n_head_kv":8,"n_layer":60})"));
  expect_sizes(parsed(forty).spec, 8192, 60, 128, 8, 64, 32768);
  EXPECT_EQ(parsed(forty).spec.architecture, "falcon-two-norms");
  Json many = seven;
  many.erase("multi_query");
  EXPECT_EQ(parsed(many).spec.n_kv_heads, 71U) << "absent here means false";
}

// Falcon-RW 1B: ALiBi in place of RoPE, attention before the FFN, biases.
TEST(HfGptFamiliesTest, FalconRwHasAlibi) {
  const Json json = Json::parse(R"({"alibi":true,
    "apply_residual_connection_post_layernorm":false,"architectures":["FalconForCausalLM"],
    "bias":true,"bos_token_id":1,"eos_token_id":2,"hidden_size":2048,"layer_norm_epsilon":1e-05,
    "model_type":"falcon","multi_query":false,"new_decoder_architecture":false,
    "num_attention_heads":32,"num_hidden_layers":24,"parallel_attn":false,"vocab_size":50304})");
  const HfConfig config = parsed(json);
  expect_sizes(config.spec, 2048, 24, 32, 32, 64, 8192);
  EXPECT_EQ(config.spec.architecture, "falcon");
  EXPECT_EQ(config.spec.positions, PositionEncoding::kAlibi);
  EXPECT_TRUE(config.spec.bf16_biases);
  EXPECT_FALSE(config.spec.parallel_block);
  EXPECT_TRUE(config.qkv_bias && config.attn_out_bias && config.ffn_bias);
  Json rotating = json;
  rotating["alibi"] = false;
  EXPECT_FALSE(parsed(rotating).spec.bf16_biases);
}

Json pythia_70m() {
  return Json::parse(R"({"architectures":["GPTNeoXForCausalLM"],"bos_token_id":0,
    "eos_token_id":0,"hidden_act":"gelu","hidden_size":512,"intermediate_size":2048,
    "layer_norm_eps":1e-05,"max_position_embeddings":2048,"model_type":"gpt_neox",
    "num_attention_heads":8,"num_hidden_layers":6,"rotary_emb_base":10000,"rotary_pct":0.25,
    "tie_word_embeddings":false,"use_parallel_residual":true,"vocab_size":50304})");
}

TEST(HfGptFamiliesTest, Pythia70m) {
  Json json = pythia_70m();
  const HfConfig config = parsed(json);
  const ModelSpec s = config.spec;
  EXPECT_EQ(s.architecture, "gptneox");
  expect_sizes(s, 512, 6, 8, 8, 64, 2048);
  EXPECT_EQ(s.rope.dims, 16U);
  EXPECT_EQ(s.rope.theta, 1e4F);
  EXPECT_EQ(s.activation, Activation::kGeluErf);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_TRUE(s.parallel_block);
  EXPECT_FALSE(s.gated_ffn || s.tied_head);
  EXPECT_TRUE(config.qkv_bias && config.attn_out_bias && config.ffn_bias);
  // The class's own values, and as transformers 5 saves them.
  for (const char* key : {"rotary_emb_base", "rotary_pct", "use_parallel_residual"}) {
    json.erase(key);
  }
  EXPECT_EQ(parsed(json).spec, s);
  json["rope_parameters"] = {
      {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}, {"rope_type", "default"}};
  EXPECT_EQ(parsed(json).spec, s);
  json["rope_parameters"]["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(parsed(json).spec.rope_dims(), 64U);
  json = pythia_70m();
  json["rotary_pct"] = 0.5;
  json["rotary_emb_base"] = 25000;
  EXPECT_EQ(parsed(json).spec.rope.dims, 32U);
  EXPECT_EQ(parsed(json).spec.rope.theta, 25000.0F);
  json["use_parallel_residual"] = false;
  EXPECT_FALSE(parsed(json).spec.parallel_block);
  json["attention_bias"] = false;
  EXPECT_FALSE(parsed(json).qkv_bias || parsed(json).attn_out_bias);
  EXPECT_TRUE(parsed(json).ffn_bias);
  expect_refused(pythia_70m(), "hidden_act", "silu");
}

TEST(HfGptFamiliesTest, StarCoder2Of3B) {
  Json json = Json::parse(R"({"architectures":["Starcoder2ForCausalLM"],"bos_token_id":0,
    "eos_token_id":0,"hidden_act":"gelu_pytorch_tanh","hidden_size":3072,
    "intermediate_size":12288,"max_position_embeddings":16384,"mlp_type":"default",
    "model_type":"starcoder2","norm_epsilon":1e-05,"norm_type":"layer_norm",
    "num_attention_heads":24,"num_hidden_layers":30,"num_key_value_heads":2,
    "rope_theta":999999.4420358813,"sliding_window":4096,"use_bias":true,"vocab_size":49152})");
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "starcoder2");
  expect_sizes(config.spec, 3072, 30, 24, 2, 128, 12288);
  EXPECT_EQ(config.spec.activation, Activation::kGeluTanh);
  EXPECT_THAT(config.spec.sliding_window, ElementsAre(4096U));
  EXPECT_TRUE(config.spec.tied_head);
  EXPECT_FALSE(config.spec.gated_ffn || config.spec.parallel_block);
  EXPECT_TRUE(config.qkv_bias && config.attn_out_bias && config.ffn_bias);
  json.erase("sliding_window");
  json.erase("num_key_value_heads");
  json["use_bias"] = false;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  EXPECT_EQ(parsed(json).spec.n_kv_heads, 2U);
  EXPECT_FALSE(parsed(json).qkv_bias || parsed(json).attn_out_bias || parsed(json).ffn_bias);
}

Json mpt_7b() {
  return Json::parse(R"({"architectures":["MPTForCausalLM"],"attn_config":{"alibi":true,
    "alibi_bias_max":8,"attn_impl":"torch","attn_pdrop":0,"attn_type":"multihead_attention",
    "attn_uses_sequence_id":false,"clip_qkv":null,"prefix_lm":false,"qk_ln":false,
    "softmax_scale":null},"d_model":4096,"emb_pdrop":0,"embedding_fraction":1.0,
    "expansion_ratio":4,"init_device":"cpu","learned_pos_emb":true,"logit_scale":null,
    "max_seq_len":2048,"model_type":"mpt","n_heads":32,"n_layers":32,"no_bias":true,
    "norm_type":"low_precision_layernorm","vocab_size":50432})");
}

TEST(HfGptFamiliesTest, Mpt7b) {
  Json json = mpt_7b();
  const HfConfig config = parsed(json);
  const ModelSpec s = config.spec;
  EXPECT_EQ(s.architecture, "mpt");
  expect_sizes(s, 4096, 32, 32, 32, 128, 16384);
  EXPECT_EQ(s.max_positions, 2048U);
  EXPECT_EQ(s.positions, PositionEncoding::kAlibi);
  EXPECT_EQ(s.activation, Activation::kGeluErf);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_EQ(s.attention_scale, 0.0F);
  EXPECT_TRUE(s.tied_head);
  EXPECT_FALSE(s.gated_ffn || config.qkv_bias || config.attn_out_bias || config.ffn_bias);
  for (const char* key : {"attn_config", "expansion_ratio", "no_bias", "norm_type"}) {
    json.erase(key);
  }
  json["architectures"] = {"MptForCausalLM"};
  EXPECT_EQ(parsed(json).spec.ffn, 16384U);
  json["attn_config"]["softmax_scale"] = 0.25;
  EXPECT_EQ(parsed(json).spec.attention_scale, 0.25F);
  json["attn_config"]["clip_qkv"] = 6;
  EXPECT_EQ(parsed(json).spec.qkv_clip, 6.0F);
  const std::pair<const char*, Json> kRefused[] = {
      {"alibi", false}, {"alibi_bias_max", 16},          {"prefix_lm", true},
      {"qk_ln", true},  {"attn_uses_sequence_id", true}, {"attn_type", "grouped_query_attention"}};
  for (const auto& [key, value] : kRefused) {
    json = mpt_7b();
    json["attn_config"][key] = value;
    EXPECT_EQ(parse(json).error().code(), StatusCode::kUnsupported) << key;
    EXPECT_THAT(message_of(json), HasSubstr(std::string("attn_config: ") + key));
  }
  expect_refused(mpt_7b(), "no_bias", false);
  expect_refused(mpt_7b(), "logit_scale", "inv_sqrt_d_model");
  expect_refused(mpt_7b(), "norm_type", "rmsnorm");
}

TEST(HfGptFamiliesTest, WrongTypesAndRangesAreStatuses) {
  Json starcoder = pythia_70m();
  starcoder["architectures"] = {"Starcoder2ForCausalLM"};
  for (const Json& base : {falcon_7b(), falcon_40b(), pythia_70m(), starcoder, mpt_7b()}) {
    expect_statuses(base, {"n_head", "n_head_kv", "num_ln_in_parallel_attn", "ffn_hidden_size",
                           "activation", "rope_parameters", "rope_scaling", "use_bias",
                           "sliding_window", "norm_epsilon", "num_key_value_heads"});
  }
  Json json = mpt_7b();
  for (const Json& wrong : {Json(1), Json("x"), Json(-1), Json::array()}) {
    json["attn_config"] = wrong;
    EXPECT_THAT(message_of(json), HasSubstr("attn_config: expected an object"));
  }
}

}  // namespace
}  // namespace qsf
