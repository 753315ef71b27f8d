// SPDX-License-Identifier: MIT
//
// What the keys of each GGUF architecture say of a model, and what is refused.

#include "import/gguf/gguf_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "import/gguf/gguf_arch.h"
#include "import/testing/gguf_keys.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

constexpr auto kNone = static_cast<std::uint32_t>(LayerRope::kNone);
constexpr auto kMain = static_cast<std::uint32_t>(LayerRope::kMain);
constexpr auto kLocal = static_cast<std::uint32_t>(LayerRope::kLocal);

TEST(GgufFamiliesTest, Gemma3HasTwoRopes) {
  GgufKeys keys("gemma3");
  keys.floats["rope.freq_base"] = 1000000.0F;
  ModelSpec spec = valid_spec(keys);
  EXPECT_THAT(spec.sliding_window, IsEmpty());
  EXPECT_THAT(spec.layer_rope, IsEmpty());
  EXPECT_EQ(spec.activation, Activation::kGeluTanh);
  EXPECT_EQ(spec.embedding_scale, std::sqrt(48.0F));
  EXPECT_EQ(spec.attention_scale, 0.25F);

  keys.numbers["attention.sliding_window"] = 32;
  keys.texts["rope.scaling.type"] = "linear";
  keys.floats["rope.scaling.factor"] = 8.0F;
  spec = valid_spec(keys);
  EXPECT_THAT(spec.sliding_window, ElementsAre(32, 32, 32, 32, 32, 0, 32));
  EXPECT_THAT(spec.layer_rope, ElementsAre(kLocal, kLocal, kLocal, kLocal, kLocal, kMain, kLocal));
  EXPECT_EQ(spec.rope.theta, 1000000.0F);
  EXPECT_EQ(spec.rope.factor, 8.0F);
  EXPECT_EQ(spec.local_rope_theta, 10000.0F);
  keys.floats["rope.freq_base_swa"] = 500.0F;
  keys.floats["final_logit_softcapping"] = 20.0F;
  spec = valid_spec(keys);
  EXPECT_EQ(spec.local_rope_theta, 500.0F);
  EXPECT_EQ(spec.logit_soft_cap, 20.0F);
}

TEST(GgufFamiliesTest, TheLargestGemmasScaleScoresByTheStream) {
  for (const auto& [name, n_layers] : {std::pair("gemma2", 46U), std::pair("gemma3", 62U)}) {
    GgufKeys keys(name);
    EXPECT_EQ(valid_spec(keys).attention_scale, 1.0F / std::sqrt(16.0F)) << name;
    keys.numbers["block_count"] = n_layers;
    EXPECT_EQ(valid_spec(keys).attention_scale, 1.0F / std::sqrt(12.0F)) << name;
  }
}

TEST(GgufFamiliesTest, APatternIsAListOrAPeriod) {
  const char* key = "attention.sliding_window_pattern";
  for (const char* name : {"gemma2", "gemma3", "olmo2", "exaone4", "cohere2"}) {
    GgufKeys keys(name);
    keys.numbers["block_count"] = 3;
    keys.numbers["attention.sliding_window"] = 5;
    keys.lists[key] = {false, true, false};
    EXPECT_THAT(valid_spec(keys).sliding_window, ElementsAre(0, 5, 0)) << name;
    keys.lists[key] = {false, true};
    expect_refused(keys, StatusCode::kCorrupt, key);
    keys.lists.clear();
    keys.numbers[key] = 2;
    EXPECT_THAT(valid_spec(keys).sliding_window, ElementsAre(5, 0, 5)) << name;
    keys.numbers[key] = 1;
    EXPECT_THAT(valid_spec(keys).sliding_window, ElementsAre(0, 0, 0)) << name;
    keys.numbers[key] = 0;
    EXPECT_THAT(valid_spec(keys).sliding_window, ElementsAre(5, 5, 5)) << name;
    keys.numbers.erase(key);
    keys.texts[key] = "LLG";
    expect_refused(keys, StatusCode::kCorrupt, key);
  }
  for (const char* name : {"llama", "phi3", "starcoder2"}) {
    GgufKeys keys(name);
    keys.numbers["attention.sliding_window"] = 0;
    EXPECT_THAT(valid_spec(keys).sliding_window, IsEmpty()) << name;
    keys.numbers["attention.sliding_window"] = 5;
    EXPECT_THAT(valid_spec(keys).sliding_window, ElementsAre(5)) << name;
    keys.numbers[key] = 2;
    expect_refused(keys, StatusCode::kUnsupported, key);
  }
}

TEST(GgufFamiliesTest, Olmo3ScalesLayersWithoutAWindow) {
  GgufKeys keys("olmo2");
  EXPECT_THAT(valid_spec(keys).layer_rope, IsEmpty());
  keys.numbers["attention.sliding_window"] = 16;
  keys.numbers["block_count"] = 4;
  keys.floats["rope.freq_base"] = 777.0F;
  EXPECT_THAT(valid_spec(keys).layer_rope, IsEmpty());
  keys.texts["rope.scaling.type"] = "yarn";
  keys.floats["rope.scaling.factor"] = 4.0F;
  const ModelSpec spec = valid_spec(keys);
  EXPECT_THAT(spec.sliding_window, ElementsAre(16, 16, 16, 0));
  EXPECT_THAT(spec.layer_rope, ElementsAre(kLocal, kLocal, kLocal, kMain));
  EXPECT_EQ(spec.local_rope_theta, 777.0F);
}

