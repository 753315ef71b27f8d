// SPDX-License-Identifier: MIT
//
// Published models of which some layers have a state: their config.json, and where their tensors
// are stored.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

Json lfm2_1b() {
  return Json::parse(R"({"architectures":["Lfm2ForCausalLM"],"block_auto_adjust_ff_dim":true,
    "block_dim":2048,"block_ff_dim":12288,"block_ffn_dim_multiplier":1.0,
    "block_mlp_init_scale":1.0,"block_multiple_of":256,"block_norm_eps":1e-05,
    "block_out_init_scale":1.0,"block_use_swiglu":true,"block_use_xavier_init":true,
    "bos_token_id":1,"conv_L_cache":3,"conv_bias":false,"conv_dim":2048,"conv_dim_out":2048,
    "conv_use_xavier_init":true,"eos_token_id":7,"full_attn_idxs":[2,5,8,10,12,14],
    "hidden_size":2048,"initializer_range":0.02,"max_position_embeddings":128000,
    "model_type":"lfm2","norm_eps":1e-05,"num_attention_heads":32,"num_heads":32,
    "num_hidden_layers":16,"num_key_value_heads":8,"pad_token_id":0,"rope_theta":1000000.0,
    "torch_dtype":"bfloat16","use_cache":true,"use_pos_enc":true,"vocab_size":65536})");
}

