// SPDX-License-Identifier: MIT
//
// Blocks for multi-token prediction of folders and GGUF files, as models of one layer.

#include "import/mtp_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "import/gguf/gguf_model.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "import/testing/opened_model.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;
using K = TensorKind;

constexpr auto kBlock = ModelPart::kMtpBlock;

std::string block_data(const std::string& name) {
  return std::string(QSF_SOURCE_DIR) + "/testdata/mtp/" + name;
}

nlohmann::json block_config() {
  auto config = nlohmann::json::parse(kTinyLlamaConfig);
  config["num_nextn_predict_layers"] = 1;
  return config;
}

// A llama with a block behind its two layers, which is as these.
TestTensors block_tensors() {
  TestTensors tensors = tiny_llama_tensors();
  const TestTensors others = tiny_llama_tensors(7);
  const std::string at = "model.layers.2.";
  for (const auto& [name, tensor] : others) {
    if (name.starts_with("model.layers.1.")) tensors[at + name.substr(at.size())] = tensor;
  }
  Rng rng(3);
  tensors[at + "eh_proj.weight"] = random_tensor({16, 32}, rng);
  for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"}) {
    tensors[at + name] = random_tensor({16}, rng);
  }
  return tensors;
}

Result<std::unique_ptr<HfModel>> open_block(const nlohmann::json& config,
                                            const TestTensors& tensors) {
  const TemporaryFolder folder;
  write_model(folder, config.dump(), tensors);
  return HfModel::open(folder.path(), system_file_ops(), kBlock);
}

std::string block_error(const nlohmann::json& config, const TestTensors& tensors) {
  const auto block = open_block(config, tensors);
  return block ? std::string() : std::string(block.error().message());
}

TEST(MtpBlockTest, IsAModelOfOneLayer) {
  const TestTensors tensors = block_tensors();
  const auto block = open_block(block_config(), tensors);
  ASSERT_TRUE(block) << block.error().message();
  const ModelSpec& spec = (*block)->spec();
  EXPECT_TRUE(spec.mtp_block);
  EXPECT_EQ(spec.n_layers, 1U);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_TRUE(validate(spec).ok());
  EXPECT_TRUE((*block)->warnings().empty());
  const std::string at = "model.layers.2.";
  const std::pair<K, const char*> places[] = {
      {K::kMtpProjection, "eh_proj.weight"},  {K::kMtpTokenNorm, "enorm.weight"},
      {K::kMtpHiddenNorm, "hnorm.weight"},    {K::kAttnNorm, "input_layernorm.weight"},
      {K::kAttnQ, "self_attn.q_proj.weight"}, {K::kFfnDown, "mlp.down_proj.weight"}};
  for (const auto& [kind, name] : places) {
    EXPECT_EQ(tensor_values(**block, 0, kind), tensors.at(at + name).values) << name;
  }
  EXPECT_EQ(tensor_values(**block, SectionKind::kFinal, 0, K::kFinalNorm),
            tensors.at(at + "shared_head.norm.weight").values);
  EXPECT_EQ(tensor_values(**block, SectionKind::kEmbedding, 0, K::kTokenEmbedding),
            tensors.at("model.embed_tokens.weight").values);
}

TEST(MtpBlockTest, MayHaveAnEmbeddingAndAHeadOfItsOwn) {
  TestTensors tensors = block_tensors();
  auto config = block_config();
  config["tie_word_embeddings"] = false;
  Rng rng(9);
  tensors["lm_head.weight"] = random_tensor({33, 16}, rng);
  const auto of_model = open_block(config, tensors);
  ASSERT_TRUE(of_model) << of_model.error().message();
  EXPECT_EQ(tensor_values(**of_model, SectionKind::kFinal, 0, K::kHead),
            tensors["lm_head.weight"].values);
  const std::string embedding = "model.layers.2.embed_tokens.weight";
  const std::string head = "model.layers.2.shared_head.head.weight";
  tensors[embedding] = random_tensor({33, 16}, rng);
  tensors[head] = random_tensor({33, 16}, rng);
  const auto own = open_block(config, tensors);
  ASSERT_TRUE(own) << own.error().message();
  EXPECT_EQ(tensor_values(**own, SectionKind::kEmbedding, 0, K::kTokenEmbedding),
            tensors[embedding].values);
  EXPECT_EQ(tensor_values(**own, SectionKind::kFinal, 0, K::kHead), tensors[head].values);
  tensors[head] = random_tensor({32, 16}, rng);
  EXPECT_THAT(block_error(config, tensors), HasSubstr("\"" + head + "\": shape [32, 16]"));
}

TEST(MtpBlockTest, RefusesWhatIsMissingByName) {
  const TestTensors whole = block_tensors();
  for (const auto& [name, tensor] : whole) {
    if (!name.starts_with("model.layers.2.")) continue;
    TestTensors tensors = whole;
    tensors.erase(name);
    EXPECT_THAT(block_error(block_config(), tensors), HasSubstr("\"" + name + "\" is missing"));
    tensors[name] = {{3}, {1, 2, 3}};
    EXPECT_THAT(block_error(block_config(), tensors), HasSubstr("\"" + name + "\": shape [3]"));
  }
  auto config = block_config();
  config["num_nextn_predict_layers"] = 0;
  EXPECT_THAT(block_error(config, whole), HasSubstr("no block for multi-token prediction"));
}

