// SPDX-License-Identifier: MIT
//
// config.json and its companions: what becomes of every value, and what is refused by name.

#include "import/hf/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "import/testing/hf_folder.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

Json llama() {
  return Json::parse(kTinyLlamaConfig);
}
Json gpt2() {
  return Json::parse(kTinyGpt2Config);
}
Json named(const char* architecture) {
  Json json = llama();
  json["architectures"] = {architecture};
  return json;
}

TEST(HfConfigTest, Llama) {
  const auto config = parse(llama());
  ASSERT_TRUE(config) << config.error().message();
  const ModelSpec& s = config->spec;
  EXPECT_EQ(s.architecture, "llama");
  EXPECT_EQ(s.hidden, 16U);
  EXPECT_EQ(s.ffn, 20U);
  EXPECT_EQ(s.n_layers, 2U);
  EXPECT_EQ(s.n_heads, 4U);
  EXPECT_EQ(s.n_kv_heads, 2U);
  EXPECT_EQ(s.head_dim, 4U);
  EXPECT_EQ(s.n_vocab, 33U);
  EXPECT_EQ(s.max_positions, 64U);
  EXPECT_EQ(s.activation, Activation::kSilu);
  EXPECT_TRUE(s.gated_ffn);
  EXPECT_TRUE(s.tied_head);
  EXPECT_EQ(s.norm, NormType::kRmsNorm);
  EXPECT_FLOAT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.positions, PositionEncoding::kRope);
  EXPECT_EQ(s.rope.theta, 10000.0F);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(s.bos_id, 1U);
  EXPECT_THAT(s.eos_ids, ElementsAre(2U));
  EXPECT_FALSE(config->qkv_bias || config->attn_out_bias || config->ffn_bias);
}

TEST(HfConfigTest, LlamaVariants) {
  Json json = llama();
  json.erase("num_key_value_heads");
  EXPECT_EQ(parse(json)->spec.n_kv_heads, 4U);
  json["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parse(json)->spec.n_kv_heads, 4U);
  json["head_dim"] = 6;
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  json["pad_token_id"] = -1;
  json["rope_theta"] = 500000;
  const auto config = parse(json);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->spec.head_dim, 6U);
  EXPECT_TRUE(config->qkv_bias && config->attn_out_bias && config->ffn_bias);
  EXPECT_FALSE(config->spec.pad_id.has_value());
  EXPECT_EQ(config->spec.rope.theta, 500000.0F);
  json.erase("tie_word_embeddings");
  EXPECT_FALSE(parse(json)->spec.tied_head);
}

TEST(HfConfigTest, RopeScaling) {
  Json json = llama();
  json["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(json)->spec.rope.scaling, RopeScaling::kNone);
  json["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(parse(json)->spec.rope.scaling, RopeScaling::kNone);
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(parse(json)->spec.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(parse(json)->spec.rope.factor, 4.0F);
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 32}};
  json["rope_scaling"] = llama3;
  EXPECT_EQ(parse(json)->spec.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(parse(json)->spec.rope.original_context, 32U);
  EXPECT_EQ(parse(json)->spec.rope.high_freq_factor, 4.0F);
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    Json broken = json;
    broken["rope_scaling"].erase(key);
    EXPECT_THAT(message_of(broken), HasSubstr(key));
    broken["rope_scaling"][key] = "x";
    EXPECT_THAT(message_of(broken), HasSubstr(key));
  }
  for (const char* type : {"ntk", "proportional"}) {
    json["rope_scaling"] = {{"type", type}, {"factor", 2.0}};
    EXPECT_EQ(parse(json).error().code(), StatusCode::kUnsupported);
    EXPECT_THAT(message_of(json), HasSubstr(type));
  }
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 0.5}};
  EXPECT_THAT(message_of(json), HasSubstr("factor"));
  json["rope_scaling"] = 3;
  EXPECT_THAT(message_of(json), HasSubstr("rope_scaling"));
  // The newer spelling holds theta as well.
  json.erase("rope_scaling");
  json["rope_parameters"] = llama3;
  json["rope_parameters"]["rope_theta"] = 777.0;
  EXPECT_EQ(parse(json)->spec.rope.theta, 777.0F);
  EXPECT_EQ(parse(json)->spec.rope.scaling, RopeScaling::kLlama3);
  json["rope_parameters"]["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(message_of(json), HasSubstr("partial_rotary_factor"));
  // Of both spellings the older one counts, unless it is empty.
  json["rope_parameters"] = {{"rope_type", "default"}};
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parse(json)->spec.rope.scaling, RopeScaling::kLinear);
  json["rope_scaling"] = Json::object();
  EXPECT_EQ(parse(json)->spec.rope.scaling, RopeScaling::kNone);
  // Not as if nothing were said about theta.
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 1e6}}}};
  EXPECT_EQ(parse(json).error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(message_of(json), HasSubstr("\"full_attention\""));
}

