// SPDX-License-Identifier: MIT
//
// How each family stores its tensors, and that they come out as a .qsf file wants them: rows of
// fused matrices, heads that interleave, gains less one, positions behind an offset, and which
// tensors a configuration adds or leaves out.

#include "import/hf/hf_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using namespace testing_support;

// Sizes that tell every dimension from every other: hidden 12, ffn 7, 9 tokens, 5 positions; the
// heads are 3 of 4 columns unless a test changes them.
Json config_of(const char* architecture, const char* more) {
  Json json = Json::parse(R"({"hidden_size":12,"intermediate_size":7,"num_hidden_layers":1,
    "num_attention_heads":3,"num_key_value_heads":3,"vocab_size":9,"max_position_embeddings":5})");
  json["architectures"] = {architecture};
  json.update(Json::parse(more));
  return json;
}

using Shapes = std::vector<std::pair<const char*, std::vector<std::uint64_t>>>;

TestTensors random_tensors(const Shapes& shapes) {
  Rng rng(3);
  TestTensors tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = random_tensor(shape, rng);
  return tensors;
}

// A model of random tensors that was opened, or why it was not.
struct Opened {
  Opened(const Json& config, const Shapes& shapes) : tensors(random_tensors(shapes)) {
    write_model(folder, config.dump(), tensors);
    auto result = HfModel::open(folder.path());
    if (result) {
      model = *std::move(result);
    } else {
      message = result.error().message();
    }
  }

  const std::vector<float>& stored(const char* name) const { return tensors.at(name).values; }

  // Rows [first, first + n) of a stored tensor of `cols` columns.
  std::vector<float> rows(const char* name, std::size_t cols, std::size_t first,
                          std::size_t n) const {
    const auto begin = stored(name).begin() + static_cast<std::ptrdiff_t>(first * cols);
    return {begin, begin + static_cast<std::ptrdiff_t>(n * cols)};
  }

  // A whole tensor through the interface, two rows at a time, or nothing when there is none.
  std::optional<std::vector<float>> read(SectionKind section, TensorKind kind) const {
    const auto list = model->tensors(section, 0);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != kind) continue;
      std::vector<float> all;
      for (std::uint32_t row = 0; row < list[i].rows; row += 2) {
        const std::uint32_t n = std::min(2U, list[i].rows - row);
        std::vector<float> part(std::size_t{n} * list[i].cols);
        EXPECT_TRUE(model->read_rows(section, 0, i, row, part).ok());
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    }
    return std::nullopt;
  }
  std::optional<std::vector<float>> layer(TensorKind kind) const {
    return read(SectionKind::kLayer, kind);
  }

  TemporaryFolder folder;
  TestTensors tensors;
  std::unique_ptr<HfModel> model;
  std::string message;
};

std::vector<float> plus_one(std::vector<float> values) {
  for (float& value : values) value += 1.0F;
  return values;
}

const Shapes kPhi3 = {{"model.embed_tokens.weight", {9, 12}},
                      {"model.layers.0.input_layernorm.weight", {12}},
                      {"model.layers.0.self_attn.qkv_proj.weight", {20, 12}},
                      {"model.layers.0.self_attn.o_proj.weight", {12, 12}},
                      {"model.layers.0.post_attention_layernorm.weight", {12}},
                      {"model.layers.0.mlp.gate_up_proj.weight", {14, 12}},
                      {"model.layers.0.mlp.down_proj.weight", {12, 7}},
                      {"model.norm.weight", {12}},
                      {"lm_head.weight", {9, 12}}};