TEST(GgufFamiliesTest, LayersWithoutAWindowMayNotRotate) {
  GgufKeys keys("exaone4");
  EXPECT_THAT(valid_spec(keys).sliding_window, IsEmpty());
  EXPECT_THAT(valid_spec(keys).layer_rope, IsEmpty());
  keys.numbers["block_count"] = 64;
  ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.window_of(0), 4096U);
  EXPECT_EQ(spec.window_of(3), 0U);
  EXPECT_EQ(spec.rope_of(2), LayerRope::kMain);
  EXPECT_EQ(spec.rope_of(63), LayerRope::kNone);

  for (const char* name : {"exaone4", "cohere2"}) {
    keys = GgufKeys(name);
    keys.numbers["block_count"] = 5;
    keys.numbers["attention.sliding_window"] = 16;
    spec = valid_spec(keys);
    EXPECT_THAT(spec.sliding_window, ElementsAre(16, 16, 16, 0, 16)) << name;
    EXPECT_THAT(spec.layer_rope, ElementsAre(kMain, kMain, kMain, kNone, kMain)) << name;
    keys.floats["rope.freq_base_swa"] = 10000.0F;
    EXPECT_EQ(valid_spec(keys), spec) << name;
    keys.floats["rope.freq_base_swa"] = 20000.0F;
    expect_refused(keys, StatusCode::kUnsupported, "rope.freq_base_swa");
  }
  expect_refused(GgufKeys("cohere2"), StatusCode::kCorrupt, "attention.sliding_window");

  keys = GgufKeys("smollm3");
  EXPECT_THAT(valid_spec(keys).layer_rope,
              ElementsAre(kMain, kMain, kMain, kNone, kMain, kMain, kMain));
}

TEST(GgufFamiliesTest, GraniteDividesByLogitScaleAndCommandRMultiplies) {
  GgufKeys keys("granite");
  keys.floats = {{"embedding_scale", 12.0F},
                 {"residual_scale", 0.25F},
                 {"attention.scale", 0.125F},
                 {"logit_scale", 8.0F}};
  ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.embedding_scale, 12.0F);
  EXPECT_EQ(spec.residual_scale, 0.25F);
  EXPECT_EQ(spec.attention_scale, 0.125F);
  EXPECT_EQ(spec.logit_scale, 0.125F);
  EXPECT_THAT(spec.layer_rope, IsEmpty());
  keys.booleans["rope.scaling.finetuned"] = false;
  EXPECT_EQ(valid_spec(keys).layer_rope, std::vector<std::uint32_t>(7, kNone));
  // Zero is absent to llama.cpp.
  keys.floats = {{"embedding_scale", 0.0F}, {"residual_scale", 0.0F}, {"attention.scale", 0.0F}};
  spec = valid_spec(keys);
  EXPECT_EQ(spec.embedding_scale, 1.0F);
  EXPECT_EQ(spec.residual_scale, 1.0F);
  EXPECT_EQ(spec.attention_scale, 0.0F);
  for (const char* key : {"embedding_scale", "residual_scale", "attention.scale", "logit_scale"}) {
    keys.floats = {{key, -1.0F}};
    expect_refused(keys, StatusCode::kCorrupt, key);
  }

  for (const char* name : {"command-r", "cohere2"}) {
    keys = GgufKeys(name);
    keys.numbers["attention.sliding_window"] = name == std::string("cohere2") ? 9 : 0;
    EXPECT_EQ(valid_spec(keys).logit_scale, 1.0F) << name;
    keys.floats["logit_scale"] = 0.0625F;
    spec = valid_spec(keys);
    EXPECT_EQ(spec.logit_scale, 0.0625F) << name;
    EXPECT_TRUE(spec.parallel_block) << name;
    EXPECT_EQ(spec.norm, NormType::kLayerNorm) << name;
  }
}

TEST(GgufFamiliesTest, YarnIsReadForEveryArchitecture) {
  const float rule = static_cast<float>(0.1 * std::log(4.0) + 1.0);
  for (const char* name : {"llama", "qwen3", "olmo2", "mistral3"}) {
    GgufKeys keys(name);
    keys.texts["rope.scaling.type"] = "yarn";
    keys.floats["rope.scaling.factor"] = 4.0F;
    RopeSpec rope = valid_spec(keys).rope;
    EXPECT_EQ(rope.scaling, RopeScaling::kYarn) << name;
    EXPECT_EQ(rope.factor, 4.0F);
    EXPECT_EQ(rope.original_context, 64U);
    EXPECT_EQ(rope.beta_fast, 32.0F);
    EXPECT_EQ(rope.beta_slow, 1.0F);
    EXPECT_EQ(rope.attention_factor, rule);
    EXPECT_EQ(valid_spec(keys).max_positions, 256U);
    keys.numbers["rope.scaling.original_context_length"] = 8;
    keys.floats["rope.scaling.yarn_beta_fast"] = 16.0F;
    keys.floats["rope.scaling.yarn_beta_slow"] = 2.0F;
    keys.floats["rope.scaling.yarn_ext_factor"] = 1.0F;
    rope = valid_spec(keys).rope;
    EXPECT_EQ(rope.original_context, 8U);
    EXPECT_EQ(rope.beta_fast, 16.0F);
    EXPECT_EQ(rope.beta_slow, 2.0F);
    EXPECT_EQ(valid_spec(keys).max_positions, 64U);
    keys.floats["rope.scaling.yarn_ext_factor"] = -1.0F;
    expect_refused(keys, StatusCode::kUnsupported, "yarn_ext_factor");
  }
}

