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
#include "import/testing/opened_model.h"

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

TestTensors tensors_of(const Shapes& shapes) {
  Rng rng(3);
  TestTensors tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = random_tensor(shape, rng);
  return tensors;
}

// A model of random tensors that was opened, or why it was not.
struct Opened {
  Opened(const Json& config, const Shapes& shapes) : tensors(tensors_of(shapes)) {
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
  std::optional<std::vector<float>> read(SectionKind section, TensorKind kind,
                                         std::uint32_t index = 0) const {
    const auto list = model->tensors(section, index);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != kind) continue;
      std::vector<float> all;
      for (std::uint32_t row = 0; row < list[i].rows; row += 2) {
        const std::uint32_t n = std::min(2U, list[i].rows - row);
        std::vector<float> part(std::size_t{n} * list[i].cols);
        EXPECT_TRUE(model->read_rows(section, index, i, row, part).ok());
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

Shapes nomic_shapes(std::uint64_t n_types) {
  return {{"embeddings.word_embeddings.weight", {9, 12}},
          {"embeddings.token_type_embeddings.weight", {n_types, 12}},
          {"emb_ln.weight", {12}},
          {"emb_ln.bias", {12}},
          {"encoder.layers.0.attn.Wqkv.weight", {54, 12}},
          {"encoder.layers.0.attn.out_proj.weight", {12, 18}},
          {"encoder.layers.0.mlp.fc11.weight", {7, 12}},
          {"encoder.layers.0.mlp.fc12.weight", {7, 12}},
          {"encoder.layers.0.mlp.fc2.weight", {12, 7}},
          {"encoder.layers.0.norm1.weight", {12}},
          {"encoder.layers.0.norm1.bias", {12}},
          {"encoder.layers.0.norm2.weight", {12}},
          {"encoder.layers.0.norm2.bias", {12}},
          {"encoder.layers.1.attn.Wqkv.weight", {54, 12}},
          {"encoder.layers.1.attn.out_proj.weight", {12, 18}},
          {"encoder.layers.1.mlp.fc11.weight", {7, 12}},
          {"encoder.layers.1.mlp.fc12.weight", {7, 12}},
          {"encoder.layers.1.mlp.fc2.weight", {12, 7}},
          {"encoder.layers.1.norm1.weight", {12}},
          {"encoder.layers.1.norm1.bias", {12}},
          {"encoder.layers.1.norm2.weight", {12}},
          {"encoder.layers.1.norm2.bias", {12}}};
}

TEST(HfTensorsTest, NormsOfANomicBertBelongToWhatTakesTheSum) {
  const Json config = config_of("NomicBertModel", R"({"head_dim":6,"num_hidden_layers":2})");
  const Opened m(config, nomic_shapes(3));
  ASSERT_NE(m.model, nullptr) << m.message;
  const auto layer_1 = [&](TensorKind kind) { return m.read(SectionKind::kLayer, kind, 1); };
  EXPECT_FALSE(m.layer(TensorKind::kAttnNorm).has_value());
  EXPECT_EQ(layer_1(TensorKind::kAttnNorm), m.stored("encoder.layers.0.norm2.weight"));
  EXPECT_EQ(layer_1(TensorKind::kAttnNormBias), m.stored("encoder.layers.0.norm2.bias"));
  EXPECT_EQ(m.layer(TensorKind::kFfnNorm), m.stored("encoder.layers.0.norm1.weight"));
  EXPECT_EQ(layer_1(TensorKind::kFfnNormBias), m.stored("encoder.layers.1.norm1.bias"));
  EXPECT_EQ(m.read(SectionKind::kFinal, TensorKind::kFinalNorm),
            m.stored("encoder.layers.1.norm2.weight"));
  EXPECT_EQ(m.read(SectionKind::kFinal, TensorKind::kFinalNormBias),
            m.stored("encoder.layers.1.norm2.bias"));
  EXPECT_EQ(layer_1(TensorKind::kFfnGate), m.stored("encoder.layers.1.mlp.fc12.weight"));
  EXPECT_EQ(layer_1(TensorKind::kFfnUp), m.stored("encoder.layers.1.mlp.fc11.weight"));
  EXPECT_EQ(layer_1(TensorKind::kAttnK), m.rows("encoder.layers.1.attn.Wqkv.weight", 12, 18, 18));
  auto wanted = m.stored("embeddings.word_embeddings.weight");
  const auto type = m.stored("embeddings.token_type_embeddings.weight");
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += type[i % 12];
  EXPECT_EQ(m.read(SectionKind::kEmbedding, TensorKind::kTokenEmbedding), wanted);
  EXPECT_EQ(m.model->kept_format(SectionKind::kEmbedding, 0, 0)->type, QuantType::kF32);
  Shapes with_head = nomic_shapes(2);
  with_head.push_back({"cls.predictions.bias", {9}});
  const Opened headed(config, with_head);
  ASSERT_NE(headed.model, nullptr) << headed.message;
  EXPECT_THAT(headed.model->warnings().back(), HasSubstr("1 tensors of a head"));
  EXPECT_THAT(Opened(config, nomic_shapes(0)).message,
              HasSubstr("token_type_embeddings.weight\": shape [0, 12], expected [1, 12]"));
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

// A tensor of a layer that is stored as it is: what it is, its name behind the prefix of the layer,
// and its shape.
struct Plain {
  TensorKind kind;
  const char* name;
  std::vector<std::uint64_t> shape;
};

// Opens a model of `others` (full names) and the layer's tensors, and compares the latter.
void expect_plain(const Json& config, const std::string& prefix, const std::vector<Plain>& layer,
                  const Shapes& others) {
  std::vector<std::string> names;
  for (const Plain& tensor : layer) names.push_back(prefix + tensor.name);
  Shapes shapes = others;
  for (std::size_t i = 0; i < layer.size(); ++i) {
    shapes.emplace_back(names[i].c_str(), layer[i].shape);
  }
  const Opened m(config, shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  for (std::size_t i = 0; i < layer.size(); ++i) {
    EXPECT_EQ(m.layer(layer[i].kind), m.stored(names[i].c_str())) << names[i];
  }
}

using K = TensorKind;
const Shapes kUntied = {{"model.embed_tokens.weight", {9, 12}},
                        {"model.norm.weight", {12}},
                        {"lm_head.weight", {9, 12}}};

TEST(HfTensorsTest, RelativesOfLlamaHaveItsTensors) {
  const std::vector<Plain> layer = {{K::kAttnNorm, "input_layernorm.weight", {12}},
                                    {K::kAttnQ, "self_attn.q_proj.weight", {12, 12}},
                                    {K::kAttnK, "self_attn.k_proj.weight", {4, 12}},
                                    {K::kAttnV, "self_attn.v_proj.weight", {4, 12}},
                                    {K::kAttnO, "self_attn.o_proj.weight", {12, 12}},
                                    {K::kFfnNorm, "post_attention_layernorm.weight", {12}},
                                    {K::kFfnGate, "mlp.gate_proj.weight", {7, 12}},
                                    {K::kFfnUp, "mlp.up_proj.weight", {7, 12}},
                                    {K::kFfnDown, "mlp.down_proj.weight", {12, 7}}};
  for (const char* name : {"SmolLM3ForCausalLM", "GraniteForCausalLM", "Ministral3ForCausalLM"}) {
    expect_plain(
        config_of(name, R"({"head_dim":4,"num_key_value_heads":1,"tie_word_embeddings":false})"),
        "model.layers.0.", layer, kUntied);
  }
  std::vector<Plain> biased = layer;
  biased.push_back({K::kAttnQBias, "self_attn.q_proj.bias", {12}});
  biased.push_back({K::kAttnKBias, "self_attn.k_proj.bias", {4}});
  biased.push_back({K::kAttnVBias, "self_attn.v_proj.bias", {4}});
  biased.push_back({K::kAttnOBias, "self_attn.o_proj.bias", {12}});
  biased.push_back({K::kFfnGateBias, "mlp.gate_proj.bias", {7}});
  biased.push_back({K::kFfnUpBias, "mlp.up_proj.bias", {7}});
  biased.push_back({K::kFfnDownBias, "mlp.down_proj.bias", {12}});
  expect_plain(config_of("GraniteForCausalLM",
                         R"({"num_key_value_heads":1,"attention_bias":true,"mlp_bias":true})"),
               "model.layers.0.", biased, kUntied);
}

// OLMo's run over all heads, EXAONE's over each.
TEST(HfTensorsTest, NormsOfQueriesAndKeysAndNormsBehindSublayersAlone) {
  const Shapes others = {{"model.embed_tokens.weight", {9, 10}},
                         {"model.norm.weight", {10}},
                         {"lm_head.weight", {9, 10}}};
  for (const char* name : {"Olmo2ForCausalLM", "Olmo3ForCausalLM", "Exaone4ForCausalLM"}) {
    const bool over_all = std::string(name) != "Exaone4ForCausalLM";
    const Json config = config_of(name, R"({"hidden_size":10,"head_dim":4,"num_attention_heads":4,
                                            "num_key_value_heads":2})");
    expect_plain(config, "model.layers.0.",
                 {{K::kAttnQ, "self_attn.q_proj.weight", {16, 10}},
                  {K::kQNorm, "self_attn.q_norm.weight", {over_all ? 16U : 4U}},
                  {K::kAttnK, "self_attn.k_proj.weight", {8, 10}},
                  {K::kKNorm, "self_attn.k_norm.weight", {over_all ? 8U : 4U}},
                  {K::kAttnV, "self_attn.v_proj.weight", {8, 10}},
                  {K::kAttnO, "self_attn.o_proj.weight", {10, 16}},
                  {K::kAttnPostNorm, "post_attention_layernorm.weight", {10}},
                  {K::kFfnGate, "mlp.gate_proj.weight", {7, 10}},
                  {K::kFfnUp, "mlp.up_proj.weight", {7, 10}},
                  {K::kFfnDown, "mlp.down_proj.weight", {10, 7}},
                  {K::kFfnPostNorm, "post_feedforward_layernorm.weight", {10}}},
                 others);
  }
}

TEST(HfTensorsTest, Gemma3HasNormsOfHeadsLessOne) {
  Shapes shapes = kGemma2;
  shapes.push_back({"model.layers.0.self_attn.q_norm.weight", {6}});
  shapes.push_back({"model.layers.0.self_attn.k_norm.weight", {6}});
  const Opened m(config_of("Gemma3ForCausalLM", R"({"head_dim":6,"num_key_value_heads":1})"),
                 shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  const auto check = [&](TensorKind kind, const char* name) {
    EXPECT_EQ(m.layer(kind), plus_one(m.stored(name))) << name;
  };
  check(K::kQNorm, "model.layers.0.self_attn.q_norm.weight");
  check(K::kKNorm, "model.layers.0.self_attn.k_norm.weight");
  check(K::kAttnNorm, "model.layers.0.input_layernorm.weight");
  check(K::kAttnPostNorm, "model.layers.0.post_attention_layernorm.weight");
  check(K::kFfnNorm, "model.layers.0.pre_feedforward_layernorm.weight");
  check(K::kFfnPostNorm, "model.layers.0.post_feedforward_layernorm.weight");
  EXPECT_EQ(m.layer(K::kAttnQ), m.stored("model.layers.0.self_attn.q_proj.weight"));
}

// Rows of `cols` columns from a stored tensor, in the order of `from`.
std::vector<float> picked(const Opened& m, const char* name, std::size_t cols,
                          const std::vector<std::size_t>& from) {
  std::vector<float> out;
  for (const std::size_t row : from) {
    const auto values = m.rows(name, cols, row, 1);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

// Two heads of 8 columns, of which the first 4 rotate: evens, odds, and the rest as it is.
TEST(HfTensorsTest, Glm4RotatesNeighboursInHalfOfEachHead) {
  const Shapes shapes = {{"model.embed_tokens.weight", {9, 12}},
                         {"model.layers.0.input_layernorm.weight", {12}},
                         {"model.layers.0.self_attn.q_proj.weight", {16, 12}},
                         {"model.layers.0.self_attn.q_proj.bias", {16}},
                         {"model.layers.0.self_attn.k_proj.weight", {8, 12}},
                         {"model.layers.0.self_attn.k_proj.bias", {8}},
                         {"model.layers.0.self_attn.v_proj.weight", {8, 12}},
                         {"model.layers.0.self_attn.v_proj.bias", {8}},
                         {"model.layers.0.self_attn.o_proj.weight", {12, 16}},
                         {"model.layers.0.post_self_attn_layernorm.weight", {12}},
                         {"model.layers.0.post_attention_layernorm.weight", {12}},
                         {"model.layers.0.mlp.gate_up_proj.weight", {14, 12}},
                         {"model.layers.0.mlp.down_proj.weight", {12, 7}},
                         {"model.layers.0.post_mlp_layernorm.weight", {12}},
                         {"model.norm.weight", {12}},
                         {"lm_head.weight", {9, 12}}};
  const Opened m(config_of("Glm4ForCausalLM", R"({"head_dim":8,"num_attention_heads":2,
                              "num_key_value_heads":1})"),
                 shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  const std::vector<std::size_t> q = {0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15};
  const std::vector<std::size_t> k = {0, 2, 1, 3, 4, 5, 6, 7};
  EXPECT_EQ(m.layer(K::kAttnQ), picked(m, "model.layers.0.self_attn.q_proj.weight", 12, q));
  EXPECT_EQ(m.layer(K::kAttnQBias), picked(m, "model.layers.0.self_attn.q_proj.bias", 1, q));
  EXPECT_EQ(m.layer(K::kAttnK), picked(m, "model.layers.0.self_attn.k_proj.weight", 12, k));
  EXPECT_EQ(m.layer(K::kAttnKBias), picked(m, "model.layers.0.self_attn.k_proj.bias", 1, k));
  EXPECT_EQ(m.layer(K::kAttnV), m.stored("model.layers.0.self_attn.v_proj.weight"));
  EXPECT_EQ(m.layer(K::kAttnVBias), m.stored("model.layers.0.self_attn.v_proj.bias"));
  // post_attention_layernorm means another norm than elsewhere.
  EXPECT_EQ(m.layer(K::kAttnPostNorm), m.stored("model.layers.0.post_self_attn_layernorm.weight"));
  EXPECT_EQ(m.layer(K::kFfnNorm), m.stored("model.layers.0.post_attention_layernorm.weight"));
  EXPECT_EQ(m.layer(K::kFfnPostNorm), m.stored("model.layers.0.post_mlp_layernorm.weight"));
  const char* gate_up = "model.layers.0.mlp.gate_up_proj.weight";
  EXPECT_EQ(m.layer(K::kFfnGate), m.rows(gate_up, 12, 0, 7));
  EXPECT_EQ(m.layer(K::kFfnUp), m.rows(gate_up, 12, 7, 7));
}

TEST(HfTensorsTest, CohereRotatesNeighboursAndHasOneNormWithoutABias) {
  const Shapes shapes = {{"model.embed_tokens.weight", {9, 12}},
                         {"model.layers.0.input_layernorm.weight", {12}},
                         {"model.layers.0.self_attn.q_proj.weight", {12, 12}},
                         {"model.layers.0.self_attn.k_proj.weight", {6, 12}},
                         {"model.layers.0.self_attn.v_proj.weight", {6, 12}},
                         {"model.layers.0.self_attn.o_proj.weight", {12, 12}},
                         {"model.layers.0.mlp.gate_proj.weight", {7, 12}},
                         {"model.layers.0.mlp.up_proj.weight", {7, 12}},
                         {"model.layers.0.mlp.down_proj.weight", {12, 7}},
                         {"model.norm.weight", {12}}};
  for (const char* name : {"CohereForCausalLM", "Cohere2ForCausalLM"}) {
    const Json config = config_of(name, R"({"num_attention_heads":2,"num_key_value_heads":1})");
    const Opened m(config, shapes);
    ASSERT_NE(m.model, nullptr) << m.message;
    EXPECT_EQ(m.layer(K::kAttnQ), picked(m, "model.layers.0.self_attn.q_proj.weight", 12,
                                         {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
    EXPECT_EQ(m.layer(K::kAttnK),
              picked(m, "model.layers.0.self_attn.k_proj.weight", 12, {0, 2, 4, 1, 3, 5}));
    EXPECT_EQ(m.layer(K::kAttnV), m.stored("model.layers.0.self_attn.v_proj.weight"));
    EXPECT_EQ(m.layer(K::kFfnUp), m.stored("model.layers.0.mlp.up_proj.weight"));
    EXPECT_FALSE(m.layer(K::kFfnNorm).has_value());
    EXPECT_TRUE(m.model->spec().tied_head);
    EXPECT_THAT(m.model->warnings(), testing::IsEmpty());
    // Biases of zeros, which some files of Cohere 2 have, are left out; others are not.
    TestTensors tensors = m.tensors;
    tensors["model.layers.0.input_layernorm.bias"] = {{12}, std::vector<float>(12)};
    write_model(m.folder, config.dump(), tensors);
    const bool second = std::string(name) == "Cohere2ForCausalLM";
    EXPECT_EQ(static_cast<bool>(HfModel::open(m.folder.path())), second);
    tensors["model.layers.0.input_layernorm.bias"].values[11] = 1.0F;
    write_model(m.folder, config.dump(), tensors);
    EXPECT_THAT(HfModel::open(m.folder.path()).error().message(), HasSubstr("is unexpected"));
  }
}

// Gains of every head of its own, in the order of the rows that they are for.
TEST(HfTensorsTest, CommandRPlusHasNormsOfHeads) {
  Shapes shapes = {{"model.embed_tokens.weight", {9, 12}},
                   {"model.layers.0.input_layernorm.weight", {12}},
                   {"model.layers.0.self_attn.q_proj.weight", {12, 12}},
                   {"model.layers.0.self_attn.k_proj.weight", {6, 12}},
                   {"model.layers.0.self_attn.v_proj.weight", {6, 12}},
                   {"model.layers.0.self_attn.o_proj.weight", {12, 12}},
                   {"model.layers.0.self_attn.q_norm.weight", {2, 6}},
                   {"model.layers.0.self_attn.k_norm.weight", {1, 6}},
                   {"model.layers.0.mlp.gate_proj.weight", {7, 12}},
                   {"model.layers.0.mlp.up_proj.weight", {7, 12}},
                   {"model.layers.0.mlp.down_proj.weight", {12, 7}},
                   {"model.norm.weight", {12}}};
  Json config =
      config_of("CohereForCausalLM",
                R"({"num_attention_heads":2,"num_key_value_heads":1,"use_qk_norm":true})");
  const Opened m(config, shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  EXPECT_EQ(m.layer(K::kQNorm), picked(m, "model.layers.0.self_attn.q_norm.weight", 1,
                                       {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
  EXPECT_EQ(m.layer(K::kKNorm),
            picked(m, "model.layers.0.self_attn.k_norm.weight", 1, {0, 2, 4, 1, 3, 5}));
  shapes[6].second = {12};
  EXPECT_THAT(Opened(config, shapes).message, HasSubstr("q_norm.weight"));
  config["use_qk_norm"] = false;
  EXPECT_THAT(Opened(config, shapes).message, HasSubstr("is unexpected"));
}

TEST(HfTensorsTest, InternLm2FusesByGroup) {
  const Shapes shapes = {{"model.tok_embeddings.weight", {9, 12}},
                         {"model.layers.0.attention_norm.weight", {12}},
                         {"model.layers.0.attention.wqkv.weight", {32, 12}},
                         {"model.layers.0.attention.wqkv.bias", {32}},
                         {"model.layers.0.attention.wo.weight", {12, 16}},
                         {"model.layers.0.attention.wo.bias", {12}},
                         {"model.layers.0.ffn_norm.weight", {12}},
                         {"model.layers.0.feed_forward.w1.weight", {7, 12}},
                         {"model.layers.0.feed_forward.w3.weight", {7, 12}},
                         {"model.layers.0.feed_forward.w2.weight", {12, 7}},
                         {"model.norm.weight", {12}},
                         {"output.weight", {9, 12}}};
  const Opened m(config_of("InternLM2ForCausalLM", R"({"num_attention_heads":4,
                              "num_key_value_heads":2,"head_dim":4})"),
                 shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  const char* wqkv = "model.layers.0.attention.wqkv.weight";
  EXPECT_EQ(m.layer(K::kAttnQ),
            picked(m, wqkv, 12, {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(m.layer(K::kAttnK), picked(m, wqkv, 12, {8, 9, 10, 11, 24, 25, 26, 27}));
  EXPECT_EQ(m.layer(K::kAttnV), picked(m, wqkv, 12, {12, 13, 14, 15, 28, 29, 30, 31}));
  EXPECT_EQ(m.layer(K::kAttnO), m.stored("model.layers.0.attention.wo.weight"));
  EXPECT_EQ(m.layer(K::kAttnOBias), m.stored("model.layers.0.attention.wo.bias"));
  EXPECT_EQ(m.layer(K::kAttnNorm), m.stored("model.layers.0.attention_norm.weight"));
  EXPECT_EQ(m.layer(K::kFfnNorm), m.stored("model.layers.0.ffn_norm.weight"));
  EXPECT_EQ(m.layer(K::kFfnGate), m.stored("model.layers.0.feed_forward.w1.weight"));
  EXPECT_EQ(m.layer(K::kFfnUp), m.stored("model.layers.0.feed_forward.w3.weight"));
  EXPECT_EQ(m.layer(K::kFfnDown), m.stored("model.layers.0.feed_forward.w2.weight"));
  EXPECT_EQ(m.read(SectionKind::kFinal, K::kHead), m.stored("output.weight"));
}

// Falcon's tensors with `n_qkv` fused rows, and norms of the given names.
Shapes falcon_shapes(std::uint64_t n_qkv, const std::vector<const char*>& norms) {
  Shapes shapes = {{"transformer.word_embeddings.weight", {9, 12}},
                   {"transformer.h.0.self_attention.query_key_value.weight", {n_qkv, 12}},
                   {"transformer.h.0.self_attention.query_key_value.bias", {n_qkv}},
                   {"transformer.h.0.self_attention.dense.weight", {12, 12}},
                   {"transformer.h.0.self_attention.dense.bias", {12}},
                   {"transformer.h.0.mlp.dense_h_to_4h.weight", {48, 12}},
                   {"transformer.h.0.mlp.dense_h_to_4h.bias", {48}},
                   {"transformer.h.0.mlp.dense_4h_to_h.weight", {12, 48}},
                   {"transformer.h.0.mlp.dense_4h_to_h.bias", {12}},
                   {"transformer.ln_f.weight", {12}},
                   {"transformer.ln_f.bias", {12}}};
  for (const char* norm : norms) shapes.emplace_back(norm, std::vector<std::uint64_t>{12});
  return shapes;
}
const std::vector<const char*> kOneNorm = {"transformer.h.0.input_layernorm.weight",
                                           "transformer.h.0.input_layernorm.bias"};
constexpr const char* kFalconQkv = "transformer.h.0.self_attention.query_key_value.weight";
constexpr const char* kFalconQkvBias = "transformer.h.0.self_attention.query_key_value.bias";

TEST(HfTensorsTest, FalconFusesForOneKvHeadForEachAndForGroups) {
  Json config = config_of("FalconForCausalLM", R"({"bias":true,"num_attention_heads":6})");
  config.erase("num_key_value_heads");
  const Opened one(config, falcon_shapes(16, kOneNorm));
  ASSERT_NE(one.model, nullptr) << one.message;
  EXPECT_EQ(one.layer(K::kAttnQ), one.rows(kFalconQkv, 12, 0, 12));
  EXPECT_EQ(one.layer(K::kAttnK), one.rows(kFalconQkv, 12, 12, 2));
  EXPECT_EQ(one.layer(K::kAttnV), one.rows(kFalconQkv, 12, 14, 2));
  EXPECT_EQ(one.layer(K::kAttnKBias), one.rows(kFalconQkvBias, 1, 12, 2));
  EXPECT_EQ(one.layer(K::kAttnNorm), one.stored("transformer.h.0.input_layernorm.weight"));
  EXPECT_FALSE(one.layer(K::kFfnNorm).has_value());
  config["multi_query"] = false;
  const Opened each(config, falcon_shapes(36, kOneNorm));
  ASSERT_NE(each.model, nullptr) << each.message;
  EXPECT_EQ(each.layer(K::kAttnV),
            picked(each, kFalconQkv, 12, {4, 5, 10, 11, 16, 17, 22, 23, 28, 29, 34, 35}));
  config["parallel_attn"] = false;
  EXPECT_THAT(Opened(config, falcon_shapes(36, kOneNorm)).message,
              HasSubstr("post_attention_layernorm.weight\" is missing"));
}

// head_dim is even with RoPE: 6 query heads of 2 columns and 2 KV heads: q q q k v, twice.
TEST(HfTensorsTest, FalconWithTwoNormsFusesByGroup) {
  Json config = config_of("FalconForCausalLM",
                          R"({"bias":true,"num_attention_heads":6,"num_kv_heads":2,
                              "new_decoder_architecture":true})");
  config.erase("num_key_value_heads");
  const std::vector<const char*> norms = {
      "transformer.h.0.ln_attn.weight", "transformer.h.0.ln_attn.bias",
      "transformer.h.0.ln_mlp.weight", "transformer.h.0.ln_mlp.bias"};
  const Opened m(config, falcon_shapes(20, norms));
  ASSERT_NE(m.model, nullptr) << m.message;
  const std::vector<std::size_t> q = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(m.layer(K::kAttnQ), picked(m, kFalconQkv, 12, q));
  EXPECT_EQ(m.layer(K::kAttnQBias), picked(m, kFalconQkvBias, 1, q));
  EXPECT_EQ(m.layer(K::kAttnK), picked(m, kFalconQkv, 12, {6, 7, 16, 17}));
  EXPECT_EQ(m.layer(K::kAttnV), picked(m, kFalconQkv, 12, {8, 9, 18, 19}));
  EXPECT_EQ(m.layer(K::kAttnVBias), picked(m, kFalconQkvBias, 1, {8, 9, 18, 19}));
  EXPECT_EQ(m.layer(K::kAttnNorm), m.stored("transformer.h.0.ln_attn.weight"));
  EXPECT_EQ(m.layer(K::kAttnNormBias), m.stored("transformer.h.0.ln_attn.bias"));
  EXPECT_EQ(m.layer(K::kFfnNorm), m.stored("transformer.h.0.ln_mlp.weight"));
  EXPECT_EQ(m.layer(K::kFfnNormBias), m.stored("transformer.h.0.ln_mlp.bias"));
}

TEST(HfTensorsTest, GptNeoxInterleavesHeadsAndNamesItsHeadTwice) {
  Shapes shapes = {{"gpt_neox.embed_in.weight", {9, 12}},
                   {"gpt_neox.layers.0.input_layernorm.weight", {12}},
                   {"gpt_neox.layers.0.input_layernorm.bias", {12}},
                   {"gpt_neox.layers.0.attention.query_key_value.weight", {36, 12}},
                   {"gpt_neox.layers.0.attention.query_key_value.bias", {36}},
                   {"gpt_neox.layers.0.attention.dense.weight", {12, 12}},
                   {"gpt_neox.layers.0.attention.dense.bias", {12}},
                   {"gpt_neox.layers.0.attention.bias", {1, 1, 5, 5}},  // buffers
                   {"gpt_neox.layers.0.attention.masked_bias", {1}},
                   {"gpt_neox.layers.0.attention.rotary_emb.inv_freq", {2}},
                   {"gpt_neox.layers.0.post_attention_layernorm.weight", {12}},
                   {"gpt_neox.layers.0.post_attention_layernorm.bias", {12}},
                   {"gpt_neox.layers.0.mlp.dense_h_to_4h.weight", {7, 12}},
                   {"gpt_neox.layers.0.mlp.dense_h_to_4h.bias", {7}},
                   {"gpt_neox.layers.0.mlp.dense_4h_to_h.weight", {12, 7}},
                   {"gpt_neox.layers.0.mlp.dense_4h_to_h.bias", {12}},
                   {"gpt_neox.final_layer_norm.weight", {12}},
                   {"gpt_neox.final_layer_norm.bias", {12}},
                   {"embed_out.weight", {9, 12}}};
  const Json config = config_of("GPTNeoXForCausalLM", R"({"rotary_pct":0.5})");
  const Opened m(config, shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  const char* qkv = "gpt_neox.layers.0.attention.query_key_value.weight";
  EXPECT_EQ(m.layer(K::kAttnK), picked(m, qkv, 12, {4, 5, 6, 7, 16, 17, 18, 19, 28, 29, 30, 31}));
  EXPECT_EQ(m.layer(K::kFfnNorm), m.stored("gpt_neox.layers.0.post_attention_layernorm.weight"));
  EXPECT_EQ(m.layer(K::kAttnOBias), m.stored("gpt_neox.layers.0.attention.dense.bias"));
  EXPECT_EQ(m.layer(K::kFfnUp), m.stored("gpt_neox.layers.0.mlp.dense_h_to_4h.weight"));
  EXPECT_EQ(m.read(SectionKind::kFinal, K::kFinalNormBias),
            m.stored("gpt_neox.final_layer_norm.bias"));
  EXPECT_EQ(m.read(SectionKind::kFinal, K::kHead), m.stored("embed_out.weight"));
  shapes.back().first = "lm_head.weight";
  const Opened renamed(config, shapes);
  ASSERT_NE(renamed.model, nullptr) << renamed.message;
  EXPECT_EQ(renamed.read(SectionKind::kFinal, K::kHead), renamed.stored("lm_head.weight"));
  shapes.pop_back();
  EXPECT_THAT(Opened(config, shapes).message, HasSubstr("\"embed_out.weight\" is missing"));
}

TEST(HfTensorsTest, StarCoder2HasBiasesEverywhere) {
  const Json config = config_of("Starcoder2ForCausalLM",
                                R"({"num_key_value_heads":1,"tie_word_embeddings":false})");
  Shapes others = kUntied;
  others.push_back({"model.norm.bias", {12}});
  expect_plain(config, "model.layers.0.",
               {{K::kAttnNorm, "input_layernorm.weight", {12}},
                {K::kAttnNormBias, "input_layernorm.bias", {12}},
                {K::kAttnQ, "self_attn.q_proj.weight", {12, 12}},
                {K::kAttnQBias, "self_attn.q_proj.bias", {12}},
                {K::kAttnK, "self_attn.k_proj.weight", {4, 12}},
                {K::kAttnKBias, "self_attn.k_proj.bias", {4}},
                {K::kAttnV, "self_attn.v_proj.weight", {4, 12}},
                {K::kAttnVBias, "self_attn.v_proj.bias", {4}},
                {K::kAttnO, "self_attn.o_proj.weight", {12, 12}},
                {K::kAttnOBias, "self_attn.o_proj.bias", {12}},
                {K::kFfnNorm, "post_attention_layernorm.weight", {12}},
                {K::kFfnNormBias, "post_attention_layernorm.bias", {12}},
                {K::kFfnUp, "mlp.c_fc.weight", {7, 12}},
                {K::kFfnUpBias, "mlp.c_fc.bias", {7}},
                {K::kFfnDown, "mlp.c_proj.weight", {12, 7}},
                {K::kFfnDownBias, "mlp.c_proj.bias", {12}}},
               others);
}

TEST(HfTensorsTest, MptHasNoBiases) {
  const Json config = config_of("MPTForCausalLM", R"({"d_model":12,"n_heads":3,"n_layers":1,
                                    "max_seq_len":5})");
  const Shapes shapes = {{"transformer.wte.weight", {9, 12}},
                         {"transformer.blocks.0.norm_1.weight", {12}},
                         {"transformer.blocks.0.attn.Wqkv.weight", {36, 12}},
                         {"transformer.blocks.0.attn.out_proj.weight", {12, 12}},
                         {"transformer.blocks.0.norm_2.weight", {12}},
                         {"transformer.blocks.0.ffn.up_proj.weight", {48, 12}},
                         {"transformer.blocks.0.ffn.down_proj.weight", {12, 48}},
                         {"transformer.norm_f.weight", {12}}};
  const Opened m(config, shapes);
  ASSERT_NE(m.model, nullptr) << m.message;
  EXPECT_EQ(m.layer(K::kAttnNorm), m.stored("transformer.blocks.0.norm_1.weight"));
  EXPECT_EQ(m.layer(K::kAttnK), m.rows("transformer.blocks.0.attn.Wqkv.weight", 12, 12, 12));
  EXPECT_EQ(m.layer(K::kAttnO), m.stored("transformer.blocks.0.attn.out_proj.weight"));
  EXPECT_EQ(m.layer(K::kFfnNorm), m.stored("transformer.blocks.0.norm_2.weight"));
  EXPECT_EQ(m.layer(K::kFfnUp), m.stored("transformer.blocks.0.ffn.up_proj.weight"));
  EXPECT_EQ(m.layer(K::kFfnDown), m.stored("transformer.blocks.0.ffn.down_proj.weight"));
  EXPECT_FALSE(m.layer(K::kAttnNormBias).has_value());
}

}  // namespace
}  // namespace qsf
