// SPDX-License-Identifier: MIT
//
// Hugging Face folders as model sources: names, orientation, splitting, heads, and what is refused.

#include "import/hf/hf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "import/testing/hf_folder.h"
#include "import/testing/opened_model.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

Result<std::unique_ptr<HfModel>> open(const char* config, const TestTensors& tensors) {
  const TemporaryFolder folder;
  write_model(folder, config, tensors);
  return HfModel::open(folder.path());
}

// Reads a whole tensor through the interface, `step` rows at a time.
std::vector<float> read(const HfModel& model, SectionKind section, TensorKind kind,
                        std::uint32_t step) {
  const auto tensors = model.tensors(section, 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].kind != kind) continue;
    std::vector<float> all;
    for (std::uint32_t row = 0; row < tensors[i].rows; row += step) {
      const std::uint32_t n = std::min(step, tensors[i].rows - row);
      std::vector<float> part(std::size_t{n} * tensors[i].cols);
      EXPECT_TRUE(model.read_rows(section, 0, i, row, part).ok());
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  ADD_FAILURE() << tensor_kind_name(kind) << " is missing";
  return {};
}

TEST(HfModelTest, LlamaTensorsComeAsTheyAre) {
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = open(kTinyLlamaConfig, tensors);
  ASSERT_TRUE(model) << model.error().message();
  const auto check = [&](TensorKind kind, const char* name) {
    EXPECT_EQ(read(**model, SectionKind::kLayer, kind, 3),
              tensors.at(std::string("model.layers.0.") + name).values)
        << name;
  };
  check(TensorKind::kAttnNorm, "input_layernorm.weight");
  check(TensorKind::kAttnQ, "self_attn.q_proj.weight");
  check(TensorKind::kAttnK, "self_attn.k_proj.weight");
  check(TensorKind::kAttnV, "self_attn.v_proj.weight");
  check(TensorKind::kAttnO, "self_attn.o_proj.weight");
  check(TensorKind::kFfnNorm, "post_attention_layernorm.weight");
  check(TensorKind::kFfnGate, "mlp.gate_proj.weight");
  check(TensorKind::kFfnUp, "mlp.up_proj.weight");
  check(TensorKind::kFfnDown, "mlp.down_proj.weight");
  EXPECT_EQ(read(**model, SectionKind::kEmbedding, TensorKind::kTokenEmbedding, 16),
            tensors.at("model.embed_tokens.weight").values);
  EXPECT_EQ(read(**model, SectionKind::kFinal, TensorKind::kFinalNorm, 1),
            tensors.at("model.norm.weight").values);
  EXPECT_EQ((*model)->tensors(SectionKind::kLayer, 0).size(), 9U);
  EXPECT_EQ((*model)->tensors(SectionKind::kFinal, 0).size(), 1U);
}

TEST(HfModelTest, Gpt2IsTurnedAndSplit) {
  for (const char* prefix : {"", "transformer."}) {
    const TestTensors tensors = tiny_gpt2_tensors(prefix);
    const auto model = open(kTinyGpt2Config, tensors);
    ASSERT_TRUE(model) << model.error().message();
    const auto stored = [&](const char* name) {
      return tensors.at(std::string(prefix) + "h.0." + name).values;
    };
    // [rows, cols] of ours is [cols, n] of theirs, from column `first` on.
    const auto turned = [&](const char* name, std::size_t rows, std::size_t cols, std::size_t n,
                            std::size_t first) {
      std::vector<float> out;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < cols; ++c) out.push_back(stored(name)[c * n + first + r]);
      }
      return out;
    };
    const auto got = [&](TensorKind kind) { return read(**model, SectionKind::kLayer, kind, 5); };
    EXPECT_EQ(got(TensorKind::kAttnQ), turned("attn.c_attn.weight", 12, 12, 36, 0));
    EXPECT_EQ(got(TensorKind::kAttnK), turned("attn.c_attn.weight", 12, 12, 36, 12));
    EXPECT_EQ(got(TensorKind::kAttnV), turned("attn.c_attn.weight", 12, 12, 36, 24));
    EXPECT_EQ(got(TensorKind::kAttnO), turned("attn.c_proj.weight", 12, 12, 12, 0));
    EXPECT_EQ(got(TensorKind::kFfnUp), turned("mlp.c_fc.weight", 40, 12, 40, 0));
    EXPECT_EQ(got(TensorKind::kFfnDown), turned("mlp.c_proj.weight", 12, 40, 12, 0));
    const std::vector<float> bias = stored("attn.c_attn.bias");
    EXPECT_EQ(got(TensorKind::kAttnQBias), std::vector<float>(bias.begin(), bias.begin() + 12));
    EXPECT_EQ(got(TensorKind::kAttnKBias),
              std::vector<float>(bias.begin() + 12, bias.begin() + 24));
    EXPECT_EQ(got(TensorKind::kAttnVBias), std::vector<float>(bias.begin() + 24, bias.end()));
    EXPECT_EQ(got(TensorKind::kFfnUpBias), stored("mlp.c_fc.bias"));
    EXPECT_EQ(got(TensorKind::kFfnDownBias), stored("mlp.c_proj.bias"));
    EXPECT_EQ(got(TensorKind::kAttnOBias), stored("attn.c_proj.bias"));
    EXPECT_EQ(got(TensorKind::kFfnNormBias), stored("ln_2.bias"));
    EXPECT_EQ(read(**model, SectionKind::kEmbedding, TensorKind::kPositionEmbedding, 8),
              tensors.at(std::string(prefix) + "wpe.weight").values);
    EXPECT_TRUE((*model)->spec().tied_head);
  }
}

