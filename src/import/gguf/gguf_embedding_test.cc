// SPDX-License-Identifier: MIT
//
// GGUF files of models that embed texts: the tensors and the spec of their folders, and refusals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "import/gguf/gguf_model.h"
#include "import/hf/hf_model.h"
#include "import/testing/gguf_keys.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;

std::string golden_path(const std::string& name) {
  return std::string(QSF_SOURCE_DIR) + "/testdata/embedding/" + name;
}

void expect_equal_section(const ModelSource& gguf, const ModelSource& folder, SectionKind section,
                          std::uint32_t layer) {
  const auto ours = gguf.tensors(section, layer);
  const auto theirs = folder.tensors(section, layer);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].kind, theirs[i].kind);
    std::vector<float> a(std::size_t{ours[i].rows} * ours[i].cols);
    std::vector<float> b(std::size_t{theirs[i].rows} * theirs[i].cols);
    ASSERT_TRUE(gguf.read_rows(section, layer, i, 0, a).ok());
    ASSERT_TRUE(folder.read_rows(section, layer, i, 0, b).ok());
    EXPECT_EQ(a, b) << theirs[i].name;
  }
}

class GgufEmbeddingTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufEmbeddingTest, HasTheTensorsAndTheSpecOfItsFolder) {
  const auto folder = HfModel::open(golden_path(GetParam()));
  ASSERT_TRUE(folder) << folder.error().message();
  const auto gguf = GgufModel::open(golden_path(GetParam()) + ".gguf");
  ASSERT_TRUE(gguf) << gguf.error().message();
  ModelSpec ours = (*gguf)->spec();
  ModelSpec theirs = (*folder)->spec();
  EXPECT_TRUE(ours.pooling.has_value());
  for (ModelSpec* spec : {&ours, &theirs}) {
    spec->source.clear();
    spec->bos_id.reset();
    spec->pad_id.reset();
    spec->eos_ids.clear();
  }
  EXPECT_EQ(ours, theirs);
  expect_equal_section(**gguf, **folder, SectionKind::kEmbedding, 0);
  EXPECT_EQ((*gguf)->kept_format(SectionKind::kEmbedding, 0, 0)->type,
            (*folder)->kept_format(SectionKind::kEmbedding, 0, 0)->type);
  if (ours.architecture == "nomic-bert") {  // whose sums bf16 does not hold
    EXPECT_EQ((*gguf)->kept_format(SectionKind::kEmbedding, 0, 0)->type, QuantType::kF32);
  }
  for (std::uint32_t layer = 0; layer < ours.n_layers; ++layer) {
    expect_equal_section(**gguf, **folder, SectionKind::kLayer, layer);
  }
  expect_equal_section(**gguf, **folder, SectionKind::kFinal, 0);
}

INSTANTIATE_TEST_SUITE_P(All, GgufEmbeddingTest,
                         testing::Values("qwen3_embedding", "modernbert", "embedding_gemma",
                                         "nomic_bert", "nomic_bert_saved"),
                         [](const auto& test) { return std::string(test.param); });

// The message about a copy of a golden file in which the value of a key, or a name, is another.
std::string refusal_of(const std::string& model, const std::string& at, std::size_t skipped,
                       const std::string& bytes) {
  std::ifstream in(golden_path(model + ".gguf"), std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(in), {}};
  const std::size_t place = file.find(at);
  EXPECT_NE(place, std::string::npos) << at;
  file.replace(place + skipped, bytes.size(), bytes);
  const testing_support::TemporaryFolder folder;
  folder.write("changed.gguf", file);
  const auto opened = GgufModel::open(folder.file("changed.gguf"));
  return opened ? "" : opened.error().message();
}

// A value follows its key and four bytes that say of which type it is.
std::string refusal_of_value(const std::string& model, const std::string& key,
                             const std::string& bytes) {
  return refusal_of(model, key, key.size() + 4, bytes);
}