// The rule, over itself with a multiplier; a value of the file's own wins, of either name.
TEST(GgufFamiliesTest, YarnHasOneFactorOfCosinesAndSines) {
  GgufKeys keys("mistral3");
  keys.texts["rope.scaling.type"] = "yarn";
  keys.floats["rope.scaling.factor"] = 16.0F;
  const double growth = 0.1 * std::log(16.0);
  const auto factor = [&] { return valid_spec(keys).rope.attention_factor; };
  EXPECT_EQ(factor(), static_cast<float>(growth + 1.0));
  keys.floats["rope.scaling.yarn_log_multiplier"] = 1.0F;
  EXPECT_EQ(factor(), 1.0F);
  keys.floats["rope.scaling.yarn_log_multiplier"] = 0.5F;
  EXPECT_EQ(factor(), static_cast<float>((growth + 1.0) / (0.5 * growth + 1.0)));
  keys.floats["rope.scaling.yarn_log_multiplier"] = 0.0F;
  EXPECT_EQ(factor(), static_cast<float>(growth + 1.0));
  keys.floats["rope.scaling.attn_factor"] = 1.0F;
  EXPECT_EQ(factor(), static_cast<float>(growth + 1.0));
  keys.floats["rope.scaling.attn_factor"] = 1.25F;
  EXPECT_EQ(factor(), 1.25F);
  keys.floats["rope.scaling.yarn_attn_factor"] = 1.0F;
  EXPECT_EQ(factor(), 1.0F);
}

TEST(GgufFamiliesTest, QueriesOfMinistral3GrowWithTheirPosition) {
  GgufKeys keys("mistral3");
  EXPECT_EQ(valid_spec(keys).query_position_scale, 0.0F);
  keys.floats["attention.temperature_scale"] = 0.1F;
  expect_refused(keys, StatusCode::kInvalidArgument, "no original context");
  keys.texts["rope.scaling.type"] = "yarn";
  keys.numbers["rope.scaling.original_context_length"] = 16;
  keys.numbers["attention.temperature_length"] = 16;
  EXPECT_EQ(valid_spec(keys).query_position_scale, 0.1F);
  keys.numbers["attention.temperature_length"] = 17;
  expect_refused(keys, StatusCode::kUnsupported, "temperature_length");
}

TEST(GgufFamiliesTest, Glm4RotatesHalfOfEachHead) {
  GgufKeys keys("glm4");
  keys.numbers["rope.dimension_count"] = 8;
  EXPECT_EQ(valid_spec(keys).rope.dims, 8U);
  for (const bool of_images : {false, true}) {
    if (of_images) keys.lists["rope.dimension_sections"] = {true, true, true, false};
    const std::string bytes = keys.write();
    MemoryFileOps ops(as_bytes(bytes));
    const auto file = GgufFile::open("m.gguf", ops);
    ASSERT_TRUE(file) << file.error().message();
    const auto architecture = find_gguf_architecture(*file);
    ASSERT_TRUE(architecture) << architecture.error().message();
    EXPECT_EQ((*architecture)->paired_rope, !of_images);
  }
}

TEST(GgufFamiliesTest, FalconHasOneNormOrTwo) {
  GgufKeys keys("falcon");
  keys.texts["tensor_data_layout"] = "jploski";
  ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.architecture, "falcon");
  EXPECT_EQ(spec.activation, Activation::kGeluErf);
  EXPECT_TRUE(spec.parallel_block);
  keys.tensors = {"blk.0.attn_norm_2.weight"};
  EXPECT_EQ(valid_spec(keys).architecture, "falcon-two-norms");
  keys.tensors = {"blk.0.attn_qkv.bias"};
  expect_refused(keys, StatusCode::kUnsupported, "ALiBi");
  keys.tensors = {"blk.0.attn_norm_2.weight", "blk.0.attn_qkv.bias"};
  expect_refused(keys, StatusCode::kUnsupported, "ALiBi");
  keys.texts["tensor_data_layout"] = "by head";
  expect_refused(keys, StatusCode::kUnsupported, "tensor_data_layout \"by head\"");
}

