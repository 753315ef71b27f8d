// SPDX-License-Identifier: MIT
//
// The config.json of published relatives of LLaMA, reduced to the keys that matter, and yarn.

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

Json smollm3_3b() {
  return Json::parse(R"({"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,
    "bos_token_id":null,"eos_token_id":128012,"hidden_act":"silu","hidden_size":2048,
    "intermediate_size":11008,"max_position_embeddings":65536,"max_window_layers":28,
    "mlp_bias":false,"model_type":"smollm3","no_rope_layer_interval":4,"num_attention_heads":16,
    "num_hidden_layers":36,"num_key_value_heads":4,"pad_token_id":128004,"rms_norm_eps":1e-06,
    "rope_scaling":null,"rope_theta":5000000.0,"sliding_window":null,"use_sliding_window":false,
    "vocab_size":128256})");
}

TEST(HfLlamaFamiliesTest, SmolLm3) {
  Json json = smollm3_3b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "smollm3");
  expect_sizes(s, 2048, 36, 16, 4, 128, 11008);
  EXPECT_EQ(s.rope.theta, 5e6F);
  EXPECT_TRUE(s.tied_head && s.gated_ffn);
  EXPECT_TRUE(s.sliding_window.empty());
  ASSERT_EQ(s.layer_rope.size(), 36U);
  for (std::uint32_t layer = 0; layer < 36; ++layer) {
    EXPECT_EQ(s.rope_of(layer), (layer + 1) % 4 == 0 ? LayerRope::kNone : LayerRope::kMain);
  }
  EXPECT_FALSE(config.qkv_bias || config.attn_out_bias || config.ffn_bias);
  json.erase("rope_theta");
  json.erase("num_key_value_heads");
  EXPECT_EQ(parsed(json).spec.rope.theta, 2e6F);
  EXPECT_EQ(parsed(json).spec.n_kv_heads, 4U);
  json["attention_bias"] = true;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias);
  EXPECT_FALSE(parsed(json).ffn_bias);
}

TEST(HfLlamaFamiliesTest, SmolLm3LayersByList) {
  Json json = smollm3_3b();
  json["num_hidden_layers"] = 3;
  json["no_rope_layer_interval"] = 2;
  EXPECT_THAT(parsed(json).spec.layer_rope, ElementsAre(kMainRope, kNoRope, kMainRope));
  json["no_rope_layers"] = {0, 1, 1, 0};  // may be longer
  EXPECT_THAT(parsed(json).spec.layer_rope, ElementsAre(kNoRope, kMainRope, kMainRope));
  json["use_sliding_window"] = true;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  json["sliding_window"] = 77;
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(77U, 0U, 0U));
  json["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(parsed(json).spec.sliding_window, ElementsAre(0U, 77U, 0U));
  json["use_sliding_window"] = false;
  EXPECT_TRUE(parsed(json).spec.sliding_window.empty());
  for (const Json& wrong : {Json({1, 1}), Json({1, 2, 1}), Json({1, "x", 1}), Json("all")}) {
    json["no_rope_layers"] = wrong;
    EXPECT_THAT(message_of(json), HasSubstr("no_rope_layers")) << wrong;
  }
}