TEST(HfTensorsTest, Phi3PartsOfFusedMatrices) {
  // 3 heads of queries and 1 of keys and values: 12, 4 and 4 rows.
  const Opened m(config_of("Phi3ForCausalLM", R"({"num_key_value_heads":1})"), kPhi3);
  ASSERT_NE(m.model, nullptr) << m.message;
  const char* qkv = "model.layers.0.self_attn.qkv_proj.weight";
  const char* gate_up = "model.layers.0.mlp.gate_up_proj.weight";
  EXPECT_EQ(m.layer(TensorKind::kAttnQ), m.rows(qkv, 12, 0, 12));
  EXPECT_EQ(m.layer(TensorKind::kAttnK), m.rows(qkv, 12, 12, 4));
  EXPECT_EQ(m.layer(TensorKind::kAttnV), m.rows(qkv, 12, 16, 4));
  EXPECT_EQ(m.layer(TensorKind::kFfnGate), m.rows(gate_up, 12, 0, 7));
  EXPECT_EQ(m.layer(TensorKind::kFfnUp), m.rows(gate_up, 12, 7, 7));
  EXPECT_EQ(m.layer(TensorKind::kAttnO), m.stored("model.layers.0.self_attn.o_proj.weight"));
  const Opened wrong(config_of("Phi3ForCausalLM", R"({"num_key_value_heads":3})"), kPhi3);
  EXPECT_THAT(wrong.message, HasSubstr("shape [20, 12], expected [36, 12]"));
}

const Shapes kBloom = {{"word_embeddings.weight", {9, 12}},
                       {"word_embeddings_layernorm.weight", {12}},
                       {"word_embeddings_layernorm.bias", {12}},
                       {"h.0.input_layernorm.weight", {12}},
                       {"h.0.input_layernorm.bias", {12}},
                       {"h.0.self_attention.query_key_value.weight", {36, 12}},
                       {"h.0.self_attention.query_key_value.bias", {36}},
                       {"h.0.self_attention.dense.weight", {12, 12}},
                       {"h.0.self_attention.dense.bias", {12}},
                       {"h.0.post_attention_layernorm.weight", {12}},
                       {"h.0.post_attention_layernorm.bias", {12}},
                       {"h.0.mlp.dense_h_to_4h.weight", {48, 12}},
                       {"h.0.mlp.dense_h_to_4h.bias", {48}},
                       {"h.0.mlp.dense_4h_to_h.weight", {12, 48}},
                       {"h.0.mlp.dense_4h_to_h.bias", {12}},
                       {"ln_f.weight", {12}},
                       {"ln_f.bias", {12}}};

TEST(HfTensorsTest, BloomHeadsInterleave) {
  const Opened m(config_of("BloomForCausalLM", "{}"), kBloom);
  ASSERT_NE(m.model, nullptr) << m.message;
  constexpr TensorKind kWeights[] = {TensorKind::kAttnQ, TensorKind::kAttnK, TensorKind::kAttnV};
  constexpr TensorKind kBiases[] = {TensorKind::kAttnQBias, TensorKind::kAttnKBias,
                                    TensorKind::kAttnVBias};
  for (std::size_t part = 0; part < 3; ++part) {
    std::vector<float> weight;
    std::vector<float> bias;
    for (std::size_t head = 0; head < 3; ++head) {
      const std::size_t first = (head * 3 + part) * 4;
      const auto w = m.rows("h.0.self_attention.query_key_value.weight", 12, first, 4);
      const auto b = m.rows("h.0.self_attention.query_key_value.bias", 1, first, 4);
      weight.insert(weight.end(), w.begin(), w.end());
      bias.insert(bias.end(), b.begin(), b.end());
    }
    EXPECT_EQ(m.layer(kWeights[part]), weight) << part;
    EXPECT_EQ(m.layer(kBiases[part]), bias) << part;
  }
  EXPECT_EQ(m.read(SectionKind::kEmbedding, TensorKind::kEmbeddingNorm),
            m.stored("word_embeddings_layernorm.weight"));
  EXPECT_EQ(m.read(SectionKind::kEmbedding, TensorKind::kEmbeddingNormBias),
            m.stored("word_embeddings_layernorm.bias"));
  EXPECT_EQ(m.layer(TensorKind::kFfnUp), m.stored("h.0.mlp.dense_h_to_4h.weight"));
  EXPECT_TRUE(m.model->spec().tied_head);
}