TEST(HfModelTest, OfSharedKeysAndValuesOnlyWhatOtherLayersHaveIsLeftOut) {
  const std::string golden = std::string(QSF_SOURCE_DIR) + "/testdata/golden/gemma4_e";
  const TemporaryFolder folder;
  std::filesystem::copy(golden, folder.path());
  const std::string weights = folder.read("model.safetensors");
  const auto refusal_with = [&](std::string_view name) {
    constexpr std::string_view kLeftOut = "model.layers.4.self_attn.k_proj.weight";
    std::string changed = weights;
    changed.replace(changed.find(kLeftOut), kLeftOut.size(), name);
    folder.write("model.safetensors", changed);
    const auto model = HfModel::open(folder.path());
    return model ? std::string() : std::string(model.error().message());
  };
  EXPECT_EQ(refusal_with("model.layers.4.self_attn.k_proj.weight"), "");
  EXPECT_EQ(refusal_with("model.layers.4.self_attn.v_proj.weight"), "");
  for (const char* name :
       {"model.layers.4.self_attn.k_more.weight", "model.layers.4.self_attn.v_proj.scales",
        "model.layers.5.self_attn.k_proj.weight"}) {
    EXPECT_THAT(refusal_with(name), HasSubstr(std::string(name) + "\" [")) << name;
  }
}

TEST(HfModelTest, EveryMissingTensorIsNamed) {
  const TestTensors all = tiny_llama_tensors();
  for (const auto& [name, unused] : all) {
    TestTensors some = all;
    some.erase(name);
    // Without the embedding under its prefix the model is looked for without one.
    const std::string expected = name == "model.embed_tokens.weight" ? "embed_tokens.weight" : name;
    EXPECT_THAT(opening_error(kTinyLlamaConfig, some),
                HasSubstr("\"" + expected + "\" is missing"));
  }
}

TEST(HfModelTest, UnexpectedTensorsAndShapesAreNamed) {
  TestTensors tensors = tiny_llama_tensors();
  tensors["model.layers.0.self_attn.q_proj.bias"] = {{16}, std::vector<float>(16)};
  EXPECT_THAT(opening_error(kTinyLlamaConfig, tensors),
              HasSubstr("\"model.layers.0.self_attn.q_proj.bias\" [16] is unexpected"));
  tensors = tiny_llama_tensors();
  tensors["model.layers.2.mlp.up_proj.weight"] = {{20, 16}, std::vector<float>(320)};
  EXPECT_THAT(opening_error(kTinyLlamaConfig, tensors), HasSubstr("layers.2.mlp.up_proj.weight"));
  tensors = tiny_llama_tensors();
  tensors["model.layers.1.mlp.up_proj.weight"] = {{16, 20}, std::vector<float>(320)};
  EXPECT_THAT(
      opening_error(kTinyLlamaConfig, tensors),
      HasSubstr("\"model.layers.1.mlp.up_proj.weight\": shape [16, 20], expected [20, 16]"));
  tensors = tiny_llama_tensors();
  tensors["model.rotary_emb.inv_freq"] = {{2}, {1, 2}};
  EXPECT_EQ(opening_error(kTinyLlamaConfig, tensors), "");
}

TEST(HfModelTest, BiasesFollowTheConfiguration) {
  auto config = nlohmann::json::parse(kTinyLlamaConfig);
  config["attention_bias"] = true;
  EXPECT_THAT(opening_error(config.dump().c_str(), tiny_llama_tensors()),
              HasSubstr("\"model.layers.0.self_attn.q_proj.bias\" is missing"));
}

TEST(HfModelTest, Heads) {
  TestTensors tensors = tiny_llama_tensors();
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  const auto equal = open(kTinyLlamaConfig, tensors);
  ASSERT_TRUE(equal) << equal.error().message();
  EXPECT_TRUE((*equal)->spec().tied_head);
  tensors["lm_head.weight"].values.back() += 1.0F;
  EXPECT_THAT(opening_error(kTinyLlamaConfig, tensors), HasSubstr("tie_word_embeddings"));
  auto config = nlohmann::json::parse(kTinyLlamaConfig);
  config["tie_word_embeddings"] = false;
  const auto untied = open(config.dump().c_str(), tensors);
  ASSERT_TRUE(untied) << untied.error().message();
  EXPECT_FALSE((*untied)->spec().tied_head);
  EXPECT_EQ((*untied)->tensors(SectionKind::kFinal, 0).size(), 2U);
  // The same numbers twice are kept once.
  tensors["lm_head.weight"].values.back() -= 1.0F;
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  const auto same = open(config.dump().c_str(), tensors);
  ASSERT_TRUE(same);
  EXPECT_TRUE((*same)->spec().tied_head);
  tensors.erase("lm_head.weight");
  EXPECT_THAT(opening_error(config.dump().c_str(), tensors),
              HasSubstr("tie_word_embeddings: true"));
}