// Where a Qwen's file has none, the experts of a token share the whole width, as in llama.cpp.
TEST(GgufFamiliesTest, TheWidthOfAnExpertHasADefault) {
  const auto keys_of = [](const char* name) {
    GgufKeys keys(name);
    keys.numbers["expert_count"] = 6;
    keys.numbers["expert_used_count"] = 4;
    return keys;
  };
  GgufKeys keys = keys_of("qwen3moe");
  EXPECT_EQ(valid_spec(keys).expert_ffn, 20U);
  keys.numbers["expert_feed_forward_length"] = 36;
  EXPECT_EQ(valid_spec(keys).expert_ffn, 36U);
  EXPECT_EQ(valid_spec(keys_of("llama")).expert_ffn, 80U);
  EXPECT_EQ(valid_spec(keys_of("olmoe")).expert_ffn, 80U);
}

// attn_norm is the FFN's norm where there are two.
TEST(GgufFamiliesTest, NamesOfFalconsNormsDependOnTheirNumber) {
  for (const bool two : {false, true}) {
    GgufKeys keys("falcon");
    if (two) keys.tensors = {"blk.0.attn_norm_2.weight"};
    const std::string bytes = keys.write();
    MemoryFileOps ops(as_bytes(bytes));
    const auto file = GgufFile::open("m.gguf", ops);
    ASSERT_TRUE(file) << file.error().message();
    const auto architecture = find_gguf_architecture(*file);
    ASSERT_TRUE(architecture) << architecture.error().message();
    const auto name = [&](TensorKind kind) { return gguf_tensor_name(**architecture, kind, 1); };
    EXPECT_EQ(name(TensorKind::kAttnNorm),
              two ? "blk.1.attn_norm_2.weight" : "blk.1.attn_norm.weight");
    EXPECT_EQ(name(TensorKind::kAttnNormBias),
              two ? "blk.1.attn_norm_2.bias" : "blk.1.attn_norm.bias");
    EXPECT_EQ(name(TensorKind::kFfnNorm), two ? "blk.1.attn_norm.weight" : "blk.1.ffn_norm.weight");
    EXPECT_EQ(name(TensorKind::kFfnNormBias), two ? "blk.1.attn_norm.bias" : "blk.1.ffn_norm.bias");
    EXPECT_EQ(name(TensorKind::kFinalNorm), "output_norm.weight");
  }
}

TEST(GgufFamiliesTest, GptNeoxIsParallelWhereTheFileSaysSo) {
  GgufKeys keys("gptneox");
  keys.booleans["use_parallel_residual"] = true;
  EXPECT_TRUE(valid_spec(keys).parallel_block);
  EXPECT_EQ(valid_spec(keys).activation, Activation::kGeluErf);
  keys.booleans["use_parallel_residual"] = false;
  EXPECT_FALSE(valid_spec(keys).parallel_block);
  keys.numbers["block_count"] = 44;
  EXPECT_EQ(valid_spec(keys).activation, Activation::kGeluTanh);
}

TEST(GgufFamiliesTest, MptHasTheAlibiOfBloom) {
  GgufKeys keys("mpt");
  expect_refused(keys, StatusCode::kUnsupported, "max_alibi_bias is 0");
  keys.floats["attention.max_alibi_bias"] = 8.0F;
  const ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.positions, PositionEncoding::kAlibi);
  EXPECT_EQ(spec.activation, Activation::kGeluErf);
  EXPECT_FALSE(spec.gated_ffn);
  EXPECT_EQ(spec.qkv_clip, 0.0F);
  keys.floats["attention.clamp_kqv"] = 6.0F;
  EXPECT_EQ(valid_spec(keys).qkv_clip, 6.0F);
  keys.floats = {{"attention.max_alibi_bias", 16.0F}};
  expect_refused(keys, StatusCode::kUnsupported, "max_alibi_bias is 16");
}

// llama.cpp never makes the sum of the weights 1 here; widths that are missing follow from others.
TEST(GgufFamiliesTest, Qwen2MoeHasASharedExpert) {
  GgufKeys keys("qwen2moe");
  keys.numbers["expert_count"] = 60;
  keys.numbers["expert_used_count"] = 4;
  ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.expert_ffn, 20U);
  EXPECT_EQ(spec.shared_ffn, 80U);
  EXPECT_FALSE(spec.expert_renormalised);
  EXPECT_EQ(spec.expert_scoring, ExpertScoring::kSoftmax);
  keys.numbers["expert_feed_forward_length"] = 12;
  keys.numbers["expert_shared_feed_forward_length"] = 22;
  spec = valid_spec(keys);
  EXPECT_EQ(spec.expert_ffn, 12U);
  EXPECT_EQ(spec.shared_ffn, 22U);
  keys.numbers["expert_gating_func"] = 2;
  expect_refused(keys, StatusCode::kUnsupported, "expert_gating_func");
  keys.numbers.erase("expert_gating_func");
  keys.numbers["expert_group_count"] = 2;
  expect_refused(keys, StatusCode::kUnsupported, "expert_group_count");
}