TEST(HfStateFamiliesTest, Lfm2Of1B) {
  Json json = lfm2_1b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "lfm2");
  expect_sizes(s, 2048, 16, 32, 8, 64, 8192);
  EXPECT_EQ(s.activation, Activation::kSilu);
  EXPECT_EQ(s.norm, NormType::kRmsNorm);
  EXPECT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_TRUE(s.tied_head && s.gated_ffn);
  EXPECT_FALSE(config.mixer_bias);
  EXPECT_EQ(s.conv_taps, 3U);
  EXPECT_THAT(s.layer_mixers, ElementsAre(1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_THAT(s.eos_ids, ElementsAre(7));
  // As transformers 5 saves it.
  for (const char* key : {"full_attn_idxs", "rope_theta", "block_ff_dim"}) json.erase(key);
  for (int layer = 0; layer < 16; ++layer) {
    json["layer_types"].push_back(
        s.layer_mixers[static_cast<std::size_t>(layer)] == 0 ? "full_attention" : "conv");
  }
  json["intermediate_size"] = 12288;
  json["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  json["tie_word_embeddings"] = true;
  EXPECT_EQ(parsed(json).spec, s);
}

TEST(HfStateFamiliesTest, Lfm2RoundsTheWidthOfItsFfn) {
  Json json = lfm2_1b();
  json["block_ff_dim"] = 1000;
  json["block_multiple_of"] = 64;
  EXPECT_EQ(parsed(json).spec.ffn, 704U) << "666, rounded up";
  json["block_ffn_dim_multiplier"] = 1.5;
  EXPECT_EQ(parsed(json).spec.ffn, 1024U) << "999, rounded up";
  json["block_ffn_dim_multiplier"] = nullptr;
  EXPECT_EQ(parsed(json).spec.ffn, 666U);
  json["block_auto_adjust_ff_dim"] = false;
  EXPECT_EQ(parsed(json).spec.ffn, 1000U);
}

TEST(HfStateFamiliesTest, Lfm2VariantsAndDefaults) {
  Json json = lfm2_1b();
  json["tie_embedding"] = false;
  json["conv_bias"] = true;
  for (const char* key : {"conv_L_cache", "rope_theta", "norm_eps", "num_key_value_heads"}) {
    json.erase(key);
  }
  const HfConfig config = parsed(json);
  EXPECT_FALSE(config.spec.tied_head);
  EXPECT_TRUE(config.mixer_bias);
  EXPECT_EQ(config.spec.conv_taps, 3U);
  EXPECT_EQ(config.spec.rope.theta, 1e6F);
  EXPECT_EQ(config.spec.n_kv_heads, 8U);
  // Without a list all layers attend.
  json.erase("full_attn_idxs");
  EXPECT_THAT(parsed(json).spec.layer_mixers, IsEmpty());
  EXPECT_EQ(parsed(json).spec.conv_taps, 0U);
}

TEST(HfStateFamiliesTest, Lfm2RefusesWhatItDoesNotRun) {
  expect_refused(lfm2_1b(), "layer_types", std::vector<std::string>(16, "conv"));
  expect_refused(lfm2_1b(), "layer_types", std::vector<std::string>(16, "sliding_attention"));
  Json json = lfm2_1b();
  json["layer_types"] = {"conv", "full_attention"};
  EXPECT_THAT(message_of(json), HasSubstr("layer_types: expected a list of 16, one a layer"));
  json = lfm2_1b();
  json["full_attn_idxs"] = {3, 16};
  EXPECT_THAT(message_of(json), HasSubstr("full_attn_idxs: 16, expected a layer below 16"));
  json["full_attn_idxs"] = 3;
  EXPECT_THAT(message_of(json), HasSubstr("full_attn_idxs: 3, expected a list"));
  json["full_attn_idxs"] = Json::array();
  EXPECT_THAT(message_of(json), HasSubstr("no layer is full_attention"));
  json = lfm2_1b();
  json["conv_L_cache"] = 1;
  EXPECT_THAT(message_of(json), HasSubstr("conv_L_cache"));
  json = lfm2_1b();
  json["block_ffn_dim_multiplier"] = 1e30;
  EXPECT_THAT(message_of(json), HasSubstr("block_ff_dim: the FFN would have"));
}

Json lfm2_8b_a1b() {
  Json json = Json::parse(R"({"architectures":["Lfm2MoeForCausalLM"],"bos_token_id":1,
    "conv_L_cache":3,"conv_bias":false,"dtype":"bfloat16","eos_token_id":7,"hidden_size":2048,
    "initializer_range":0.02,"intermediate_size":7168,"max_position_embeddings":128000,
    "model_type":"lfm2_moe","moe_intermediate_size":1792,"norm_eps":1e-05,"norm_topk_prob":true,
    "num_attention_heads":32,"num_dense_layers":2,"num_experts":32,"num_experts_per_tok":4,
    "num_hidden_layers":24,"num_key_value_heads":8,"pad_token_id":0,"rope_theta":1000000.0,
    "routed_scaling_factor":1.0,"use_cache":true,"use_expert_bias":true,"vocab_size":65536})");
  for (int layer = 0; layer < 24; ++layer) {
    json["layer_types"].push_back(layer % 4 == 2 ? "full_attention" : "conv");
  }
  return json;
}

TEST(HfStateFamiliesTest, Lfm2MoeOf8B) {
  Json json = lfm2_8b_a1b();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "lfm2moe");
  expect_sizes(s, 2048, 24, 32, 8, 64, 7168);
  EXPECT_EQ(s.n_experts, 32U);
  EXPECT_EQ(s.n_experts_used, 4U);
  EXPECT_EQ(s.expert_ffn, 1792U);
  EXPECT_EQ(s.shared_ffn, 0U);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(s.expert_renormalised && s.tied_head);
  EXPECT_EQ(s.expert_epsilon, 1e-6F);
  EXPECT_EQ(s.expert_scale, 1.0F);
  EXPECT_TRUE(config.router_correction);
  EXPECT_EQ(s.conv_taps, 3U);
  EXPECT_EQ(s.rope.theta, 1e6F);
  EXPECT_FALSE(s.has_experts(1));
  EXPECT_TRUE(s.has_experts(2));
  EXPECT_EQ(s.mixer_of(2), LayerMixer::kAttention);
  EXPECT_EQ(s.mixer_of(3), LayerMixer::kShortConv);
  for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                          "num_dense_layers", "routed_scaling_factor", "norm_topk_prob",
                          "use_expert_bias", "conv_L_cache", "rope_theta"}) {
    json.erase(key);
  }
  EXPECT_EQ(parsed(json).spec, s) << "by default";
  json["norm_topk_prob"] = false;
  json["use_expert_bias"] = false;
  json["num_dense_layers"] = 0;
  json["routed_scaling_factor"] = 2.5;
  const HfConfig other = parsed(json);
  EXPECT_FALSE(other.router_correction || other.spec.expert_renormalised);
  EXPECT_EQ(other.spec.expert_epsilon, 0.0F);
  EXPECT_EQ(other.spec.expert_scale, 2.5F);
  EXPECT_THAT(other.spec.expert_layers, IsEmpty());
}

