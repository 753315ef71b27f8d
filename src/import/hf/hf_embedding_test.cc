// SPDX-License-Identifier: MIT
//
// Tests of folders of sentence-transformers: which row becomes the embedding, and what is refused.

#include "import/hf/hf_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/published_config.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

const std::filesystem::path kGolden =
    std::filesystem::path(QSF_SOURCE_DIR) / "testdata" / "embedding";

constexpr char kModules[] = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
])";

// A copy of the golden folder, in which anything may be broken.
class EmbeddingFolder : public TemporaryFolder {
 public:
  EmbeddingFolder() {
    std::filesystem::copy(kGolden / "qwen3_embedding", path(),
                          std::filesystem::copy_options::recursive);
  }
  std::string refusal() const {
    const auto model = HfModel::open(path());
    return model ? "" : model.error().message();
  }
};

TEST(HfEmbeddingTest, TheFolderOfThePoolingIsFound) {
  const auto folders = read_hf_modules(kModules);
  ASSERT_TRUE(folders) << folders.error().message();
  EXPECT_EQ(folders->pooling, "1_Pooling");
  EXPECT_THAT(folders->dense, testing::IsEmpty());
}

TEST(HfEmbeddingTest, OtherModulesAreRefusedByName) {
  const auto message = [](const std::string& from, const std::string& to) {
    std::string modules = kModules;
    modules.replace(modules.find(from), from.size(), to);
    const auto folders = read_hf_modules(modules);
    return folders ? "" : folders.error().message();
  };
  EXPECT_THAT(message("models.Normalize", "models.Dense2"), HasSubstr("models.Dense2"));
  EXPECT_THAT(message("models.Normalize", "models.Pooling"), HasSubstr("one Pooling"));
  EXPECT_THAT(message("models.Normalize", "models.Dense"), HasSubstr("1 modules are Dense"));
  EXPECT_THAT(message("models.Transformer", "models.CLIPModel"), HasSubstr("CLIPModel"));
  EXPECT_THAT(message("\"path\": \"\"", "\"path\": \"0_Model\""), HasSubstr("\"0_Model\""));
  EXPECT_THAT(message("models.Pooling", "models.Normalize"),
              HasSubstr("models.Normalize\" in \"1_Pooling\""));
  for (const char* path : {"..", "../secret", "/etc", "a/b", ".", "", "a\\u0000b", "a\\nb",
                           "a\\u001bb", "a\x7F", "a\\\\b"}) {
    EXPECT_THAT(message("1_Pooling", path), HasSubstr("expected the name of a folder")) << path;
  }
  for (const char* text : {"", "[]", "{}", "[1]", "[", "null"}) {
    EXPECT_FALSE(read_hf_modules(text)) << text;
  }
  EXPECT_FALSE(read_hf_modules(std::string(kModules) + ", \"more\": 1"));
}

TEST(HfEmbeddingTest, NothingMultipliesWhatIsDividedByItsLength) {
  const std::string pooling = R"({"path": "", "type": "Transformer"},
                                 {"path": "1", "type": "Pooling"})";
  const std::string dense = R"({"path": "2", "type": "Dense"}, {"path": "3", "type": "Dense"})";
  const std::string normalize = R"({"path": "4", "type": "Normalize"})";
  const auto behind = read_hf_modules("[" + pooling + "," + dense + "," + normalize + "]");
  ASSERT_TRUE(behind) << behind.error().message();
  EXPECT_THAT(behind->dense, testing::ElementsAre("2", "3"));
  const auto before = read_hf_modules("[" + pooling + "," + normalize + "," + dense + "]");
  ASSERT_FALSE(before);
  EXPECT_THAT(before.error().message(), HasSubstr("module \"Dense\" in \"2\""));
}

TEST(HfEmbeddingTest, PoolingByNameOrByBooleans) {
  HfConfig config;
  config.spec.hidden = 48;
  const auto read = [&](const char* text) {
    config.spec.pooling.reset();
    const Status status = read_hf_pooling(text, config);
    return status.ok() ? std::string(pooling_name(config.spec.pooling.value()))
                       : std::string(status.message());
  };
  EXPECT_EQ(read(R"({"word_embedding_dimension": 48, "pooling_mode_mean_tokens": true})"), "mean");
  EXPECT_EQ(read(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})"),
            "first");
  EXPECT_EQ(read(R"({"pooling_mode_lasttoken": true, "include_prompt": true})"), "last");
  EXPECT_EQ(read(R"({"pooling_mode": "lasttoken"})"), "last");
  EXPECT_EQ(read(R"({"pooling_mode": "mean"})"), "mean");
  EXPECT_EQ(read(R"({"pooling_mode": "cls"})"), "first");
  EXPECT_THAT(read(R"({"pooling_mode": "max"})"), HasSubstr("\"max\" is not supported"));
  EXPECT_THAT(read(R"({"pooling_mode": 3})"), HasSubstr("pooling 3 is not supported"));
  EXPECT_THAT(read(R"({"pooling_mode_weightedmean_tokens": true})"),
              HasSubstr("pooling_mode_weightedmean_tokens"));
  EXPECT_THAT(read(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})"),
              HasSubstr("a second pooling"));
  EXPECT_THAT(read(R"({"pooling_mode_cls_token": false})"), HasSubstr("no pooling_mode is true"));
  EXPECT_THAT(read(R"({"pooling_mode": "cls", "word_embedding_dimension": 49})"),
              HasSubstr("48 columns"));
  EXPECT_THAT(read(R"({"pooling_mode": "cls", "include_prompt": false})"),
              HasSubstr("include_prompt"));
}