TEST(GgufFamiliesTest, Glm4MoeHasDenseLayersAndBlocksBehindThem) {
  GgufKeys keys("glm4moe");
  keys.numbers["expert_count"] = 12;
  keys.numbers["expert_used_count"] = 4;
  keys.numbers["expert_feed_forward_length"] = 10;
  keys.numbers["expert_shared_count"] = 2;
  keys.numbers["leading_dense_block_count"] = 2;
  keys.numbers["nextn_predict_layers"] = 3;
  keys.floats["expert_weights_scale"] = 2.5F;
  ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.n_layers, 4U);  // of 7 blocks
  EXPECT_THAT(spec.expert_layers, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(spec.shared_ffn, 20U);
  EXPECT_EQ(spec.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_EQ(spec.expert_scale, 2.5F);
  EXPECT_TRUE(spec.expert_renormalised);
  EXPECT_EQ(spec.expert_epsilon, 1e-20F);
  keys.booleans["expert_weights_norm"] = false;
  keys.numbers["expert_group_count"] = 3;
  keys.numbers["expert_group_used_count"] = 2;
  spec = valid_spec(keys);
  EXPECT_FALSE(spec.expert_renormalised);
  EXPECT_EQ(spec.expert_epsilon, 0.0F);
  EXPECT_EQ(spec.expert_groups, 3U);
  EXPECT_EQ(spec.expert_groups_used, 2U);
  keys.numbers["expert_group_count"] = 5;
  expect_refused(keys, StatusCode::kInvalidArgument, "expert groups: 2 of 5");
  keys.numbers["expert_group_count"] = 3;
  keys.numbers["nextn_predict_layers"] = 7;
  expect_refused(keys, StatusCode::kCorrupt, "nextn_predict_layers");
  keys.numbers["nextn_predict_layers"] = 5;  // leaves two layers, both dense
  expect_refused(keys, StatusCode::kCorrupt, "leading_dense_block_count");
  keys.numbers.erase("nextn_predict_layers");
  keys.numbers["expert_gating_func"] = 1;
  expect_refused(keys, StatusCode::kUnsupported, "expert_gating_func");
}

// No key holds how Phi-3.5-MoE routes.
TEST(GgufFamiliesTest, PhimoeMixesTwoExperts) {
  GgufKeys keys("phimoe");
  keys.numbers["expert_count"] = 16;
  keys.numbers["expert_used_count"] = 2;
  const ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.norm, NormType::kLayerNorm);
  EXPECT_EQ(spec.expert_scoring, ExpertScoring::kSparsemixer);
  EXPECT_EQ(spec.expert_margin, 0.01F);
  EXPECT_EQ(spec.expert_ffn, 80U);
  EXPECT_FALSE(spec.expert_renormalised);
  keys.numbers["expert_used_count"] = 4;
  expect_refused(keys, StatusCode::kUnsupported, "expert_used_count is 4");
}

// A key that changes results is passed over by no architecture that does not read it.
TEST(GgufFamiliesTest, KeysOfOtherArchitecturesAreRefused) {
  const std::pair<const char*, float> floats[] = {
      {"attention.scale", 0.5F},         {"embedding_scale", 2.0F},
      {"residual_scale", 0.5F},          {"logit_scale", 0.5F},
      {"attn_logit_softcapping", 30.0F}, {"final_logit_softcapping", 30.0F},
      {"attention.clamp_kqv", 8.0F},     {"attention.temperature_scale", 0.1F},
      {"rope.scaling.attn_factor", 1.2F}};
  for (const auto& [key, value] : floats) {
    GgufKeys keys("qwen3");
    keys.floats[key] = value;
    expect_refused(keys, StatusCode::kUnsupported, key);
  }
  for (const char* key : {"attention.sliding_window", "nextn_predict_layers"}) {
    GgufKeys keys("glm4");
    keys.numbers[key] = 1;
    expect_refused(keys, StatusCode::kUnsupported, key);
    keys.numbers[key] = 0;
    valid_spec(keys);
  }
  GgufKeys keys("granite");
  keys.booleans["attention.causal"] = false;
  expect_refused(keys, StatusCode::kUnsupported, "attention.causal");
}

TEST(GgufFamiliesTest, Llama4) {
  GgufKeys keys("llama4");
  keys.numbers = {{"expert_count", 4},
                  {"expert_used_count", 1},
                  {"expert_feed_forward_length", 10},
                  {"interleave_moe_layer_step", 1}};
  ModelSpec spec = valid_spec(keys);
  EXPECT_THAT(spec.layer_rope, ElementsAre(kMain, kMain, kMain, kNone, kMain, kMain, kMain));
  EXPECT_THAT(spec.sliding_window, ElementsAre(8192, 8192, 8192, 0, 8192, 8192, 8192));
  EXPECT_TRUE(spec.chunked_windows);
  EXPECT_EQ(spec.query_position_scale, 0.1F);
  EXPECT_EQ(spec.query_position_step, 8192U);
  EXPECT_TRUE(spec.unit_head_norms);
  EXPECT_TRUE(spec.weighs_expert_inputs);
  EXPECT_EQ(spec.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_FALSE(spec.expert_renormalised);
  EXPECT_EQ(spec.expert_ffn, 10U);
  EXPECT_EQ(spec.shared_ffn, 10U);
  EXPECT_THAT(spec.expert_layers, IsEmpty());

  keys.numbers["expert_count"] = 128;
  keys.numbers["interleave_moe_layer_step"] = 2;
  keys.numbers["attention.sliding_window"] = 48;
  spec = valid_spec(keys);
  EXPECT_FALSE(spec.unit_head_norms);
  EXPECT_THAT(spec.expert_layers, ElementsAre(0, 1, 0, 1, 0, 1, 0));
  EXPECT_EQ(spec.window_of(0), 48U);

  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::uint32_t>>{{"interleave_moe_layer_step", 0},
                                                          {"interleave_moe_layer_step", 8},
                                                          {"attention.sliding_window", 0},
                                                          {"expert_used_count", 129}}) {
    GgufKeys wrong = keys;
    wrong.numbers[name] = value;
    expect_refused(wrong, StatusCode::kCorrupt, name.c_str());
  }
  keys.numbers.erase("interleave_moe_layer_step");
  expect_refused(keys, StatusCode::kCorrupt, "interleave_moe_layer_step");
}