TEST(HfStateFamiliesTest, Lfm2MoeRefusesWhatItDoesNotRun) {
  Json json = lfm2_8b_a1b();
  json.erase("layer_types");
  EXPECT_THAT(message_of(json), HasSubstr("layer_types: missing"));
  const std::pair<const char*, Json> wrong[] = {
      {"num_experts", 1},       {"num_experts", 4096},        {"num_experts_per_tok", 33},
      {"num_dense_layers", 24}, {"moe_intermediate_size", 0}, {"routed_scaling_factor", -1},
      {"num_experts", 3},       {"use_expert_bias", "yes"}};
  for (const auto& [key, value] : wrong) {
    json = lfm2_8b_a1b();
    if (value == 3) json.erase("num_experts_per_tok");
    json[key] = value;
    EXPECT_FALSE(parse(json)) << key << ' ' << value;
  }
}

TEST(HfStateFamiliesTest, Lfm2VlHasATextModel) {
  for (const Json& text : {lfm2_1b(), lfm2_8b_a1b()}) {
    Json json = Json::parse(R"({"architectures":["Lfm2VlForConditionalGeneration"],
      "downsample_factor":2,"image_token_id":396,"model_type":"lfm2_vl","projector_bias":true,
      "projector_hidden_act":"gelu","projector_hidden_size":2560,
      "vision_config":{"hidden_size":1152,"model_type":"siglip2_vision_model"}})");
    json["text_config"] = text;
    const HfConfig config = parsed(json);
    EXPECT_TRUE(config.multimodal);
    ModelSpec alone = parsed(text).spec;
    alone.source = config.spec.source;
    EXPECT_EQ(config.spec, alone);
    json["text_config"]["model_type"] = "qwen2";
    EXPECT_THAT(message_of(json), HasSubstr("text_config: model_type: \"qwen2\""));
    json.erase("text_config");
    EXPECT_THAT(message_of(json), HasSubstr("text_config: expected an object"));
  }
}

TEST(HfStateFamiliesTest, AnyValueGivesAStatus) {
  expect_statuses(lfm2_1b(), {"layer_types", "intermediate_size", "tie_embedding", "head_dim"});
  expect_statuses(lfm2_8b_a1b(), {"tie_embedding", "head_dim"});
}