const Shapes kOpt = {{"model.decoder.embed_tokens.weight", {9, 12}},
                     {"model.decoder.embed_positions.weight", {7, 12}},
                     {"model.decoder.layers.0.self_attn_layer_norm.weight", {12}},
                     {"model.decoder.layers.0.self_attn_layer_norm.bias", {12}},
                     {"model.decoder.layers.0.self_attn.q_proj.weight", {12, 12}},
                     {"model.decoder.layers.0.self_attn.k_proj.weight", {12, 12}},
                     {"model.decoder.layers.0.self_attn.v_proj.weight", {12, 12}},
                     {"model.decoder.layers.0.self_attn.out_proj.weight", {12, 12}},
                     {"model.decoder.layers.0.final_layer_norm.weight", {12}},
                     {"model.decoder.layers.0.final_layer_norm.bias", {12}},
                     {"model.decoder.layers.0.fc1.weight", {7, 12}},
                     {"model.decoder.layers.0.fc2.weight", {12, 7}},
                     {"model.decoder.final_layer_norm.weight", {12}},
                     {"model.decoder.final_layer_norm.bias", {12}}};

TEST(HfTensorsTest, OptPositionsStandBehindTwoRows) {
  Json config = config_of("OPTForCausalLM", R"({"ffn_dim":7,"enable_bias":false})");
  const Opened m(config, kOpt);
  ASSERT_NE(m.model, nullptr) << m.message;
  EXPECT_EQ(m.read(SectionKind::kEmbedding, TensorKind::kPositionEmbedding),
            m.rows("model.decoder.embed_positions.weight", 12, 2, 5));
  EXPECT_EQ(m.layer(TensorKind::kAttnNorm),
            m.stored("model.decoder.layers.0.self_attn_layer_norm.weight"));
  EXPECT_EQ(m.layer(TensorKind::kFfnNormBias),
            m.stored("model.decoder.layers.0.final_layer_norm.bias"));
  EXPECT_EQ(m.read(SectionKind::kFinal, TensorKind::kFinalNorm),
            m.stored("model.decoder.final_layer_norm.weight"));
  config["enable_bias"] = true;
  EXPECT_THAT(Opened(config, kOpt).message, HasSubstr("self_attn.q_proj.bias\" is missing"));
  // The oldest files leave the prefix of the base model out.
  std::vector<std::string> bare;
  for (const auto& [name, shape] : kOpt) bare.emplace_back(std::string(name).substr(6));
  Shapes shapes;
  for (std::size_t i = 0; i < kOpt.size(); ++i) {
    shapes.emplace_back(bare[i].c_str(), kOpt[i].second);
  }
  config["enable_bias"] = false;
  EXPECT_EQ(Opened(config, shapes).message, "");
}

const Shapes kGemma2 = {{"model.embed_tokens.weight", {9, 12}},
                        {"model.layers.0.input_layernorm.weight", {12}},
                        {"model.layers.0.self_attn.q_proj.weight", {18, 12}},
                        {"model.layers.0.self_attn.k_proj.weight", {6, 12}},
                        {"model.layers.0.self_attn.v_proj.weight", {6, 12}},
                        {"model.layers.0.self_attn.o_proj.weight", {12, 18}},
                        {"model.layers.0.post_attention_layernorm.weight", {12}},
                        {"model.layers.0.pre_feedforward_layernorm.weight", {12}},
                        {"model.layers.0.mlp.gate_proj.weight", {7, 12}},
                        {"model.layers.0.mlp.up_proj.weight", {7, 12}},
                        {"model.layers.0.mlp.down_proj.weight", {12, 7}},
                        {"model.layers.0.post_feedforward_layernorm.weight", {12}},
                        {"model.norm.weight", {12}}};