TEST(GgufFamiliesTest, Deepseek2) {
  GgufKeys keys("deepseek2");
  keys.numbers = {{"attention.head_count_kv", 1},     {"attention.key_length", 40},
                  {"attention.value_length", 24},     {"attention.key_length_mla", 28},
                  {"attention.value_length_mla", 10}, {"attention.kv_lora_rank", 24},
                  {"rope.dimension_count", 16},       {"expert_count", 12},
                  {"expert_used_count", 4},           {"expert_feed_forward_length", 10},
                  {"expert_shared_count", 2},         {"leading_dense_block_count", 1}};
  keys.booleans["expert_weights_norm"] = true;
  ModelSpec spec = valid_spec(keys);
  EXPECT_EQ(spec.n_kv_heads, 1U);
  EXPECT_EQ(spec.head_dim, 40U);
  EXPECT_EQ(spec.rope.dims, 16U);
  EXPECT_EQ(spec.latent_dim, 24U);
  EXPECT_EQ(spec.latent_key_dim, 12U);
  EXPECT_EQ(spec.latent_value_dim, 10U);
  EXPECT_EQ(spec.latent_query_dim, 0U);
  EXPECT_EQ(spec.latent_epsilon, 1e-6F);
  EXPECT_FLOAT_EQ(spec.attention_scale, 1.0F / std::sqrt(28.0F));
  EXPECT_EQ(spec.expert_scoring, ExpertScoring::kSoftmax);
  EXPECT_FALSE(spec.expert_renormalised);
  EXPECT_EQ(spec.shared_ffn, 20U);
  EXPECT_THAT(spec.expert_layers, ElementsAre(0, 1, 1, 1, 1, 1, 1));

  keys.numbers["attention.q_lora_rank"] = 20;
  keys.numbers["expert_gating_func"] = 2;
  keys.texts["rope.scaling.type"] = "yarn";
  keys.floats["rope.scaling.factor"] = 40.0F;
  keys.floats["rope.scaling.yarn_log_multiplier"] = 0.1F;
  spec = valid_spec(keys);
  EXPECT_EQ(spec.latent_query_dim, 20U);
  EXPECT_EQ(spec.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(spec.expert_renormalised);
  EXPECT_EQ(spec.expert_epsilon, 1e-20F);
  EXPECT_EQ(spec.rope.attention_factor, 1.0F);
  const double mscale = 0.1 * std::log(40.0) + 1.0;
  EXPECT_FLOAT_EQ(spec.attention_scale, static_cast<float>(mscale * mscale / std::sqrt(28.0)));

  for (const auto& [name, value] :
       std::map<std::string, std::uint32_t>{{"attention.kv_lora_rank", 0},
                                            {"attention.key_length_mla", 16},
                                            {"attention.value_length_mla", 1U << 20},
                                            {"expert_gating_func", 3}}) {
    GgufKeys wrong = keys;
    wrong.numbers[name] = value;
    expect_refused(wrong, StatusCode::kCorrupt, name.c_str());
  }
  // Older files have the sizes of the heads in place of the cache's.
  for (const char* name : {"attention.key_length_mla", "attention.value_length_mla"}) {
    keys.numbers.erase(name);
  }
  keys.numbers["attention.head_count_kv"] = 4;
  keys.numbers["attention.key_length"] = 28;
  keys.numbers["attention.value_length"] = 10;
  EXPECT_EQ(valid_spec(keys), spec);
}

// Layers without heads of keys have a convolution.
TEST(GgufFamiliesTest, Lfm2) {
  const char* heads = "attention.head_count_kv";
  GgufKeys keys("lfm2");
  keys.arrays[heads] = {0, 0, 2, 0, 2, 0, 0};
  keys.numbers["shortconv.l_cache"] = 3;
  const ModelSpec s = valid_spec(keys);
  EXPECT_EQ(s.architecture, "lfm2");
  EXPECT_THAT(s.layer_mixers, ElementsAre(1, 1, 0, 1, 0, 1, 1));
  EXPECT_EQ(s.n_kv_heads, 2U);
  EXPECT_EQ(s.conv_taps, 3U);
  GgufKeys attending("lfm2");
  attending.numbers["shortconv.l_cache"] = 3;
  EXPECT_THAT(valid_spec(attending).layer_mixers, IsEmpty());

  GgufKeys wrong = keys;
  wrong.arrays[heads] = {0, 2};
  expect_refused(wrong, StatusCode::kCorrupt, "attention.head_count_kv\": 2 values, expected 7");
  wrong.arrays[heads] = {0, 0, 2, 0, 4, 0, 0};
  expect_refused(wrong, StatusCode::kUnsupported, "layers of 2 and of 4 heads");
  wrong.arrays[heads] = {0, 0, 0, 0, 0, 0, 0};
  expect_refused(wrong, StatusCode::kUnsupported, "no layer with attention");
  wrong.arrays[heads] = {0, 0, 1U << 20, 0, 2, 0, 0};
  expect_refused(wrong, StatusCode::kCorrupt, "1048576 at index 2, expected 0 to 65536");
  wrong = keys;
  wrong.numbers.clear();
  expect_refused(wrong, StatusCode::kCorrupt, "shortconv.l_cache\" is missing");
  wrong.numbers["shortconv.l_cache"] = 40;
  expect_refused(wrong, StatusCode::kCorrupt, "shortconv.l_cache\" is 40");
  wrong = keys;
  wrong.architecture = "llama";
  expect_refused(wrong, StatusCode::kCorrupt, "attention.head_count_kv");
}

TEST(GgufFamiliesTest, Lfm2Moe) {
  GgufKeys keys("lfm2moe");
  keys.arrays["attention.head_count_kv"] = {0, 0, 2, 0, 2, 0, 0};
  keys.numbers = {{"shortconv.l_cache", 3},         {"expert_count", 6},
                  {"expert_used_count", 2},         {"expert_feed_forward_length", 24},
                  {"leading_dense_block_count", 2}, {"expert_gating_func", 2}};
  ModelSpec s = valid_spec(keys);
  EXPECT_EQ(s.architecture, "lfm2moe");
  EXPECT_THAT(s.layer_mixers, ElementsAre(1, 1, 0, 1, 0, 1, 1));
  EXPECT_EQ(s.conv_taps, 3U);
  EXPECT_EQ(s.n_experts, 6U);
  EXPECT_EQ(s.n_experts_used, 2U);
  EXPECT_EQ(s.expert_ffn, 24U);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(s.expert_renormalised);
  EXPECT_EQ(s.expert_epsilon, 1e-6F);
  EXPECT_EQ(s.expert_scale, 1.0F);
  EXPECT_THAT(s.expert_layers, ElementsAre(0, 0, 1, 1, 1, 1, 1));
  keys.numbers.erase("leading_dense_block_count");
  keys.booleans["expert_weights_norm"] = false;
  keys.floats["expert_weights_scale"] = 2.5F;
  s = valid_spec(keys);
  EXPECT_THAT(s.expert_layers, IsEmpty());
  EXPECT_EQ(s.expert_epsilon, 0.0F);
  EXPECT_EQ(s.expert_scale, 2.5F);

  GgufKeys wrong = keys;
  wrong.numbers["expert_gating_func"] = 1;
  expect_refused(wrong, StatusCode::kUnsupported, "expert_gating_func");
  wrong = keys;
  wrong.numbers["leading_dense_block_count"] = 7;
  expect_refused(wrong, StatusCode::kCorrupt, "leading_dense_block_count");
  wrong = keys;
  wrong.numbers["expert_used_count"] = 7;
  expect_refused(wrong, StatusCode::kCorrupt, "expert_used_count");
  for (const char* key : {"expert_count", "expert_used_count", "shortconv.l_cache"}) {
    wrong = keys;
    wrong.numbers.erase(key);
    expect_refused(wrong, StatusCode::kCorrupt, key);
  }
}

TEST(GgufFamiliesTest, GraniteHybrid) {
  GgufKeys keys("granitehybrid");
  keys.arrays["attention.head_count_kv"] = {0, 0, 2, 0, 2, 0, 0};
  keys.numbers = {{"ssm.conv_kernel", 4},
                  {"ssm.inner_size", 96},
                  {"ssm.state_size", 16},
                  {"ssm.time_step_rank", 12},
                  {"ssm.group_count", 2},
                  {"expert_count", 0},
                  {"expert_shared_feed_forward_length", 80}};
  keys.floats["logit_scale"] = 4.0F;
  keys.booleans["rope.scaling.finetuned"] = false;
  ModelSpec s = valid_spec(keys);
  EXPECT_EQ(s.architecture, "granitehybrid");
  EXPECT_THAT(s.layer_mixers, ElementsAre(2, 2, 0, 2, 0, 2, 2));
  EXPECT_EQ(s.mixer_heads, 12U);
  EXPECT_EQ(s.mixer_head_dim, 8U);
  EXPECT_EQ(s.mixer_state, 16U);
  EXPECT_EQ(s.mixer_groups, 2U);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.logit_scale, 0.25F);
  EXPECT_EQ(s.layer_rope, std::vector<std::uint32_t>(7, kNone));
  GgufKeys experts = keys;
  experts.numbers["expert_count"] = 6;
  experts.numbers["expert_used_count"] = 2;
  experts.numbers["expert_shared_feed_forward_length"] = 24;
  s = valid_spec(experts);
  EXPECT_EQ(s.architecture, "granitemoehybrid");
  EXPECT_EQ(s.n_experts, 6U);
  EXPECT_EQ(s.shared_ffn, 24U);
  EXPECT_EQ(s.mixer_heads, 12U);

  for (const char* key : {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size",
                          "ssm.time_step_rank", "ssm.group_count"}) {
    GgufKeys wrong = keys;
    wrong.numbers.erase(key);
    expect_refused(wrong, StatusCode::kCorrupt, key);
    for (const std::uint32_t value : {0U, 1U << 20}) {
      wrong.numbers[key] = value;
      expect_refused(wrong, StatusCode::kCorrupt, key);
    }
  }
  GgufKeys wrong = keys;
  wrong.numbers["ssm.inner_size"] = 97;
  expect_refused(wrong, StatusCode::kCorrupt,
                 "ssm.inner_size is 97, expected a multiple of the 12");
  wrong = keys;
  wrong.numbers["ssm.group_count"] = 5;
  expect_refused(wrong, StatusCode::kInvalidArgument,
                 "groups of scans: 5, expected a divisor of the 12");
}