TEST(HfLlamaFamiliesTest, Granite4Of3B) {
  Json json = Json::parse(R"({"architectures":["GraniteMoeHybridForCausalLM"],
    "attention_bias":false,"attention_multiplier":0.015625,"bos_token_id":100257,
    "embedding_multiplier":12,"eos_token_id":100257,"hidden_act":"silu","hidden_size":2560,
    "intermediate_size":8192,"logits_scaling":10,"mamba_d_conv":4,"mamba_expand":2,
    "mamba_n_heads":128,"max_position_embeddings":131072,"model_type":"granitemoehybrid",
    "num_attention_heads":40,"num_experts_per_tok":0,"num_hidden_layers":40,
    "num_key_value_heads":8,"num_local_experts":0,"pad_token_id":100256,
    "position_embedding_type":"rope","residual_multiplier":0.22,"rms_norm_eps":1e-05,
    "rope_scaling":null,"rope_theta":10000000,"shared_intermediate_size":8000,
    "tie_word_embeddings":true,"vocab_size":100352})");
  for (int layer = 0; layer < 40; ++layer) json["layer_types"].push_back("attention");
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "granite");
  EXPECT_EQ(config.tensor_table, "granite4");
  expect_sizes(s, 2560, 40, 40, 8, 64, 8000);
  EXPECT_EQ(s.logit_scale, 0.1F);
  EXPECT_EQ(s.residual_scale, 0.22F);
  EXPECT_TRUE(s.layer_rope.empty() && s.tied_head);
  json["position_embedding_type"] = nullptr;
  EXPECT_EQ(parsed(json).spec.rope_of(39), LayerRope::kNone);
  json["layer_types"][7] = "full_attention";
  EXPECT_EQ(parsed(json).spec.n_layers, 40U);
  json["layer_types"][7] = "conv";
  EXPECT_THAT(message_of(json), HasSubstr("layer_types: \"conv\" is not supported"));
  json.erase("layer_types");  // of the class: layers with states
  EXPECT_THAT(message_of(json), HasSubstr("layer_types"));
  json["layer_types"] = std::vector<std::string>(40, "attention");
  json["num_local_experts"] = 62;
  EXPECT_THAT(message_of(json), HasSubstr("num_local_experts: 62"));
}

TEST(HfLlamaFamiliesTest, Granite33Of2B) {
  Json json = Json::parse(R"({"architectures":["GraniteForCausalLM"],"attention_bias":false,
    "attention_multiplier":0.015625,"bos_token_id":0,"embedding_multiplier":12.0,"eos_token_id":0,
    "hidden_act":"silu","hidden_size":2048,"intermediate_size":8192,"logits_scaling":8.0,
    "max_position_embeddings":131072,"mlp_bias":false,"model_type":"granite",
    "num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,"pad_token_id":0,
    "residual_multiplier":0.22,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000000.0,
    "tie_word_embeddings":true,"vocab_size":49159})");
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "granite");
  expect_sizes(s, 2048, 40, 32, 8, 64, 8192);
  EXPECT_EQ(s.embedding_scale, 12.0F);
  EXPECT_EQ(s.attention_scale, 0.015625F);
  EXPECT_EQ(s.residual_scale, 0.22F);
  EXPECT_EQ(s.logit_scale, 0.125F);
  EXPECT_TRUE(s.tied_head);
  // The class's multiplier of scores is 1, not one over the root of the head's width.
  for (const char* key : {"attention_multiplier", "embedding_multiplier", "residual_multiplier",
                          "logits_scaling", "tie_word_embeddings"}) {
    json.erase(key);
  }
  EXPECT_EQ(parsed(json).spec.attention_scale, 1.0F);
  EXPECT_EQ(parsed(json).spec.embedding_scale, 1.0F);
  EXPECT_EQ(parsed(json).spec.residual_scale, 1.0F);
  EXPECT_EQ(parsed(json).spec.logit_scale, 1.0F);
  EXPECT_FALSE(parsed(json).spec.tied_head);
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias && parsed(json).ffn_bias);
  json["logits_scaling"] = 0;
  EXPECT_THAT(message_of(json), HasSubstr("logits_scaling"));
}

Json mistral_small_31() {
  return Json::parse(R"({"architectures":["Mistral3ForConditionalGeneration"],
    "image_token_index":10,"model_type":"mistral3","projector_hidden_act":"gelu",
    "spatial_merge_size":2,"text_config":{"attention_dropout":0.0,"head_dim":128,
    "hidden_act":"silu","hidden_size":5120,"intermediate_size":32768,
    "max_position_embeddings":131072,"model_type":"mistral","num_attention_heads":32,
    "num_hidden_layers":40,"num_key_value_heads":8,"rms_norm_eps":1e-05,
    "rope_theta":1000000000.0,"sliding_window":null,"vocab_size":131072},
    "vision_config":{"hidden_size":1024,"num_hidden_layers":24},"vision_feature_layer":-1})");
}

