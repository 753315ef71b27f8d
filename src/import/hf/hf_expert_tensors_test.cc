// SPDX-License-Identifier: MIT
//
// Where folders keep the tensors of mixtures of experts: of dense layers among the others, of the
// experts, stacked or one by one, of shared experts; and what is said of those that do not fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using Json = nlohmann::json;
using K = TensorKind;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

// Hidden 12, 3 heads of 4 columns, 9 tokens; layer 0 is dense and 7 wide, layer 1 has 2 experts, 5
// wide, and a shared one, 6 wide.
Json qwen2_config() {
  return Json::parse(R"({"architectures":["Qwen2MoeForCausalLM"],"hidden_size":12,
    "intermediate_size":7,"num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":3,
    "vocab_size":9,"max_position_embeddings":5,"num_experts":2,"num_experts_per_tok":1,
    "moe_intermediate_size":5,"shared_expert_intermediate_size":6,"mlp_only_layers":[0],
    "qkv_bias":false,"tie_word_embeddings":true})");
}

TensorShapes qwen2_shapes() {
  TensorShapes shapes = {{"model.embed_tokens.weight", {9, 12}},
                         {"model.norm.weight", {12}},
                         {"model.layers.0.mlp.gate_proj.weight", {7, 12}},
                         {"model.layers.0.mlp.up_proj.weight", {7, 12}},
                         {"model.layers.0.mlp.down_proj.weight", {12, 7}},
                         {"model.layers.1.mlp.gate.weight", {2, 12}},
                         {"model.layers.1.mlp.shared_expert_gate.weight", {1, 12}},
                         {"model.layers.1.mlp.shared_expert.gate_proj.weight", {6, 12}},
                         {"model.layers.1.mlp.shared_expert.up_proj.weight", {6, 12}},
                         {"model.layers.1.mlp.shared_expert.down_proj.weight", {12, 6}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string at = layer;
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      shapes[at + "self_attn." + name + ".weight"] = {12, 12};
    }
    shapes[at + "input_layernorm.weight"] = {12};
    shapes[at + "post_attention_layernorm.weight"] = {12};
  }
  for (const char* expert : {"0", "1"}) {
    const std::string at = std::string("model.layers.1.mlp.experts.") + expert;
    shapes[at + ".gate_proj.weight"] = {5, 12};
    shapes[at + ".up_proj.weight"] = {5, 12};
    shapes[at + ".down_proj.weight"] = {12, 5};
  }
  return shapes;
}

// A model of random tensors that was opened, or why it was not.
struct OpenedExperts {
  OpenedExperts(const Json& config, const TensorShapes& shapes) {
    Rng rng(3);
    tensors = random_tensors(shapes, rng);
    write_model(folder, config.dump(), tensors);
    auto result = HfModel::open(folder.path());
    if (result) {
      model = *std::move(result);
    } else {
      message = result.error().message();
    }
  }

  std::vector<float> read(std::uint32_t layer, K kind, std::uint32_t expert = 0) const {
    const auto list = model->tensors(SectionKind::kLayer, layer);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != kind || list[i].expert != expert) continue;
      std::vector<float> all(std::size_t{list[i].rows} * list[i].cols);
      EXPECT_TRUE(model->read_rows(SectionKind::kLayer, layer, i, 0, all).ok());
      return all;
    }
    return {};
  }

  TemporaryFolder folder;
  TestTensors tensors;
  std::unique_ptr<HfModel> model;
  std::string message;
};

TEST(HfExpertTensorsTest, DenseLayersAndSharedExperts) {
  const OpenedExperts m(qwen2_config(), qwen2_shapes());
  ASSERT_NE(m.model, nullptr) << m.message;
  std::vector<K> dense;
  for (const SourceTensor& t : m.model->tensors(SectionKind::kLayer, 0)) dense.push_back(t.kind);
  EXPECT_THAT(dense, ElementsAre(K::kAttnNorm, K::kAttnQ, K::kAttnK, K::kAttnV, K::kAttnO,
                                 K::kFfnNorm, K::kFfnGate, K::kFfnUp, K::kFfnDown));
  std::vector<K> sparse;
  for (const SourceTensor& t : m.model->tensors(SectionKind::kLayer, 1)) sparse.push_back(t.kind);
  // The always-read parts come before the experts.
  EXPECT_THAT(sparse, ElementsAre(K::kAttnNorm, K::kAttnQ, K::kAttnK, K::kAttnV, K::kAttnO,
                                  K::kFfnNorm, K::kRouter, K::kSharedWeight, K::kSharedGate,
                                  K::kSharedUp, K::kSharedDown, K::kExpertGate, K::kExpertUp,
                                  K::kExpertDown, K::kExpertGate, K::kExpertUp, K::kExpertDown));
  const std::string at = "model.layers.1.mlp.";
  EXPECT_EQ(m.read(1, K::kSharedWeight), m.tensors.at(at + "shared_expert_gate.weight").values);
  EXPECT_EQ(m.read(1, K::kSharedUp), m.tensors.at(at + "shared_expert.up_proj.weight").values);
  EXPECT_EQ(m.read(1, K::kExpertDown, 1), m.tensors.at(at + "experts.1.down_proj.weight").values);
}