GgufKeys delta_keys(const char* name) {
  GgufKeys keys(name);
  keys.numbers = {{"ssm.conv_kernel", 4},     {"ssm.inner_size", 96},
                  {"ssm.state_size", 16},     {"ssm.time_step_rank", 8},
                  {"ssm.group_count", 2},     {"full_attention_interval", 3},
                  {"rope.dimension_count", 4}};
  return keys;
}

TEST(GgufFamiliesTest, Qwen35) {
  GgufKeys keys = delta_keys("qwen35");
  ModelSpec s = valid_spec(keys);
  EXPECT_EQ(s.architecture, "qwen35");
  EXPECT_THAT(s.layer_mixers, ElementsAre(3, 3, 0, 3, 3, 0, 3));
  EXPECT_EQ(s.mixer_heads, 8U);
  EXPECT_EQ(s.mixer_head_dim, 12U);
  EXPECT_EQ(s.mixer_state, 16U);
  EXPECT_EQ(s.mixer_groups, 2U);
  EXPECT_TRUE(s.mixer_heads_in_turn);
  EXPECT_EQ(s.conv_taps, 4U);
  EXPECT_EQ(s.rope_dims(), 4U);
  // Where every head has a key of its own, or all have one, both orders are one.
  for (const std::uint32_t n_keys : {1U, 8U}) {
    keys.numbers["ssm.group_count"] = n_keys;
    EXPECT_FALSE(valid_spec(keys).mixer_heads_in_turn);
  }
  // The last block looks ahead.
  keys.numbers["nextn_predict_layers"] = 1;
  keys.lists["attention.recurrent_layers"] = {true, false, true, true, true, true, false};
  EXPECT_THAT(valid_spec(keys).layer_mixers, ElementsAre(3, 0, 3, 3, 3, 3));
  keys.lists["attention.recurrent_layers"] = std::vector<bool>(6, true);
  expect_refused(keys, StatusCode::kCorrupt, "attention.recurrent_layers");
  keys.lists["attention.recurrent_layers"] = std::vector<bool>(7, true);
  expect_refused(keys, StatusCode::kInvalidArgument, "0 of 6 layers attend");
  keys.lists["attention.recurrent_layers"] = std::vector<bool>(7, false);
  EXPECT_FALSE(valid_spec(keys).has_state());
  keys.numbers["nextn_predict_layers"] = 7;
  expect_refused(keys, StatusCode::kCorrupt, "nextn_predict_layers");
}