TEST(HfLlamaFamiliesTest, MistralSmall31) {
  Json json = mistral_small_31();
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "mistral");
  expect_sizes(config.spec, 5120, 40, 32, 8, 128, 32768);
  EXPECT_EQ(config.spec.n_vocab, 131072U);
  EXPECT_EQ(config.spec.rope.theta, 1e9F);
  EXPECT_TRUE(config.spec.sliding_window.empty());
  EXPECT_TRUE(config.multimodal);
  EXPECT_TRUE(config.spec.eos_ids.empty());
  // A token of the whole model comes before one of its text model.
  json["text_config"]["bos_token_id"] = 1;
  json["text_config"]["eos_token_id"] = 2;
  EXPECT_EQ(parsed(json).spec.bos_id, 1U);
  EXPECT_THAT(parsed(json).spec.eos_ids, ElementsAre(2U));
  json["eos_token_id"] = {5, 6};
  EXPECT_THAT(parsed(json).spec.eos_ids, ElementsAre(5U, 6U));
  json["text_config"]["model_type"] = "mistral4";
  EXPECT_THAT(message_of(json), HasSubstr("text_config: model_type: \"mistral4\""));
  json["text_config"] = "mistral";
  EXPECT_THAT(message_of(json), HasSubstr("text_config: expected an object"));
  json.erase("text_config");
  EXPECT_THAT(message_of(json), HasSubstr("text_config: expected an object"));
  json = mistral_small_31();
  json["text_config"]["vocab_size"] = 0;
  EXPECT_THAT(message_of(json), HasSubstr("text_config: vocab_size"));
  for (const bool inside : {false, true}) {
    json = mistral_small_31();
    (inside ? json["text_config"] : json)["quantization_config"] = {{"quant_method", "fp8"}};
    EXPECT_THAT(message_of(json), HasSubstr("quantization_config: method \"fp8\""));
  }
}

Json ministral3_8b() {
  Json json = mistral_small_31();
  json["text_config"] = Json::parse(R"({"attention_dropout":0.0,"head_dim":128,
    "hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
    "max_position_embeddings":262144,"model_type":"ministral3","num_attention_heads":32,
    "num_hidden_layers":34,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_parameters":
    {"beta_fast":32.0,"beta_slow":1.0,"factor":16.0,"llama_4_scaling_beta":0.1,"mscale":1.0,
    "mscale_all_dim":1.0,"original_max_position_embeddings":16384,"rope_theta":1000000.0,
    "rope_type":"yarn","type":"yarn"},"sliding_window":null,"vocab_size":131072})");
  return json;
}

TEST(HfLlamaFamiliesTest, Ministral3) {
  Json json = ministral3_8b();
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "mistral3");
  expect_sizes(s, 4096, 34, 32, 8, 128, 14336);
  EXPECT_EQ(s.max_positions, 262144U);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_EQ(s.rope.factor, 16.0F);
  EXPECT_EQ(s.rope.original_context, 16384U);
  EXPECT_EQ(s.rope.attention_factor, 1.0F);
  EXPECT_EQ(s.query_position_scale, 0.1F);
  // The same text model alone, and with the class's defaults.
  Json text = json["text_config"];
  text["architectures"] = {"Ministral3ForCausalLM"};
  ModelSpec alone = parsed(text).spec;
  EXPECT_FALSE(parsed(text).multimodal);
  EXPECT_EQ(alone.source, "Hugging Face Ministral3ForCausalLM");
  alone.source = s.source;
  EXPECT_EQ(alone, s);
  for (const char* key : {"rope_parameters", "head_dim", "rms_norm_eps", "sliding_window"}) {
    text.erase(key);
  }
  ModelSpec defaults = parsed(text).spec;
  defaults.source = s.source;
  EXPECT_EQ(defaults, s);
  text["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  EXPECT_EQ(parsed(text).spec.query_position_scale, 0.0F);
  EXPECT_EQ(parsed(text).spec.rope.scaling, RopeScaling::kNone);
  text["rope_parameters"]["llama_4_scaling_beta"] = "x";
  EXPECT_THAT(message_of(text), HasSubstr("llama_4_scaling_beta"));
  // The class of 2024, whose layers see windows, is another one.
  text["architectures"] = {"MinistralForCausalLM"};
  EXPECT_THAT(message_of(text), HasSubstr("\"MinistralForCausalLM\" is not supported"));
}