TEST(HfConfigTest, MistralWindows) {
  Json json = named("MistralForCausalLM");
  EXPECT_THAT(parse(json)->spec.sliding_window, ElementsAre(4096U));  // the class's default
  EXPECT_EQ(parse(json)->spec.architecture, "mistral");
  json["sliding_window"] = nullptr;
  EXPECT_TRUE(parse(json)->spec.sliding_window.empty());
  json["sliding_window"] = 32;
  EXPECT_THAT(parse(json)->spec.sliding_window, ElementsAre(32U));
  json["layer_types"] = {"sliding_attention", "sliding_attention"};
  EXPECT_THAT(parse(json)->spec.sliding_window, ElementsAre(32U, 32U));
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(parse(json).error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(message_of(json), HasSubstr("layer_types"));
  json.erase("layer_types");
  json["sliding_window"] = 0;
  EXPECT_THAT(message_of(json), HasSubstr("sliding_window"));
  json.erase("num_key_value_heads");
  EXPECT_THAT(message_of(json), HasSubstr("num_key_value_heads"));
}

TEST(HfConfigTest, Qwen2Windows) {
  Json json = named("Qwen2ForCausalLM");
  json["sliding_window"] = 32;
  json["max_window_layers"] = 1;
  ASSERT_TRUE(parse(json)) << message_of(json);
  EXPECT_TRUE(parse(json)->qkv_bias);
  EXPECT_FALSE(parse(json)->attn_out_bias);
  EXPECT_TRUE(parse(json)->spec.sliding_window.empty());
  json["use_sliding_window"] = true;
  EXPECT_THAT(parse(json)->spec.sliding_window, ElementsAre(0U, 32U));
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(parse(json)->spec.sliding_window, ElementsAre(32U, 0U));
  json["layer_types"] = {"sliding_attention"};
  EXPECT_THAT(message_of(json), HasSubstr("layer_types"));
  json["layer_types"] = {"chunked_attention", "full_attention"};
  EXPECT_THAT(message_of(json), HasSubstr("chunked_attention"));
}

TEST(HfConfigTest, Gpt2) {
  Json json = gpt2();
  const auto config = parse(json);
  ASSERT_TRUE(config) << config.error().message();
  const ModelSpec& s = config->spec;
  EXPECT_EQ(s.architecture, "gpt2");
  EXPECT_EQ(s.ffn, 40U);
  EXPECT_EQ(s.head_dim, 4U);
  EXPECT_EQ(s.n_kv_heads, 3U);
  EXPECT_EQ(s.activation, Activation::kGeluTanh);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_FLOAT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.positions, PositionEncoding::kLearned);
  EXPECT_TRUE(s.tied_head);
  EXPECT_FALSE(s.gated_ffn);
  json["n_inner"] = nullptr;
  EXPECT_EQ(parse(json)->spec.ffn, 48U);
  json["activation_function"] = "gelu";
  EXPECT_EQ(parse(json)->spec.activation, Activation::kGeluErf);
  json["activation_function"] = "gelu_pytorch_tanh";
  EXPECT_EQ(parse(json)->spec.activation, Activation::kGeluTanh);
  json["activation_function"] = "relu";
  EXPECT_EQ(parse(json)->spec.activation, Activation::kRelu);
  for (const char* refused : {"silu", "tanh"}) {
    json["activation_function"] = refused;
    EXPECT_THAT(message_of(json), HasSubstr(refused));
  }
  json = gpt2();
  json["scale_attn_weights"] = false;
  EXPECT_THAT(message_of(json), HasSubstr("scale_attn_weights"));
  json = gpt2();
  json["scale_attn_by_inverse_layer_idx"] = true;
  EXPECT_THAT(message_of(json), HasSubstr("scale_attn_by_inverse_layer_idx"));
}

TEST(HfConfigTest, RefusesByName) {
  EXPECT_THAT(message_of(named("MambaForCausalLM")), HasSubstr("\"MambaForCausalLM\""));
  EXPECT_THAT(message_of(named("MambaForCausalLM")), HasSubstr("LlamaForCausalLM"));
  Json json = llama();
  json["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_THAT(message_of(json), HasSubstr("quantization_config"));
  json = llama();
  json["hidden_act"] = "gelu";
  EXPECT_THAT(message_of(json), HasSubstr("hidden_act"));
}

TEST(HfConfigTest, LeavesOutSpecialTokensBeyondTheVocabulary) {
  Json json = llama();
  json["bos_token_id"] = 33;
  json["eos_token_id"] = {2, 34};
  json["pad_token_id"] = 35;
  const auto config = parse(json);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_FALSE(config->spec.bos_id.has_value());
  EXPECT_THAT(config->spec.eos_ids, ElementsAre(2U));
  EXPECT_FALSE(config->spec.pad_id.has_value());
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("config.json: bos_token_id 33"),
                                            HasSubstr("config.json: eos_token_id 34"),
                                            HasSubstr("config.json: pad_token_id 35")));
}