TEST(GgufFamiliesTest, Qwen35WithExpertsAndQwen3Next) {
  for (const char* name : {"qwen35moe", "qwen3next"}) {
    GgufKeys keys = delta_keys(name);
    keys.numbers.insert({{"expert_count", 6},
                         {"expert_used_count", 2},
                         {"expert_feed_forward_length", 20},
                         {"expert_shared_feed_forward_length", 24}});
    const ModelSpec s = valid_spec(keys);
    EXPECT_EQ(s.architecture, name);
    EXPECT_EQ(s.n_experts, 6U);
    EXPECT_EQ(s.expert_ffn, 20U);
    EXPECT_EQ(s.shared_ffn, 24U);
    EXPECT_TRUE(s.expert_renormalised);
    EXPECT_EQ(s.mixer_heads_in_turn, s.architecture == "qwen35moe");
    GgufKeys wrong = keys;
    wrong.numbers.erase("expert_shared_feed_forward_length");
    expect_refused(wrong, StatusCode::kCorrupt, "expert_shared_feed_forward_length");
    for (const char* key : {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size",
                            "ssm.time_step_rank", "ssm.group_count"}) {
      wrong = keys;
      wrong.numbers.erase(key);
      expect_refused(wrong, StatusCode::kCorrupt, key);
    }
    wrong = keys;
    wrong.numbers["ssm.group_count"] = 3;
    expect_refused(wrong, StatusCode::kInvalidArgument, "groups of scans: 3");
  }
}

}  // namespace
}  // namespace qsf