TEST(HfLlamaFamiliesTest, Phi4) {
  Json json = Json::parse(R"({"architectures":["Phi3ForCausalLM"],"attention_bias":false,
    "bos_token_id":100257,"eos_token_id":100265,"hidden_act":"silu","hidden_size":5120,
    "intermediate_size":17920,"max_position_embeddings":16384,"model_type":"phi3",
    "num_attention_heads":40,"num_hidden_layers":40,"num_key_value_heads":10,
    "original_max_position_embeddings":16384,"pad_token_id":100349,"rms_norm_eps":1e-05,
    "rope_scaling":null,"rope_theta":250000,"sliding_window":null,"tie_word_embeddings":false,
    "vocab_size":100352})");
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.architecture, "phi3");
  expect_sizes(s, 5120, 40, 40, 10, 128, 17920);
  EXPECT_EQ(s.rope.theta, 250000.0F);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kNone);
  EXPECT_TRUE(s.sliding_window.empty());
  // Phi-4-mini: three quarters of each head rotate, by longrope.
  json.update(Json::parse(R"({"full_attn_mod":1,"hidden_size":3072,"intermediate_size":8192,
    "interpolate_factor":1,"lm_head_bias":false,"max_position_embeddings":131072,"mlp_bias":false,
    "num_attention_heads":24,"num_hidden_layers":32,"num_key_value_heads":8,
    "original_max_position_embeddings":4096,"partial_rotary_factor":0.75,"rope_theta":10000.0,
    "sliding_window":262144,"tie_word_embeddings":true,"vocab_size":200064,
    "bos_token_id":199999,"eos_token_id":199999,"pad_token_id":199999})"));
  json["rope_scaling"] = {{"type", "longrope"},
                          {"short_factor", std::vector<double>(48, 1.0)},
                          {"long_factor", std::vector<double>(48, 1.5)}};
  const ModelSpec mini = parsed(json).spec;
  expect_sizes(mini, 3072, 32, 24, 8, 128, 8192);
  EXPECT_EQ(mini.rope.dims, 96U);
  EXPECT_EQ(mini.rope.scaling, RopeScaling::kLongrope);
  EXPECT_EQ(mini.rope.long_factors.size(), 48U);
  EXPECT_TRUE(mini.tied_head);
}

TEST(HfLlamaFamiliesTest, InternLm2) {
  Json json = Json::parse(R"({"architectures":["InternLM2ForCausalLM"],
    "attn_implementation":"eager","auto_map":{"AutoConfig":"configuration_internlm2.InternLM2Config"},
    "bias":false,"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":2048,
    "intermediate_size":8192,"max_position_embeddings":32768,"model_type":"internlm2",
    "num_attention_heads":16,"num_hidden_layers":24,"num_key_value_heads":8,"pad_token_id":2,
    "rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":1000000,"tie_word_embeddings":false,
    "vocab_size":92544})");
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.spec.architecture, "internlm2");
  expect_sizes(config.spec, 2048, 24, 16, 8, 128, 8192);
  EXPECT_EQ(config.spec.rope.theta, 1e6F);
  EXPECT_FALSE(config.qkv_bias || config.attn_out_bias || config.ffn_bias);
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parsed(json).spec.rope.scaling, RopeScaling::kLinear);
  // As the published chat models have it.
  json["rope_scaling"]["type"] = "dynamic";
  const HfConfig dynamic = parsed(json);
  EXPECT_EQ(dynamic.spec, config.spec);
  EXPECT_THAT(dynamic.warnings, ElementsAre(HasSubstr("the context ends at the 32768 positions")));
  json["rope_scaling"].erase("factor");
  EXPECT_THAT(message_of(json), HasSubstr("factor"));
  json["rope_scaling"] = nullptr;
  json.erase("bias");
  EXPECT_TRUE(parsed(json).qkv_bias && parsed(json).attn_out_bias);
}

// yarn, as users add it to a Qwen and as newer files have it.

Json qwen3_with_yarn() {
  return Json::parse(R"({"architectures":["Qwen3ForCausalLM"],"head_dim":128,"hidden_size":1024,
    "intermediate_size":3072,"max_position_embeddings":40960,"num_attention_heads":16,
    "num_hidden_layers":28,"num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_theta":1000000,
    "rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768},
    "tie_word_embeddings":true,"vocab_size":151936})");
}