// Every key that is read, with values of every wrong kind: a Status that names the file, never
// more.
TEST(HfConfigTest, WrongTypesAndRangesAreStatuses) {
  const Json wrong[] = {-1,
                        0,
                        1.5,
                        1e300,
                        "text",
                        true,
                        Json::array(),
                        Json::object(),
                        Json::array({1, "x"}),
                        4294967296,
                        18446744073709551615U};
  for (const Json& base :
       {llama(), gpt2(), named("MistralForCausalLM"), named("Qwen2ForCausalLM")}) {
    std::vector<std::string> keys = {"rope_theta",
                                     "rope_scaling",
                                     "rope_parameters",
                                     "sliding_window",
                                     "head_dim",
                                     "attention_bias",
                                     "pad_token_id",
                                     "layer_types",
                                     "use_sliding_window",
                                     "max_window_layers",
                                     "activation_function",
                                     "layer_norm_epsilon",
                                     "partial_rotary_factor"};
    for (const auto& [key, value] : base.items()) keys.push_back(key);
    for (const std::string& key : keys) {
      for (const Json& value : wrong) {
        Json json = base;
        json[key] = value;
        const auto result = parse(json);
        if (!result) {
          EXPECT_THAT(result.error().message(), HasSubstr("config.json")) << key;
        }
      }
      Json json = base;
      json.erase(key);
      static_cast<void>(parse(json));
    }
  }
  for (const char* key : {"hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size",
                          "num_attention_heads", "max_position_embeddings"}) {
    for (const Json& value : wrong) {
      Json json = llama();
      json[key] = value;
      EXPECT_FALSE(parse(json)) << key << " = " << value.dump();
    }
    Json json = llama();
    json.erase(key);
    EXPECT_THAT(message_of(json), HasSubstr(key));
  }
  const std::string text = llama().dump();
  for (std::size_t n = 0; n < text.size(); ++n) {
    EXPECT_FALSE(parse_hf_config({std::string_view(text).substr(0, n), "", "", ""})) << n;
  }
}

TEST(HfConfigTest, EndTokensOfTheGenerationSettingsComeFirst) {
  const std::string config = llama().dump();
  const auto result = parse_hf_config({config, R"({"eos_token_id":[7,2,9]})", "", ""});
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_THAT(result->spec.eos_ids, ElementsAre(7U, 2U, 9U));
  const auto one = parse_hf_config({config, R"({"eos_token_id":5})", "", ""});
  EXPECT_THAT(one->spec.eos_ids, ElementsAre(5U, 2U));
  const auto beyond = parse_hf_config({config, R"({"eos_token_id":99})", "", ""});
  ASSERT_TRUE(beyond) << beyond.error().message();
  EXPECT_THAT(beyond->spec.eos_ids, ElementsAre(2U));
  EXPECT_THAT(beyond->warnings, ElementsAre(HasSubstr("generation_config.json: eos_token_id 99")));
  const auto bad = parse_hf_config({config, R"({"eos_token_id":"x"})", "", ""});
  EXPECT_THAT(bad.error().message(), HasSubstr("generation_config.json: eos_token_id"));
  EXPECT_FALSE(parse_hf_config({config, "{", "", ""}));
}

TEST(HfConfigTest, ChatTemplates) {
  const std::string config = llama().dump();
  EXPECT_EQ(parse_hf_config({config, "", R"({"chat_template":"A"})", ""})->spec.chat_template, "A");
  EXPECT_EQ(parse_hf_config({config, "", R"({"chat_template":"A"})", "B"})->spec.chat_template,
            "B");
  EXPECT_EQ(parse_hf_config({config, "",
                             R"({"chat_template":[{"name":"tool","template":"T"},
                                                  {"name":"default","template":"D"}]})",
                             ""})
                ->spec.chat_template,
            "D");
  EXPECT_EQ(parse_hf_config({config, "", "{}", ""})->spec.chat_template, "");
  EXPECT_FALSE(parse_hf_config({config, "", R"({"chat_template":3})", ""}));
  EXPECT_FALSE(parse_hf_config({config, "", R"({"chat_template":[{"name":"default"}]})", ""}));
}

TEST(HfConfigTest, ChatTemplatesAreText) {
  const std::string config = llama().dump();
  const auto jinja = parse_hf_config({config, "", "", "{{ x }}\xFF"});
  ASSERT_FALSE(jinja);
  EXPECT_EQ(jinja.error().message(),
            "chat_template.jinja: chat template: byte 7 is NUL or invalid UTF-8; save the file as "
            "UTF-8 text");
  const auto json = parse_hf_config({config, "", R"({"chat_template":"ab\u0000"})", ""});
  ASSERT_FALSE(json);
  EXPECT_THAT(json.error().message(), HasSubstr("tokenizer_config.json: chat template: byte 2"));
}

TEST(HfConfigTest, RopeThetaIsAtLeastOne) {
  Json json = llama();
  json["rope_theta"] = 1;
  EXPECT_TRUE(parse(json)) << message_of(json);
  json["rope_theta"] = 0.5;
  EXPECT_THAT(message_of(json),
              HasSubstr("rope theta: 0.5, expected a finite number of at least 1"));
}

}  // namespace
}  // namespace qsf