TEST(MtpBlockTest, LayersThatDifferAreRefused) {
  ModelSpec spec;
  spec.architecture = "some";
  spec.n_layers = 3;
  EXPECT_TRUE(mtp_block_spec(spec, 1));
  const auto refused = [&](auto change) {
    ModelSpec changed = spec;
    change(changed);
    const auto block = mtp_block_spec(changed, 1);
    EXPECT_FALSE(block);
    return block ? std::string() : std::string(block.error().message());
  };
  EXPECT_THAT(refused([](ModelSpec& s) { s.layer_rope = {1, 0, 1}; }), HasSubstr("of a some"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.sliding_window = {8, 0, 8}; }), HasSubstr("alike"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.layer_mixers = {0, 3, 0}; }), HasSubstr("alike"));
  EXPECT_THAT(refused([](ModelSpec& s) { s.n_streams = 2; }), HasSubstr("alike"));
  EXPECT_THAT(refused([](ModelSpec& s) {
                s.n_experts = 4;
                s.expert_layers = {1, 1, 0};
              }),
              HasSubstr("last layer has none"));
  spec.n_experts = 4;
  spec.expert_layers = {0, 1, 1};
  const auto block = mtp_block_spec(spec, 1);
  ASSERT_TRUE(block);
  EXPECT_TRUE(block->has_experts(0));
}

class MtpFamilyTest : public testing::TestWithParam<const char*> {};

TEST_P(MtpFamilyTest, HasEveryTensorOfTheLayerAndItsExperts) {
  const auto block = HfModel::open(block_data(GetParam()), system_file_ops(), kBlock);
  ASSERT_TRUE(block) << block.error().message();
  const ModelSpec& spec = (*block)->spec();
  EXPECT_TRUE(spec.has_experts(0));
  EXPECT_FALSE(spec.tied_head);
  const auto tensors = (*block)->tensors(SectionKind::kLayer, 0);
  EXPECT_EQ(std::ranges::count(tensors, K::kExpertDown, &SourceTensor::kind), spec.n_experts);
  for (const SourceTensor& tensor : tensors) EXPECT_THAT(tensor.name, HasSubstr("layers.3."));
}

INSTANTIATE_TEST_SUITE_P(All, MtpFamilyTest, testing::Values("glm4_moe", "deepseek_v3"),
                         [](const auto& model) { return std::string(model.param); });

TEST(MtpGgufTest, HasTheTensorsOfItsFolder) {
  const auto folder = HfModel::open(block_data("glm4_moe"), system_file_ops(), kBlock).value();
  const auto opened =
      GgufModel::open(block_data("glm4_moe.gguf"), I2sLayout::kAuto, system_file_ops(), kBlock);
  ASSERT_TRUE(opened) << opened.error().message();
  const GgufModel& gguf = **opened;
  EXPECT_TRUE(gguf.spec().mtp_block);
  EXPECT_EQ(gguf.spec().expert_ffn, folder->spec().expert_ffn);
  EXPECT_EQ(gguf.spec().tied_head, folder->spec().tied_head);
  EXPECT_TRUE(gguf.spec().chat_template.empty());
  for (const SectionKind section :
       {SectionKind::kEmbedding, SectionKind::kLayer, SectionKind::kFinal}) {
    const auto ours = gguf.tensors(section, 0);
    const auto theirs = folder->tensors(section, 0);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(ours[i].kind, theirs[i].kind);
      std::vector<float> a(std::size_t{ours[i].rows} * ours[i].cols);
      std::vector<float> b(std::size_t{theirs[i].rows} * theirs[i].cols);
      ASSERT_TRUE(gguf.read_rows(section, 0, i, 0, a).ok());
      ASSERT_TRUE(folder->read_rows(section, 0, i, 0, b).ok());
      EXPECT_EQ(a, b) << ours[i].name << ", " << theirs[i].name;
    }
  }
  // Without the block's own the model is what it was.
  const auto model = GgufModel::open(block_data("glm4_moe.gguf"));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ((*model)->spec().n_layers, 3U);
  EXPECT_THAT(
      (*model)->warnings(),
      testing::Contains(HasSubstr("tensors that predict further tokens; 'qsf convert --mtp'")));
}

TEST(MtpGgufTest, AFileWithoutABlockIsRefused) {
  const auto block = GgufModel::open(std::string(QSF_SOURCE_DIR) + "/testdata/gguf/qwen3_moe.gguf",
                                     I2sLayout::kAuto, system_file_ops(), kBlock);
  ASSERT_FALSE(block);
  EXPECT_THAT(block.error().message(), HasSubstr("no block for multi-token prediction"));
}

// Any byte of keys and names may be wrong.
TEST(MtpGgufTest, DamagedFilesEndInAStatus) {
  std::ifstream in(block_data("glm4_moe.gguf"), std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(in), {}};
  const std::size_t n_bytes = file.find("blk.3.ffn_up_exps") + 64;
  ASSERT_LT(n_bytes, file.size());
  std::size_t n_refused = 0;
  for (std::size_t at = 0; at < n_bytes; at += 3) {
    const char kept = file[at];
    for (const char wrong : {'\0', '\xff'}) {
      file[at] = wrong;
      MemoryFileOps ops(std::as_bytes(std::span(file)));
      const auto block = GgufModel::open("model.gguf", I2sLayout::kAuto, ops, kBlock);
      n_refused += block ? 0 : 1;
      if (block) {
        EXPECT_TRUE(validate((*block)->spec()).ok()) << at;
      } else {
        EXPECT_THAT(block.error().message(), testing::StartsWith("model.gguf")) << at;
      }
    }
    file[at] = kept;
  }
  EXPECT_GT(n_refused, n_bytes / 6);
}

}  // namespace
}  // namespace qsf