TEST(HfLlamaFamiliesTest, Yarn) {
  Json json = qwen3_with_yarn();
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(s.rope.factor, 4.0F);
  EXPECT_EQ(s.rope.original_context, 32768U);
  EXPECT_EQ(s.rope.beta_fast, 32.0F);
  EXPECT_EQ(s.rope.beta_slow, 1.0F);
  EXPECT_TRUE(s.rope.truncate);
  EXPECT_FLOAT_EQ(s.rope.attention_factor, static_cast<float>(0.1 * std::log(4.0) + 1.0));
  EXPECT_EQ(s.max_positions, 131072U) << "four times the original context";
  // All keys, in the older spelling of the type; a zero is as good as none.
  Json& rope = json["rope_scaling"];
  rope.erase("rope_type");
  rope.update(Json::parse(R"({"type":"yarn","beta_fast":0,"beta_slow":null,"mscale":0})"));
  EXPECT_EQ(parsed(json).spec.rope, s.rope);
  rope.update(Json::parse(R"({"beta_fast":48,"beta_slow":2.5,"truncate":false,"mscale":0.707,
    "mscale_all_dim":1.25})"));
  const RopeSpec all = parsed(json).spec.rope;
  EXPECT_EQ(all.beta_fast, 48.0F);
  EXPECT_EQ(all.beta_slow, 2.5F);
  EXPECT_FALSE(all.truncate);
  const double l = 0.1 * std::log(4.0);
  EXPECT_FLOAT_EQ(all.attention_factor, static_cast<float>((0.707 * l + 1) / (1.25 * l + 1)));
  rope.erase("mscale");  // one alone does not count
  EXPECT_FLOAT_EQ(parsed(json).spec.rope.attention_factor, static_cast<float>(l + 1));
  rope["attention_factor"] = 0.5;
  EXPECT_EQ(parsed(json).spec.rope.attention_factor, 0.5F);
}

TEST(HfLlamaFamiliesTest, YarnContexts) {
  Json json = qwen3_with_yarn();
  // Beside the sizes the original context counts more; it is the model's own where there is none.
  json["original_max_position_embeddings"] = 8192;
  EXPECT_EQ(parsed(json).spec.rope.original_context, 8192U);
  EXPECT_EQ(parsed(json).spec.max_positions, 40960U);
  json.erase("original_max_position_embeddings");
  json["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(parsed(json).spec.rope.original_context, 40960U);
  EXPECT_EQ(parsed(json).spec.max_positions, 163840U);
  // Without a factor, by how much the context is longer.
  json["rope_scaling"]["original_max_position_embeddings"] = 5120;
  json["rope_scaling"].erase("factor");
  EXPECT_EQ(parsed(json).spec.rope.factor, 8.0F);
  json["rope_scaling"]["factor"] = 1e30;
  EXPECT_EQ(parsed(json).spec.max_positions, 1U << 24);
  for (const char* key : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                          "truncate", "attention_factor", "original_max_position_embeddings"}) {
    for (const Json& wrong : {Json(-1), Json("x")}) {
      Json broken = qwen3_with_yarn();
      broken["rope_scaling"][key] = wrong;
      EXPECT_THAT(message_of(broken), HasSubstr(std::string("rope_scaling: ") + key)) << wrong;
    }
  }
}

TEST(HfLlamaFamiliesTest, FurtherTokensAreCounted) {
  Json json = qwen3_with_yarn();
  EXPECT_EQ(parsed(json).n_mtp_layers, 0U);
  json["num_nextn_predict_layers"] = 1;
  EXPECT_EQ(parsed(json).n_mtp_layers, 1U);
  json["num_nextn_predict_layers"] = -1;
  EXPECT_THAT(message_of(json), HasSubstr("num_nextn_predict_layers"));
}

TEST(HfLlamaFamiliesTest, WrongTypesAndRangesAreStatuses) {
  Json ministral = ministral3_8b()["text_config"];
  ministral["architectures"] = {"Ministral3ForCausalLM"};
  for (const Json& base : {smollm3_3b(), ministral, mistral_small_31(), qwen3_with_yarn()}) {
    expect_statuses(base, {"no_rope_layers", "layer_types", "num_nextn_predict_layers", "bias",
                           "rope_parameters", "embedding_multiplier", "logits_scaling"});
  }
}

}  // namespace
}  // namespace qsf