TEST(GgufEmbeddingFileTest, RefusesWhatItCannotRun) {
  const std::string rank("\x04\0\0\0", 4);
  EXPECT_THAT(refusal_of_value("qwen3_embedding", "qwen3.pooling_type", rank),
              HasSubstr("\"pooling_type\" is 4; expected 0 (none), 1 (mean), 2 (first) or 3"));
  EXPECT_THAT(refusal_of_value("modernbert", "modern-bert.attention.causal", "\x01"),
              HasSubstr("\"attention.causal\" is true"));
  EXPECT_THAT(refusal_of("embedding_gemma", "dense_3.weight", 0, "dense_9"),
              HasSubstr("\"dense_3.weight\" is missing: the file has \"dense_2.weight\" alone"));
  EXPECT_THAT(refusal_of("embedding_gemma", "dense_2.weight", 0, "dense_9"),
              HasSubstr("\"dense_2.weight\" is missing: the file has \"dense_3.weight\" alone"));
  EXPECT_THAT(refusal_of("modernbert", "blk.1.attn_norm.weight", 0, "blk.9"),
              HasSubstr("\"blk.1.attn_norm.weight\" is missing"));
}

TEST(GgufEmbeddingFileTest, ANomicBertNeedsItsOwnTensors) {
  EXPECT_THAT(refusal_of_value("nomic_bert", "nomic-bert.attention.causal", "\x01"),
              HasSubstr("\"attention.causal\" is true"));
  EXPECT_THAT(refusal_of("nomic_bert", "token_types.weight", 0, "token_typex"),
              HasSubstr("\"token_types.weight\" is missing"));
  for (const char* name : {"blk.0.layer_output_norm.weight", "blk.2.layer_output_norm.bias",
                           "blk.1.attn_output_norm.bias", "token_embd_norm.bias"}) {
    EXPECT_THAT(refusal_of("nomic_bert", name, 0, "xyz.9"),
                HasSubstr("\"" + std::string(name) + "\" is missing"));
  }
  // A row that is too short, then no row. Dimensions follow the name and their number.
  const std::size_t dims = std::string("token_types.weight").size() + 4;
  EXPECT_THAT(refusal_of("nomic_bert", "token_types.weight", dims, "\x18"),
              HasSubstr("\"token_types.weight\": dimensions [24, 2], expected [48, 1 to 16]"));
}

// A file that names no pooling means that of the model.
TEST(GgufEmbeddingFileTest, ANomicBertPoolsTheMean) {
  testing_support::GgufKeys keys("nomic-bert");
  EXPECT_EQ(testing_support::valid_spec(keys).pooling, Pooling::kMean);
  keys.numbers["pooling_type"] = 0;
  EXPECT_EQ(testing_support::valid_spec(keys).pooling, Pooling::kMean);
  keys.numbers["pooling_type"] = 2;
  EXPECT_EQ(testing_support::valid_spec(keys).pooling, Pooling::kFirst);
  keys.numbers["expert_count"] = 8;
  testing_support::expect_refused(keys, StatusCode::kUnsupported, "mixture of experts");
  testing_support::expect_refused(testing_support::GgufKeys("nomic-bert-moe"),
                                  StatusCode::kUnsupported,
                                  "architecture \"nomic-bert-moe\" is not supported");
}

// As llama.cpp's converter calls the key, in files of IBM's Granite Embedding R2 for one.
TEST(GgufEmbeddingFileTest, AModernBertMayHaveSilu) {
  testing_support::GgufKeys keys("modern-bert");
  EXPECT_EQ(testing_support::valid_spec(keys).activation, Activation::kGeluErf);
  std::string& activation = keys.texts["hidden_activation"];
  for (const char* name : {"silu", "swish", "swiglu"}) {
    activation = name;
    EXPECT_EQ(testing_support::valid_spec(keys).activation, Activation::kSilu) << name;
  }
  for (const char* name : {"gelu", "geglu"}) {
    activation = name;
    EXPECT_EQ(testing_support::valid_spec(keys).activation, Activation::kGeluErf) << name;
  }
  activation = "relu";
  testing_support::expect_refused(keys, StatusCode::kUnsupported,
                                  "\"hidden_activation\" is \"relu\"");
}

}  // namespace
}  // namespace qsf
