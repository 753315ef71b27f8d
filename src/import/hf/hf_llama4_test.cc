// SPDX-License-Identifier: MIT
//
// Llama 4: published config.json files, and matrices of all experts, [experts, inputs, outputs].

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "import/hf/hf_config.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/published_config.h"

namespace qsf {
namespace {

using K = TensorKind;
using testing::HasSubstr;
using namespace testing_support;

Json scout() {
  return Json::parse(R"({"architectures":["Llama4ForConditionalGeneration"],
    "boi_token_index":200080,"eoi_token_index":200081,"image_token_index":200092,
    "model_type":"llama4","text_config":{"attention_bias":false,"attention_chunk_size":8192,
    "attention_dropout":0.0,"attn_scale":0.1,"attn_temperature_tuning":4,"bos_token_id":200000,
    "eos_token_id":[200001,200007,200008],"floor_scale":8192,"for_llm_compressor":false,
    "head_dim":128,"hidden_act":"silu","hidden_size":5120,"intermediate_size":8192,
    "intermediate_size_mlp":16384,"interleave_moe_layer_step":1,
    "max_position_embeddings":10485760,"model_type":"llama4_text","no_rope_layers":[],
    "num_attention_heads":40,"num_experts_per_tok":1,"num_hidden_layers":48,
    "num_key_value_heads":8,"num_local_experts":16,"output_router_logits":false,
    "pad_token_id":200018,"rms_norm_eps":1e-05,"rope_scaling":{"factor":16.0,
    "high_freq_factor":1.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,
    "rope_type":"llama3"},"rope_theta":500000.0,"router_aux_loss_coef":0.001,
    "router_jitter_noise":0.0,"torch_dtype":"bfloat16","use_cache":true,"use_qk_norm":true,
    "vocab_size":202048},"tie_word_embeddings":false,"torch_dtype":"bfloat16",
    "vision_config":{"hidden_size":1408}})");
}

Json text_of(const Json& whole) {
  Json text = whole["text_config"];
  text["architectures"] = {"Llama4ForCausalLM"};
  return text;
}

TEST(HfLlama4Test, Scout) {
  const HfConfig config = parsed(scout());
  const ModelSpec& s = config.spec;
  EXPECT_EQ(s.architecture, "llama4");
  EXPECT_TRUE(config.multimodal);
  expect_sizes(s, 5120, 48, 40, 8, 128, 16384);
  EXPECT_EQ(s.rope.theta, 500000.0F);
  EXPECT_EQ(s.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(s.rope_of(2), LayerRope::kMain);
  EXPECT_EQ(s.rope_of(3), LayerRope::kNone);
  EXPECT_EQ(s.window_of(2), 8192U);
  EXPECT_EQ(s.window_of(3), 0U);
  EXPECT_EQ(s.window_at(2, 8191), 8192U);
  EXPECT_EQ(s.window_at(2, 8192), 1U);
  EXPECT_TRUE(s.chunked_windows);
  EXPECT_TRUE(s.unit_head_norms);
  EXPECT_EQ(s.query_position_scale, 0.1F);
  EXPECT_EQ(s.query_position_step, 8192U);
  EXPECT_TRUE(!s.scales_queries(2) && s.scales_queries(3));
  EXPECT_EQ(s.n_experts, 16U);
  EXPECT_EQ(s.n_experts_used, 1U);
  EXPECT_EQ(s.expert_ffn, 8192U);
  EXPECT_EQ(s.shared_ffn, 8192U);
  EXPECT_EQ(s.expert_scoring, ExpertScoring::kSigmoid);
  EXPECT_TRUE(s.weighs_expert_inputs);
  EXPECT_FALSE(s.expert_renormalised);
  EXPECT_TRUE(s.expert_layers.empty());
  EXPECT_EQ(parsed(text_of(scout())).spec, [&] {
    ModelSpec same = s;
    same.source = "Hugging Face Llama4ForCausalLM";
    return same;
  }());
}

TEST(HfLlama4Test, Maverick) {
  Json json = text_of(scout());
  json["interleave_moe_layer_step"] = 2;
  json["num_local_experts"] = 128;
  json["rope_scaling"] = nullptr;
  json["use_qk_norm"] = false;
  json["attn_temperature_tuning"] = true;
  const ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.rope.scaling, RopeScaling::kNone);
  EXPECT_FALSE(s.unit_head_norms);
  EXPECT_TRUE(!s.has_experts(0) && s.has_experts(1));
  EXPECT_EQ(s.query_position_step, 8192U);
  // As the list that newer files have.
  json["moe_layers"] = Json::array();
  for (int layer = 1; layer < 48; layer += 2) json["moe_layers"].push_back(layer);
  EXPECT_EQ(parsed(json).spec, s);
}

TEST(HfLlama4Test, KeysOfLayersAreRead) {
  Json json = text_of(scout());
  json["num_hidden_layers"] = 3;
  json["no_rope_layers"] = {0, 1, 1};
  ModelSpec s = parsed(json).spec;
  EXPECT_EQ(s.rope_of(0), LayerRope::kNone);
  EXPECT_EQ(s.sliding_window, (std::vector<std::uint32_t>{0, 8192, 8192}));
  json["layer_types"] = {"chunked_attention", "full_attention", "chunked_attention"};
  json["attention_chunk_size"] = 64;
  EXPECT_EQ(parsed(json).spec.sliding_window, (std::vector<std::uint32_t>{64, 0, 64}));
  for (const Json& off : {Json(false), Json(0)}) {
    json["attn_temperature_tuning"] = off;
    s = parsed(json).spec;
    EXPECT_EQ(s.query_position_scale, 0.0F);
    EXPECT_EQ(s.query_position_step, 0U);
  }
}

TEST(HfLlama4Test, RefusesWhatItCannotRun) {
  const Json json = text_of(scout());
  expect_refused(json, "attention_chunk_size", nullptr);
  expect_refused(json, "hidden_act", "gelu");
  expect_refused(json, "model_type", "llama4_moe");
  expect_refused(json, "moe_layers", Json::array());
  Json wrong = json;
  wrong["layer_types"] = std::vector<std::string>(48, "sliding_attention");
  EXPECT_THAT(message_of(wrong), HasSubstr("layer_types: \"sliding_attention\""));
  wrong = json;
  wrong["layer_types"] = {"full_attention"};
  EXPECT_THAT(message_of(wrong), HasSubstr("layer_types: expected a list of 48"));
  wrong = json;
  wrong["moe_layers"] = {"all"};
  EXPECT_THAT(message_of(wrong), HasSubstr("moe_layers: \"all\", expected a layer"));
  wrong = json;
  wrong["num_experts_per_tok"] = 17;
  EXPECT_THAT(message_of(wrong), HasSubstr("num_experts_per_tok"));
  expect_statuses(json, {"layer_types", "moe_layers", "no_rope_layer_interval"});
}

Json tiny() {
  Json json = text_of(scout());
  for (const auto& [key, value] : std::map<std::string, int>{{"head_dim", 4},
                                                             {"hidden_size", 6},
                                                             {"intermediate_size", 3},
                                                             {"intermediate_size_mlp", 5},
                                                             {"interleave_moe_layer_step", 2},
                                                             {"num_attention_heads", 2},
                                                             {"num_hidden_layers", 2},
                                                             {"num_key_value_heads", 1},
                                                             {"num_local_experts", 2},
                                                             {"vocab_size", 9},
                                                             {"bos_token_id", 1},
                                                             {"pad_token_id", 3},
                                                             {"eos_token_id", 2}}) {
    json[key] = value;
  }
  return json;
}

std::map<std::string, std::vector<std::uint64_t>> tiny_shapes() {
  std::map<std::string, std::vector<std::uint64_t>> shapes = {
      {"model.embed_tokens.weight", {9, 6}},
      {"lm_head.weight", {9, 6}},
      {"model.norm.weight", {6}},
      {"model.layers.0.feed_forward.gate_proj.weight", {5, 6}},
      {"model.layers.0.feed_forward.up_proj.weight", {5, 6}},
      {"model.layers.0.feed_forward.down_proj.weight", {6, 5}},
      {"model.layers.1.feed_forward.router.weight", {2, 6}},
      {"model.layers.1.feed_forward.shared_expert.gate_proj.weight", {3, 6}},
      {"model.layers.1.feed_forward.shared_expert.up_proj.weight", {3, 6}},
      {"model.layers.1.feed_forward.shared_expert.down_proj.weight", {6, 3}},
      {"model.layers.1.feed_forward.experts.gate_up_proj", {2, 6, 6}},
      {"model.layers.1.feed_forward.experts.down_proj", {2, 3, 6}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string at = layer;
    shapes[at + "self_attn.q_proj.weight"] = {8, 6};
    shapes[at + "self_attn.k_proj.weight"] = {4, 6};
    shapes[at + "self_attn.v_proj.weight"] = {4, 6};
    shapes[at + "self_attn.o_proj.weight"] = {6, 8};
    shapes[at + "input_layernorm.weight"] = {6};
    shapes[at + "post_attention_layernorm.weight"] = {6};
  }
  return shapes;
}

TestTensors tiny_tensors(const std::map<std::string, std::vector<std::uint64_t>>& shapes) {
  Rng rng(4);
  TestTensors tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = random_tensor(shape, rng);
  return tensors;
}

TEST(HfLlama4Test, MatricesOfAllExpertsAreTakenApart) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_tensors(tiny_shapes());
  write_model(folder, tiny().dump(), tensors);
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const auto list = (*model)->tensors(SectionKind::kLayer, 1);
  const auto& both = tensors.at("model.layers.1.feed_forward.experts.gate_up_proj").values;
  const auto& down = tensors.at("model.layers.1.feed_forward.experts.down_proj").values;
  int n_found = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const SourceTensor& tensor = list[i];
    std::vector<float> rows(std::size_t{tensor.rows} * tensor.cols);
    ASSERT_TRUE((*model)->read_rows(SectionKind::kLayer, 1, i, 0, rows).ok());
    const auto expect_at = [&](const std::vector<float>& stored, std::size_t n_outputs,
                               std::size_t first) {
      ++n_found;
      for (std::size_t row = 0; row < tensor.rows; ++row) {
        for (std::size_t c = 0; c < tensor.cols; ++c) {
          EXPECT_EQ(rows[row * tensor.cols + c],
                    stored[(tensor.expert * tensor.cols + c) * n_outputs + first + row]);
        }
      }
    };
    if (tensor.kind == K::kExpertGate) expect_at(both, 6, 0);
    if (tensor.kind == K::kExpertUp) expect_at(both, 6, 3);
    if (tensor.kind == K::kExpertDown) expect_at(down, 6, 0);
  }
  EXPECT_EQ(n_found, 6);
}

TEST(HfLlama4Test, ShapesAndMissingTensorsAreRefusedByName) {
  for (const auto& [name, shape] : std::map<std::string, std::vector<std::uint64_t>>{
           {"model.layers.1.feed_forward.experts.gate_up_proj", {2, 6, 3}},
           {"model.layers.1.feed_forward.experts.down_proj", {3, 3, 6}},
           {"model.layers.1.feed_forward.router.weight", {3, 6}},
           {"model.layers.0.feed_forward.up_proj.weight", {3, 6}}}) {
    for (const bool missing : {false, true}) {
      const TemporaryFolder folder;
      auto shapes = tiny_shapes();
      shapes[name] = shape;
      if (missing) shapes.erase(name);
      write_model(folder, tiny().dump(), tiny_tensors(shapes));
      const auto model = HfModel::open(folder.path());
      ASSERT_FALSE(model) << name;
      EXPECT_THAT(model.error().message(), HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace qsf