// Two layers of a model of 12 columns, 3 heads and 7 rows of an FFN.
TEST(HfStateFamiliesTest, Lfm2HasAConvolutionInPlaceOfAttention) {
  const TensorShapes shapes = {{"model.embed_tokens.weight", {9, 12}},
                               {"model.layers.0.operator_norm.weight", {12}},
                               {"model.layers.0.conv.in_proj.weight", {36, 12}},
                               {"model.layers.0.conv.in_proj.bias", {36}},
                               {"model.layers.0.conv.conv.weight", {12, 1, 4}},
                               {"model.layers.0.conv.conv.bias", {12}},
                               {"model.layers.0.conv.out_proj.weight", {12, 12}},
                               {"model.layers.0.conv.out_proj.bias", {12}},
                               {"model.layers.0.ffn_norm.weight", {12}},
                               {"model.layers.0.feed_forward.w1.weight", {7, 12}},
                               {"model.layers.0.feed_forward.w3.weight", {7, 12}},
                               {"model.layers.0.feed_forward.w2.weight", {12, 7}},
                               {"model.layers.1.operator_norm.weight", {12}},
                               {"model.layers.1.self_attn.q_proj.weight", {12, 12}},
                               {"model.layers.1.self_attn.k_proj.weight", {4, 12}},
                               {"model.layers.1.self_attn.v_proj.weight", {4, 12}},
                               {"model.layers.1.self_attn.out_proj.weight", {12, 12}},
                               {"model.layers.1.self_attn.q_layernorm.weight", {4}},
                               {"model.layers.1.self_attn.k_layernorm.weight", {4}},
                               {"model.layers.1.ffn_norm.weight", {12}},
                               {"model.layers.1.feed_forward.w1.weight", {7, 12}},
                               {"model.layers.1.feed_forward.w3.weight", {7, 12}},
                               {"model.layers.1.feed_forward.w2.weight", {12, 7}},
                               {"model.embedding_norm.weight", {12}}};
  Rng rng(3);
  const TestTensors tensors = random_tensors(shapes, rng);
  const Json config = Json::parse(R"({"architectures":["Lfm2ForCausalLM"],"hidden_size":12,
    "num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,"vocab_size":9,
    "block_ff_dim":7,"block_auto_adjust_ff_dim":false,"max_position_embeddings":5,
    "conv_L_cache":4,"conv_bias":true,"full_attn_idxs":[1]})");
  const auto open = [&config](const TestTensors& stored) {
    return opening_error(config.dump(), stored);
  };
  const TemporaryFolder folder;
  write_model(folder, config.dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto stored = [&](const char* name) { return tensors.at(name).values; };
  EXPECT_EQ(tensor_values(**model, SectionKind::kLayer, 0, TensorKind::kMixerIn),
            stored("model.layers.0.conv.in_proj.weight"));
  EXPECT_EQ(tensor_values(**model, SectionKind::kLayer, 0, TensorKind::kMixerOutBias),
            stored("model.layers.0.conv.out_proj.bias"));
  EXPECT_EQ(tensor_values(**model, SectionKind::kLayer, 1, TensorKind::kKNorm),
            stored("model.layers.1.self_attn.k_layernorm.weight"));
  EXPECT_EQ(tensor_values(**model, SectionKind::kFinal, 0, TensorKind::kFinalNorm),
            stored("model.embedding_norm.weight"));
  const std::vector<float> taps =
      tensor_values(**model, SectionKind::kLayer, 0, TensorKind::kConvTaps);
  ASSERT_EQ(taps.size(), 48U);
  for (std::size_t i = 0; i < 48; ++i) {
    EXPECT_EQ(taps[i], stored("model.layers.0.conv.conv.weight")[i % 12 * 4 + i / 12]) << i;
  }

  TestTensors wrong = tensors;
  wrong["model.layers.0.conv.conv.weight"] = random_tensor({12, 1, 3}, rng);
  EXPECT_THAT(open(wrong), HasSubstr("shape [12, 1, 3], expected [12, 1, 4]"));
  wrong = tensors;
  wrong.erase("model.layers.0.conv.out_proj.bias");
  EXPECT_THAT(open(wrong), HasSubstr("\"model.layers.0.conv.out_proj.bias\" is missing"));
  wrong = tensors;
  wrong["model.layers.0.self_attn.q_proj.weight"] = random_tensor({12, 12}, rng);
  EXPECT_THAT(open(wrong), HasSubstr("\"model.layers.0.self_attn.q_proj.weight\" [12, 12] is "
                                     "unexpected"));
}