TEST(HfTensorsTest, GainsOfGemmaAreStoredLessOne) {
  const Json config = config_of("Gemma2ForCausalLM", R"({"head_dim":6,"num_key_value_heads":1})");
  const Opened m(config, kGemma2);
  ASSERT_NE(m.model, nullptr) << m.message;
  const auto check = [&](TensorKind kind, const char* name) {
    EXPECT_EQ(m.layer(kind), plus_one(m.stored(name))) << name;
  };
  check(TensorKind::kAttnNorm, "model.layers.0.input_layernorm.weight");
  check(TensorKind::kAttnPostNorm, "model.layers.0.post_attention_layernorm.weight");
  check(TensorKind::kFfnNorm, "model.layers.0.pre_feedforward_layernorm.weight");
  check(TensorKind::kFfnPostNorm, "model.layers.0.post_feedforward_layernorm.weight");
  EXPECT_EQ(m.read(SectionKind::kFinal, TensorKind::kFinalNorm),
            plus_one(m.stored("model.norm.weight")));
  EXPECT_EQ(m.layer(TensorKind::kAttnO), m.stored("model.layers.0.self_attn.o_proj.weight"));
  // The first Gemma has one norm before each sublayer and none behind.
  Shapes first;
  for (const auto& [name, shape] : kGemma2) {
    if (!std::string(name).ends_with("feedforward_layernorm.weight"))
      first.emplace_back(name, shape);
  }
  Json older = config;
  older["architectures"] = {"GemmaForCausalLM"};
  const Opened gemma(older, first);
  ASSERT_NE(gemma.model, nullptr) << gemma.message;
  EXPECT_EQ(gemma.layer(TensorKind::kFfnNorm),
            plus_one(gemma.stored("model.layers.0.post_attention_layernorm.weight")));
  EXPECT_FALSE(gemma.layer(TensorKind::kAttnPostNorm).has_value());
}

const Shapes kPhi2 = {{"model.embed_tokens.weight", {9, 12}},
                      {"model.layers.0.input_layernorm.weight", {12}},
                      {"model.layers.0.input_layernorm.bias", {12}},
                      {"model.layers.0.self_attn.q_proj.weight", {12, 12}},
                      {"model.layers.0.self_attn.q_proj.bias", {12}},
                      {"model.layers.0.self_attn.k_proj.weight", {4, 12}},
                      {"model.layers.0.self_attn.k_proj.bias", {4}},
                      {"model.layers.0.self_attn.v_proj.weight", {4, 12}},
                      {"model.layers.0.self_attn.v_proj.bias", {4}},
                      {"model.layers.0.self_attn.dense.weight", {12, 12}},
                      {"model.layers.0.self_attn.dense.bias", {12}},
                      {"model.layers.0.mlp.fc1.weight", {7, 12}},
                      {"model.layers.0.mlp.fc1.bias", {7}},
                      {"model.layers.0.mlp.fc2.weight", {12, 7}},
                      {"model.layers.0.mlp.fc2.bias", {12}},
                      {"model.final_layernorm.weight", {12}},
                      {"model.final_layernorm.bias", {12}},
                      {"lm_head.weight", {9, 12}},
                      {"lm_head.bias", {9}}};

TEST(HfTensorsTest, Phi2HasABiasOnItsHeadAndOneNormALayer) {
  Json config = config_of("PhiForCausalLM", R"({"num_key_value_heads":1})");
  const Opened m(config, kPhi2);
  ASSERT_NE(m.model, nullptr) << m.message;
  EXPECT_EQ(m.read(SectionKind::kFinal, TensorKind::kHead), m.stored("lm_head.weight"));
  EXPECT_EQ(m.read(SectionKind::kFinal, TensorKind::kHeadBias), m.stored("lm_head.bias"));
  EXPECT_EQ(m.layer(TensorKind::kAttnKBias), m.stored("model.layers.0.self_attn.k_proj.bias"));
  EXPECT_FALSE(m.layer(TensorKind::kFfnNorm).has_value());
  // The bias stays where the head is the embedding.
  config["tie_word_embeddings"] = true;
  Shapes tied = kPhi2;
  tied.erase(tied.end() - 2);
  const Opened t(config, tied);
  ASSERT_NE(t.model, nullptr) << t.message;
  EXPECT_FALSE(t.read(SectionKind::kFinal, TensorKind::kHead).has_value());
  EXPECT_EQ(t.read(SectionKind::kFinal, TensorKind::kHeadBias), t.stored("lm_head.bias"));
  tied.pop_back();
  EXPECT_THAT(Opened(config, tied).message, HasSubstr("\"lm_head.bias\" is missing"));
}

