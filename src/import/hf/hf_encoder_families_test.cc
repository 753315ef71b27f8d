// SPDX-License-Identifier: MIT
//
// The config.json of published encoders.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "import/hf/hf_config.h"
#include "import/testing/hf_folder.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

Json modernbert_base() {
  return Json::parse(R"({"architectures":["ModernBertForMaskedLM"],"attention_bias":false,
    "attention_dropout":0.0,"bos_token_id":50281,"classifier_activation":"gelu",
    "classifier_bias":false,"classifier_dropout":0.0,"classifier_pooling":"mean",
    "cls_token_id":50281,"decoder_bias":true,"deterministic_flash_attn":false,
    "embedding_dropout":0.0,"eos_token_id":50282,"global_attn_every_n_layers":3,
    "global_rope_theta":160000.0,"gradient_checkpointing":false,"hidden_activation":"gelu",
    "hidden_size":768,"initializer_cutoff_factor":2.0,"initializer_range":0.02,
    "intermediate_size":1152,"layer_norm_eps":1e-05,"local_attention":128,
    "local_rope_theta":10000.0,"max_position_embeddings":8192,"mlp_bias":false,"mlp_dropout":0.0,
    "model_type":"modernbert","norm_bias":false,"norm_eps":1e-05,"num_attention_heads":12,
    "num_hidden_layers":22,"pad_token_id":50283,"position_embedding_type":"absolute",
    "sep_token_id":50282,"tie_word_embeddings":true,"torch_dtype":"float32","vocab_size":50368})");
}

TEST(HfEncoderFamiliesTest, ModernBert) {
  Json json = modernbert_base();
  const HfConfig config = parsed(json);
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "modernbert");
  expect_sizes(s, 768, 22, 12, 12, 64, 1152);
  EXPECT_EQ(s.norm, NormType::kLayerNorm);
  EXPECT_EQ(s.norm_epsilon, 1e-5F);
  EXPECT_EQ(s.activation, Activation::kGeluErf);
  EXPECT_TRUE(s.gated_ffn && s.bidirectional && s.embeds_only && s.tied_head);
  EXPECT_EQ(s.rope.theta, 160000.0F);
  EXPECT_EQ(s.local_rope_theta, 10000.0F);
  for (std::uint32_t layer = 0; layer < 22; ++layer) {
    const bool global = layer % 3 == 0;
    EXPECT_EQ(s.window_of(layer), global ? 0U : 65U) << layer;
    EXPECT_EQ(s.rope_of(layer), global ? LayerRope::kMain : LayerRope::kLocal) << layer;
  }
  EXPECT_EQ(s.pooling, std::nullopt);
  // The class without a head, and a file as transformers 5 saves it.
  json["architectures"] = {"ModernBertModel"};
  EXPECT_EQ(parsed(json).spec.sliding_window, s.sliding_window);
  for (const char* key : {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}) {
    json.erase(key);
  }
  EXPECT_EQ(parsed(json).spec.layer_rope, s.layer_rope);
  json["layer_types"] = Json::array();
  for (int i = 0; i < 22; ++i) {
    json["layer_types"].push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 80000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}};
  const ModelSpec saved = parsed(json).spec;
  EXPECT_EQ(saved.window_of(0), 65U);
  EXPECT_EQ(saved.window_of(1), 0U);
  EXPECT_EQ(saved.rope.theta, 80000.0F);
  EXPECT_EQ(saved.local_rope_theta, 5000.0F);
}

TEST(HfEncoderFamiliesTest, RowsOfOtherFamiliesDoNotSeeBothSides) {
  Json llama = Json::parse(kTinyLlamaConfig);
  expect_refused(llama, "is_causal", false);
  expect_refused(llama, "use_bidirectional_attention", true);
  expect_refused(llama, "use_bidirectional_attention", "all");
  llama["architectures"] = {"Qwen3Model"};
  expect_refused(llama, "is_causal", false);
  llama["architectures"] = {"Gemma3TextModel"};
  expect_refused(llama, "is_causal", false);
  llama["use_bidirectional_attention"] = false;
  llama["is_causal"] = true;
  EXPECT_FALSE(parsed(llama).spec.bidirectional);
  Json modernbert = modernbert_base();
  modernbert["is_causal"] = false;
  EXPECT_TRUE(parsed(modernbert).spec.bidirectional);
}

TEST(HfEncoderFamiliesTest, ModernBertRefusesWhatItCannotRun) {
  for (const char* key : {"norm_bias", "attention_bias", "mlp_bias"}) {
    expect_refused(modernbert_base(), key, true);
  }
  expect_refused(modernbert_base(), "hidden_activation", "mish");
  Json json = modernbert_base();
  json["architectures"] = {"ModernBertForSequenceClassification"};
  EXPECT_THAT(message_of(json), HasSubstr("ModernBertForSequenceClassification"));
  expect_statuses(modernbert_base(), {"layer_types", "rope_parameters", "rope_scaling"});
}

}  // namespace
}  // namespace qsf