// A dense layer that attends, and one with a convolution and 2 experts of 5 rows.
TEST(HfStateFamiliesTest, Lfm2MoeHasExpertsInPlaceOfAnFfn) {
  TensorShapes shapes = {{"model.embed_tokens.weight", {9, 12}},
                         {"model.layers.0.operator_norm.weight", {12}},
                         {"model.layers.0.self_attn.q_proj.weight", {12, 12}},
                         {"model.layers.0.self_attn.k_proj.weight", {4, 12}},
                         {"model.layers.0.self_attn.v_proj.weight", {4, 12}},
                         {"model.layers.0.self_attn.out_proj.weight", {12, 12}},
                         {"model.layers.0.self_attn.q_layernorm.weight", {4}},
                         {"model.layers.0.self_attn.k_layernorm.weight", {4}},
                         {"model.layers.0.ffn_norm.weight", {12}},
                         {"model.layers.0.feed_forward.w1.weight", {7, 12}},
                         {"model.layers.0.feed_forward.w3.weight", {7, 12}},
                         {"model.layers.0.feed_forward.w2.weight", {12, 7}},
                         {"model.layers.1.operator_norm.weight", {12}},
                         {"model.layers.1.conv.in_proj.weight", {36, 12}},
                         {"model.layers.1.conv.conv.weight", {12, 1, 4}},
                         {"model.layers.1.conv.out_proj.weight", {12, 12}},
                         {"model.layers.1.ffn_norm.weight", {12}},
                         {"model.layers.1.feed_forward.gate.weight", {2, 12}},
                         {"model.layers.1.feed_forward.expert_bias", {2}},
                         {"model.embedding_norm.weight", {12}}};
  for (const std::string at :
       {"model.layers.1.feed_forward.experts.0.", "model.layers.1.feed_forward.experts.1."}) {
    shapes[at + "w1.weight"] = shapes[at + "w3.weight"] = {5, 12};
    shapes[at + "w2.weight"] = {12, 5};
  }
  Rng rng(4);
  const TestTensors tensors = random_tensors(shapes, rng);
  Json config = Json::parse(R"({"architectures":["Lfm2MoeForCausalLM"],"hidden_size":12,
    "num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,"vocab_size":9,
    "intermediate_size":7,"moe_intermediate_size":5,"num_experts":2,"num_experts_per_tok":1,
    "num_dense_layers":1,"max_position_embeddings":5,"conv_L_cache":4,
    "layer_types":["full_attention","conv"]})");
  const auto open = [&config](const TestTensors& stored) {
    return opening_error(config.dump(), stored);
  };
  const TemporaryFolder folder;
  write_model(folder, config.dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto list = (*model)->tensors(SectionKind::kLayer, 1);
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::vector<float> values(std::size_t{list[i].rows} * list[i].cols);
    ASSERT_TRUE((*model)->read_rows(SectionKind::kLayer, 1, i, 0, values).ok());
    if (list[i].kind == TensorKind::kConvTaps) continue;
    EXPECT_EQ(values, tensors.at(list[i].name).values) << list[i].name;
  }
  const auto kind_of = [&list](std::string_view end) {
    const auto found = std::ranges::find_if(
        list, [end](const SourceTensor& tensor) { return tensor.name.ends_with(end); });
    EXPECT_NE(found, list.end()) << end;
    return found->kind;
  };
  EXPECT_EQ(kind_of("expert_bias"), TensorKind::kRouterCorrection);
  EXPECT_EQ(kind_of("1.w1.weight"), TensorKind::kExpertGate);
  EXPECT_EQ(kind_of("1.w3.weight"), TensorKind::kExpertUp);
  EXPECT_EQ(kind_of("1.w2.weight"), TensorKind::kExpertDown);

  TestTensors wrong = tensors;
  wrong.erase("model.layers.1.feed_forward.experts.1.w3.weight");
  EXPECT_THAT(open(wrong),
              HasSubstr("\"model.layers.1.feed_forward.experts.1.w3.weight\" is missing"));
  wrong = tensors;
  wrong["model.layers.1.feed_forward.gate.weight"] = random_tensor({3, 12}, rng);
  EXPECT_THAT(open(wrong), HasSubstr("shape [3, 12], expected [2, 12]"));
  wrong = tensors;
  wrong.erase("model.layers.1.feed_forward.expert_bias");
  EXPECT_THAT(open(wrong), HasSubstr("\"model.layers.1.feed_forward.expert_bias\" is missing"));
  config["use_expert_bias"] = false;
  EXPECT_EQ(open(wrong), "");
  EXPECT_THAT(open(tensors), HasSubstr("expert_bias\" [2] is unexpected"));
}

}  // namespace
}  // namespace qsf