// The tiny llama as the text model of a Mistral 3, under other prefixes and beside other parts.
nlohmann::json multimodal_config() {
  auto text = nlohmann::json::parse(kTinyLlamaConfig);
  text.erase("architectures");
  text["model_type"] = "mistral";
  nlohmann::json json = {{"architectures", {"Mistral3ForConditionalGeneration"}}};
  json["text_config"] = text;
  return json;
}

TestTensors multimodal_tensors(const std::string& prefix, const std::string& of_images) {
  TestTensors tensors;
  for (const auto& [name, tensor] : tiny_llama_tensors()) {
    tensors[prefix + name.substr(std::string("model.").size())] = tensor;
  }
  tensors[of_images + "vision_tower.transformer.layers.0.attention.q_proj.weight"] = {{1, 2},
                                                                                      {3, 4}};
  tensors[of_images + "vision_tower.ln_pre.weight"] = {{2}, {1, 2}};
  tensors[of_images + "multi_modal_projector.linear_1.weight"] = {{2}, {1, 2}};
  return tensors;
}

TEST(HfModelTest, TheTextModelOfALargerOneIsRead) {
  const std::string config = multimodal_config().dump();
  const struct {
    const char* prefix;
    const char* of_images;
    const char* head;
  } kSpellings[] = {{"language_model.model.", "", "language_model.lm_head.weight"},
                    {"model.language_model.", "model.", "lm_head.weight"},
                    {"model.", "model.", "lm_head.weight"}};
  for (const auto& [prefix, of_images, head] : kSpellings) {
    TestTensors tensors = multimodal_tensors(prefix, of_images);
    const auto tied = open(config.c_str(), tensors);
    ASSERT_TRUE(tied) << tied.error().message();
    EXPECT_TRUE((*tied)->spec().tied_head);
    EXPECT_EQ(read(**tied, SectionKind::kLayer, TensorKind::kAttnK, 3),
              tensors.at(std::string(prefix) + "layers.0.self_attn.k_proj.weight").values);
    ASSERT_EQ((*tied)->warnings().size(), 1U);
    EXPECT_EQ((*tied)->warnings()[0],
              "left out 3 tensors of images or sound: this version reads the text model alone");
    // A head of its own counts, although text_config says that there is none.
    tensors[head] = tensors.at(std::string(prefix) + "embed_tokens.weight");
    tensors[head].values.back() += 1.0F;
    const auto untied = open(config.c_str(), tensors);
    ASSERT_TRUE(untied) << untied.error().message();
    EXPECT_FALSE((*untied)->spec().tied_head);
    EXPECT_EQ(read(**untied, SectionKind::kFinal, TensorKind::kHead, 7), tensors.at(head).values);
    tensors["language_model.more.weight"] = {{2}, {1, 2}};
    EXPECT_THAT(opening_error(config.c_str(), tensors),
                HasSubstr("\"language_model.more.weight\" [2] is unexpected"));
  }
  // A text model has no tensors of images.
  TestTensors tensors = tiny_llama_tensors();
  tensors["vision_tower.ln_pre.weight"] = {{2}, {1, 2}};
  EXPECT_THAT(opening_error(kTinyLlamaConfig, tensors),
              HasSubstr("\"vision_tower.ln_pre.weight\" [2] is unexpected"));
}

TEST(HfModelTest, BlocksThatPredictFurtherTokensAreLeftOut) {
  auto config = nlohmann::json::parse(kTinyLlamaConfig);
  config["num_nextn_predict_layers"] = 1;
  TestTensors tensors = tiny_llama_tensors();
  EXPECT_TRUE((*open(config.dump().c_str(), tensors))->warnings().empty());
  tensors["model.layers.2.mlp.up_proj.weight"] = {{20, 16}, std::vector<float>(320)};
  tensors["model.layers.2.eh_proj.weight"] = {{2}, {1, 2}};
  const auto model = open(config.dump().c_str(), tensors);
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ((*model)->warnings().size(), 1U);
  EXPECT_EQ(
      (*model)->warnings()[0],
      "left out 2 tensors that predict further tokens; 'qsf convert --mtp' makes a draft model "
      "of them");
  tensors["model.layers.3.mlp.up_proj.weight"] = {{20, 16}, std::vector<float>(320)};
  EXPECT_THAT(opening_error(config.dump().c_str(), tensors),
              HasSubstr("layers.3.mlp.up_proj.weight"));
}

TEST(HfModelTest, ALayerCountBeyondTheWeightsIsRefused) {
  auto config = nlohmann::json::parse(kTinyLlamaConfig);
  config["num_hidden_layers"] = 4000;
  EXPECT_THAT(opening_error(config.dump().c_str(), tiny_llama_tensors()), HasSubstr("4000 layers"));
}

}  // namespace
}  // namespace qsf
