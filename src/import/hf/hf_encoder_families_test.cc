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

// As published, of version 1.5.
Json nomic_embed() {
  return Json::parse(R"({"activation_function":"swiglu","architectures":["NomicBertModel"],
    "attn_pdrop":0.0,"auto_map":{"AutoModel":"nomic-ai/nomic-bert-2048--m.NomicBertModel"},
    "bos_token_id":null,"causal":false,"dense_seq_output":true,"embd_pdrop":0.0,
    "eos_token_id":null,"fused_bias_fc":true,"fused_dropout_add_ln":true,
    "initializer_range":0.02,"layer_norm_epsilon":1e-12,"max_trained_positions":2048,
    "mlp_fc1_bias":false,"mlp_fc2_bias":false,"model_type":"nomic_bert","n_embd":768,"n_head":12,
    "n_inner":3072,"n_layer":12,"n_positions":8192,"pad_vocab_size_multiple":64,
    "parallel_block":false,"parallel_block_tied_norm":false,"prenorm":false,
    "qkv_proj_bias":false,"reorder_and_upcast_attn":false,"resid_pdrop":0.0,
    "rotary_emb_base":1000,"rotary_emb_fraction":1.0,"rotary_emb_interleaved":false,
    "rotary_emb_scale_base":null,"rotary_scaling_factor":null,
    "scale_attn_by_inverse_layer_idx":false,"scale_attn_weights":true,
    "summary_activation":null,"summary_type":"cls_index","torch_dtype":"float32",
    "transformers_version":"4.37.2","type_vocab_size":2,"use_cache":true,"use_flash_attn":true,
    "use_rms_norm":false,"use_xentropy":true,"vocab_size":30528})");
}

// The same model as transformers 5 saves it.
Json saved_nomic() {
  return Json::parse(R"({"architectures":["NomicBertModel"],"attention_probs_dropout_prob":0.0,
    "bos_token_id":null,"classifier_dropout":null,"dtype":"float32","eos_token_id":null,
    "head_dim":64,"hidden_act":"silu","hidden_dropout_prob":0.0,"hidden_size":768,
    "initializer_range":0.02,"intermediate_size":3072,"layer_norm_eps":1e-12,
    "max_position_embeddings":2048,"model_type":"nomic_bert","num_attention_heads":12,
    "num_hidden_layers":12,"pad_token_id":0,"rope_parameters":{"rope_theta":1000.0,
    "rope_type":"default"},"transformers_version":"5.23.0","type_vocab_size":2,
    "vocab_size":30528})");
}

TEST(HfEncoderFamiliesTest, NomicBert) {
  for (const Json& json : {nomic_embed(), saved_nomic()}) {
    const ModelSpec s = parsed(json).spec;
    EXPECT_EQ(s.architecture, "nomic-bert");
    EXPECT_EQ(s.hidden, 768U);
    EXPECT_EQ(s.ffn, 3072U);
    EXPECT_EQ(s.n_layers, 12U);
    EXPECT_EQ(s.n_heads, 12U);
    EXPECT_EQ(s.n_kv_heads, 12U);
    EXPECT_EQ(s.head_dim, 64U);
    EXPECT_EQ(s.n_vocab, 30528U);
    EXPECT_EQ(s.max_positions, 2048U);
    EXPECT_EQ(s.norm, NormType::kLayerNorm);
    EXPECT_EQ(s.norm_epsilon, 1e-12F);
    EXPECT_EQ(s.activation, Activation::kSilu);
    EXPECT_EQ(s.rope, (RopeSpec{.theta = 1000.0F}));
    EXPECT_EQ(s.pooling, Pooling::kMean);
    EXPECT_TRUE(s.gated_ffn && s.norms_stream && s.bidirectional && s.embeds_only && s.tied_head);
  }
  Json both = saved_nomic();  // transformers keeps the keys that it does not know
  both.update(Json{{"n_embd", 768}, {"rotary_emb_base", 1000}, {"qkv_proj_bias", false}});
  EXPECT_EQ(parsed(both).spec, parsed(saved_nomic()).spec);
  Json bare = saved_nomic();
  for (const char* key : {"rope_parameters", "layer_norm_eps", "hidden_act"}) bare.erase(key);
  EXPECT_EQ(parsed(bare).spec, parsed(saved_nomic()).spec);
  Json head = saved_nomic();
  head["architectures"] = {"NomicBertForMaskedLM"};
  EXPECT_TRUE(parsed(head).spec.embeds_only);
}

TEST(HfEncoderFamiliesTest, NomicBertsContextEndsWhereItsRopeChanges) {
  Json json = nomic_embed();
  json["n_positions"] = 512;
  EXPECT_EQ(parsed(json).spec.max_positions, 512U);
  json = nomic_embed();
  json["max_trained_positions"] = 4096;
  EXPECT_EQ(parsed(json).spec.max_positions, 4096U);
  json.erase("max_trained_positions");
  json["rotary_scaling_factor"] = 2;
  EXPECT_EQ(parsed(json).spec.max_positions, 2048U);
}

TEST(HfEncoderFamiliesTest, NomicBertRefusesWhatItCannotRun) {
  for (const char* key :
       {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm", "parallel_block",
        "use_rms_norm", "causal", "rotary_emb_interleaved", "scale_attn_by_inverse_layer_idx"}) {
    expect_refused(nomic_embed(), key, true);
  }
  // The class has biases and no RoPE where a file does not say otherwise.
  for (const char* key : {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "rotary_emb_fraction",
                          "activation_function"}) {
    Json json = nomic_embed();
    json.erase(key);
    EXPECT_THAT(message_of(json), HasSubstr(key));
  }
  expect_refused(nomic_embed(), "scale_attn_weights", false);
  expect_refused(nomic_embed(), "rotary_emb_fraction", 0.5);
  expect_refused(nomic_embed(), "rotary_emb_scale_base", 512);
  expect_refused(nomic_embed(), "activation_function", "gelu");
  expect_refused(saved_nomic(), "hidden_act", "gelu");
  expect_refused(saved_nomic(), "is_decoder", true);
  for (const char* key : {"num_experts", "moe_every_n_layers"}) {
    for (Json json : {nomic_embed(), saved_nomic()}) {
      json[key] = 2;
      EXPECT_THAT(message_of(json), HasSubstr("nomic-bert-moe"));
      json[key] = -1;
      EXPECT_EQ(parsed(json).spec.n_experts, 0U);
    }
  }
  Json json = nomic_embed();
  json["architectures"] = {"NomicBertForSequenceClassification"};
  EXPECT_THAT(message_of(json), HasSubstr("NomicBertForSequenceClassification"));
  json = nomic_embed();
  json["n_head"] = 7;
  EXPECT_THAT(message_of(json), HasSubstr("n_head"));
}

}  // namespace
}  // namespace qsf