TEST(HfEmbeddingTest, ThePoolingIsPartOfTheFile) {
  const auto model = HfModel::open((kGolden / "qwen3_embedding").string());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->spec().pooling, Pooling::kLast);
  EXPECT_TRUE((*model)->spec().tied_head);
  EXPECT_FALSE((*model)->spec().embeds_only);
}

TEST(HfEmbeddingTest, AMissingHeadIsForEmbeddingsAlone) {
  const EmbeddingFolder folder;
  std::string config = folder.read("config.json");
  const auto set = [&](const std::string& from, const std::string& to) {
    config.replace(config.find(from), from.size(), to);
    folder.write("config.json", config);
  };
  set("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE((*model)->spec().embeds_only && (*model)->spec().tied_head);
  std::filesystem::remove(folder.file("modules.json"));
  EXPECT_THAT(folder.refusal(), HasSubstr("\"lm_head.weight\" is missing"));
  // A class without a head, which transformers saves of a model that was loaded as one.
  set("Qwen3ForCausalLM", "Qwen3Model");
  model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE((*model)->spec().embeds_only && (*model)->spec().tied_head);
  EXPECT_FALSE((*model)->spec().pooling.has_value());
}

TEST(HfEmbeddingTest, DenseMatricesAreReadFromFilesOfTheirOwn) {
  const TemporaryFolder folder;
  std::filesystem::copy(kGolden / "embedding_gemma", folder.path(),
                        std::filesystem::copy_options::recursive);
  const auto refusal = [&] {
    const auto model = HfModel::open(folder.path());
    return model ? std::string() : std::string(model.error().message());
  };
  const auto model = HfModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message();
  const ModelSpec& spec = (*model)->spec();
  EXPECT_EQ(spec.embedding_dense, 60U);
  EXPECT_TRUE(spec.bidirectional && spec.embeds_only);
  EXPECT_THAT(spec.sliding_window, testing::ElementsAre(17, 17, 0));
  const auto tensors = (*model)->tensors(SectionKind::kEmbedding, 0);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[1].kind, TensorKind::kDenseUp);
  EXPECT_EQ(tensors[1].rows, 60U);
  EXPECT_EQ(tensors[2].cols, 60U);
  const std::string config = folder.read("2_Dense/config.json");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = config;
    text.replace(text.find(from), from.size(), to);
    folder.write("2_Dense/config.json", text);
    return refusal();
  };
  EXPECT_THAT(changed("\"bias\": false", "\"bias\": true"), HasSubstr("2_Dense/config.json: bias"));
  EXPECT_THAT(changed("linear.Identity", "activation.Tanh"), HasSubstr("activation.Tanh"));
  EXPECT_THAT(changed("\"in_features\": 48", "\"in_features\": 47"), HasSubstr("in_features"));
  EXPECT_THAT(changed("\"out_features\": 60", "\"out_features\": 61"),
              HasSubstr("3_Dense/config.json: in_features and out_features: expected 61 and 48"));
  folder.write("2_Dense/config.json", config);
  std::filesystem::copy_file(folder.file("3_Dense/model.safetensors"),
                             folder.file("2_Dense/model.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(), HasSubstr("2_Dense: tensor \"linear.weight\": expected 60 x 48"));
  std::filesystem::remove(folder.file("2_Dense/model.safetensors"));
  EXPECT_THAT(refusal(), HasSubstr("2_Dense: no weights found"));
}

TEST(HfEmbeddingTest, DenseMatricesLeaveThePageCacheToo) {
  FaultyFileOps ops;
  const auto model = HfModel::open((kGolden / "embedding_gemma").string(), ops);
  ASSERT_TRUE(model) << model.error().message();
  const std::uint64_t before = ops.drops();
  (*model)->drop_cached();
  EXPECT_EQ(ops.drops() - before, 3U);
}

TEST(HfEmbeddingTest, RefusalsNameTheFile) {
  const EmbeddingFolder folder;
  folder.write("1_Pooling/config.json", R"({"pooling_mode": "max"})");
  EXPECT_THAT(folder.refusal(), HasSubstr("1_Pooling/config.json: pooling \"max\""));
  std::filesystem::remove(folder.file("1_Pooling/config.json"));
  EXPECT_THAT(folder.refusal(), HasSubstr("1_Pooling/config.json"));
  folder.write("modules.json", "[]");
  EXPECT_THAT(folder.refusal(), HasSubstr("modules.json: expected a list of modules"));
}

}  // namespace
}  // namespace qsf