TEST(HfExpertTensorsTest, WhatIsMissingOrMisshapenIsNamed) {
  for (const char* name : {"model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.gate.weight",
                           "model.layers.1.mlp.shared_expert_gate.weight",
                           "model.layers.1.mlp.shared_expert.down_proj.weight",
                           "model.layers.1.mlp.experts.1.up_proj.weight"}) {
    auto shapes = qwen2_shapes();
    shapes.erase(name);
    EXPECT_THAT(OpenedExperts(qwen2_config(), shapes).message,
                HasSubstr("\"" + std::string(name) + "\" is missing"));
    shapes = qwen2_shapes();
    ++shapes[name][0];
    EXPECT_THAT(OpenedExperts(qwen2_config(), shapes).message,
                HasSubstr("\"" + std::string(name) + "\": shape ["));
  }
  auto shapes = qwen2_shapes();
  shapes["model.layers.1.mlp.experts.2.up_proj.weight"] = {5, 12};
  EXPECT_THAT(OpenedExperts(qwen2_config(), shapes).message, HasSubstr("experts.2.up_proj"));
  shapes = qwen2_shapes();
  shapes["model.layers.0.mlp.gate.weight"] = {2, 12};  // a router in a dense layer
  EXPECT_THAT(OpenedExperts(qwen2_config(), shapes).message, HasSubstr("layers.0.mlp.gate.weight"));
}

// The block behind the layers is left out, with a notice.
TEST(HfExpertTensorsTest, Glm4MoeHasABlockOfFurtherTokens) {
  Json config = qwen2_config();
  config["architectures"] = {"Glm4MoeForCausalLM"};
  for (const char* key : {"mlp_only_layers", "num_experts", "qkv_bias"}) config.erase(key);
  config["n_routed_experts"] = 2;
  config["first_k_dense_replace"] = 1;
  config["num_nextn_predict_layers"] = 1;
  auto shapes = qwen2_shapes();
  const std::string at = "model.layers.1.mlp.";
  shapes.erase(at + "shared_expert_gate.weight");
  for (const char* name : {"gate", "up", "down"}) {
    const std::string tail = std::string(".") + name + "_proj.weight";
    shapes.erase(at + "shared_expert" + tail);
    shapes[at + "shared_experts" + tail] = {5, 12};
  }
  shapes[at + "shared_experts.down_proj.weight"] = {12, 5};
  const char* bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  shapes[bias] = {2};
  shapes["model.layers.2.eh_proj.weight"] = {12, 24};
  shapes["model.layers.2.mlp.gate.weight"] = {2, 12};
  const OpenedExperts m(config, shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  EXPECT_EQ(m.read(1, K::kRouterCorrection), m.tensors.at(bias).values);
  EXPECT_EQ(m.read(1, K::kSharedGate), m.tensors.at(at + "shared_experts.gate_proj.weight").values);
  EXPECT_THAT(m.model->warnings(),
              testing::Contains(HasSubstr("left out 2 tensors that predict further tokens")));
  config["num_nextn_predict_layers"] = 0;
  EXPECT_THAT(OpenedExperts(config, shapes).message, HasSubstr("model.layers.2."));
  config["num_nextn_predict_layers"] = 1;
  config["use_qk_norm"] = true;
  EXPECT_THAT(OpenedExperts(config, shapes).message,
              HasSubstr("\"model.layers.0.self_attn.q_norm.weight\" is missing"));
  config["use_qk_norm"] = false;
  shapes.erase(bias);
  EXPECT_THAT(OpenedExperts(config, shapes).message,
              HasSubstr("\"" + std::string(bias) + "\" is missing"));
}

}  // namespace
}  // namespace qsf