TEST(HfTensorsTest, StableLmFollowsItsConfiguration) {
  Shapes shapes = {{"model.embed_tokens.weight", {9, 16}},
                   {"model.layers.0.input_layernorm.weight", {16}},
                   {"model.layers.0.input_layernorm.bias", {16}},
                   {"model.layers.0.self_attn.q_proj.weight", {16, 16}},
                   {"model.layers.0.self_attn.k_proj.weight", {16, 16}},
                   {"model.layers.0.self_attn.v_proj.weight", {16, 16}},
                   {"model.layers.0.self_attn.o_proj.weight", {16, 16}},
                   {"model.layers.0.mlp.gate_proj.weight", {7, 16}},
                   {"model.layers.0.mlp.up_proj.weight", {7, 16}},
                   {"model.layers.0.mlp.down_proj.weight", {16, 7}},
                   {"model.norm.weight", {16}},
                   {"model.norm.bias", {16}},
                   {"lm_head.weight", {9, 16}}};
  Json config = config_of("StableLmForCausalLM",
                          R"({"hidden_size":16,"num_attention_heads":2,"num_key_value_heads":2,
                              "use_parallel_residual":true})");
  EXPECT_EQ(Opened(config, shapes).message, "");
  config["use_parallel_residual"] = false;
  EXPECT_THAT(Opened(config, shapes).message,
              HasSubstr("post_attention_layernorm.weight\" is missing"));
  shapes.emplace_back("model.layers.0.post_attention_layernorm.weight",
                      std::vector<std::uint64_t>{16});
  shapes.emplace_back("model.layers.0.post_attention_layernorm.bias",
                      std::vector<std::uint64_t>{16});
  EXPECT_EQ(Opened(config, shapes).message, "");
  config["use_qkv_bias"] = true;
  EXPECT_THAT(Opened(config, shapes).message, HasSubstr("q_proj.bias\" is missing"));
}

TEST(HfTensorsTest, Qwen3HasNormsOfOneHead) {
  const Shapes shapes = {{"model.embed_tokens.weight", {9, 12}},
                         {"model.layers.0.input_layernorm.weight", {12}},
                         {"model.layers.0.self_attn.q_proj.weight", {18, 12}},
                         {"model.layers.0.self_attn.k_proj.weight", {6, 12}},
                         {"model.layers.0.self_attn.v_proj.weight", {6, 12}},
                         {"model.layers.0.self_attn.o_proj.weight", {12, 18}},
                         {"model.layers.0.self_attn.q_norm.weight", {6}},
                         {"model.layers.0.self_attn.k_norm.weight", {6}},
                         {"model.layers.0.post_attention_layernorm.weight", {12}},
                         {"model.layers.0.mlp.gate_proj.weight", {7, 12}},
                         {"model.layers.0.mlp.up_proj.weight", {7, 12}},
                         {"model.layers.0.mlp.down_proj.weight", {12, 7}},
                         {"model.norm.weight", {12}},
                         {"lm_head.weight", {9, 12}}};
  const Opened m(config_of("Qwen3ForCausalLM", R"({"head_dim":6,"num_key_value_heads":1})"),
                 shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  EXPECT_EQ(m.layer(TensorKind::kQNorm), m.stored("model.layers.0.self_attn.q_norm.weight"));
  EXPECT_EQ(m.layer(TensorKind::kKNorm), m.stored("model.layers.0.self_attn.k_norm.weight"));
}

}  // namespace
}  // namespace qsf
