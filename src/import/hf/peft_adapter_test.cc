// SPDX-License-Identifier: MIT
//
// PEFT folders: what is read against weights into which the same pairs were merged, over every
// golden model; and what is refused, by name.

#include "import/hf/peft_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "import/checkpoint.h"
#include "import/hf/hf_model.h"
#include "import/testing/adapter_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

// A module of a model's folder, with a pair of its own.
struct Module {
  std::string weight;  // the stored tensor
  TestTensor a;
  TestTensor b;
};

TestTensor stored_tensor(const Checkpoint& weights, const StoredTensor& tensor) {
  TestTensor read{tensor.shape, std::vector<float>(tensor.elements)};
  EXPECT_TRUE(weights.read(tensor, 0, read.values).ok()) << tensor.name;
  return read;
}

constexpr float kMergedScale = 2.0F;  // of kTinyPeftConfig: 6 / 3

// Gives every module that adapters may be of a random pair and merges it into a copy.
class MergedModel {
 public:
  // Requires  golden is a folder that HfModel reads
  explicit MergedModel(const std::string& golden)
      : base_(HfModel::open(golden).value()), weights_(open_checkpoint(golden).value()) {
    for (const StoredTensor& tensor : weights_->tensors()) {
      if (tensor.name.ends_with("_blocks")) return;
      if (!is_weight_type(tensor.type)) continue;  // buffers that nobody reads
      merged_tensors_[tensor.name] = stored_tensor(*weights_, tensor);
    }
    for (const SourcePlace& place : tensors_of(*base_)) adapt(place);
    write_adapter(adapter_, kTinyPeftConfig, pairs_);
    write_model(folder_, read_file(golden + "/config.json"), merged_tensors_);
    auto merged = HfModel::open(folder_.path());
    EXPECT_TRUE(merged.has_value()) << merged.error().message();
    if (merged) merged_ = std::move(merged).value();
  }

  const HfModel& base() const { return *base_; }
  const TemporaryFolder& adapter() const { return adapter_; }
  // False where weights are stored as blocks, which a copy of floats cannot hold.
  bool is_merged() const { return merged_ != nullptr; }
  const std::set<TensorKind>& left_out() const { return left_out_; }

  // Compares a pair with what the merge has changed of its matrix.
  void expect_merged(const AdapterPair& pair, std::span<const float> a,
                     std::span<const float> b) const {
    const SourcePlace place = find(pair);
    ASSERT_EQ(place.source->rows, pair.out);
    ASSERT_EQ(place.source->cols, pair.in);
    std::vector<float> before(pair.in);
    std::vector<float> after(pair.in);
    for (std::uint32_t row = 0; row < pair.out; ++row) {
      ASSERT_TRUE(read(*base_, place, row, before) && read(*merged_, place, row, after));
      for (std::uint32_t c = 0; c < pair.in; ++c) {
        float sum = 0.0F;
        for (std::uint32_t r = 0; r < pair.rank; ++r) {
          sum += b[std::size_t{row} * pair.rank + r] * a[std::size_t{r} * pair.in + c];
        }
        ASSERT_NEAR(before[c] + pair.scale * sum, after[c], 2e-5F)
            << adapter_pair_label(pair) << ", row " << row << ", column " << c;
      }
    }
  }

 private:
  static std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static bool read(const HfModel& model, const SourcePlace& place, std::uint32_t row,
                   std::span<float> out) {
    return model.read_rows(place.section.kind, place.section.layer, place.index, row, out).ok();
  }

  SourcePlace find(const AdapterPair& pair) const {
    for (const SourcePlace& place : tensors_of(*base_)) {
      const bool head = pair.kind == TensorKind::kHead;
      const bool here =
          head ? place.section.kind == SectionKind::kFinal
               : place.section.kind == SectionKind::kLayer && place.section.layer == pair.layer;
      if (here && place.source->kind == pair.kind && place.source->expert == pair.expert) {
        return place;
      }
    }
    ADD_FAILURE() << adapter_pair_label(pair);
    return {};
  }

  void adapt(const SourcePlace& place) {
    const std::string& name = place.source->name;
    if (!is_adaptable(place.source->kind)) return;
    if (!name.ends_with(".weight") || merged_tensors_.at(name).shape.size() != 2) {
      left_out_.insert(place.source->kind);
      return;
    }
    const std::string module = name.substr(0, name.size() - 7);
    if (!done_.insert(module).second) return;
    const bool transposed = base_->spec().architecture == "gpt2" && module != "lm_head";
    TestTensor& weight = merged_tensors_[name];
    TestTensors own;
    add_lora_pair(module, weight.shape[transposed ? 0 : 1], weight.shape[transposed ? 1 : 0], 3,
                  rng_, own);
    merge_pair(own.begin()->second, std::next(own.begin())->second, kMergedScale, transposed,
               weight);
    pairs_.merge(own);
  }

  Rng rng_{11};
  std::unique_ptr<HfModel> base_;
  std::unique_ptr<Checkpoint> weights_;
  std::unique_ptr<HfModel> merged_;
  TestTensors merged_tensors_;
  TestTensors pairs_;
  std::set<std::string> done_;
  std::set<TensorKind> left_out_;
  TemporaryFolder adapter_;
  TemporaryFolder folder_;
};

// Every family, every fused, transposed and reordered projection.
TEST(PeftAdapterTest, GivesWhatAMergeGives) {
  std::size_t n_models = 0;
  std::set<std::string> refused;
  for (const auto& entry : std::filesystem::directory_iterator(QSF_SOURCE_DIR "/testdata/golden")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const MergedModel model(entry.path().string());
    if (!model.is_merged()) {
      EXPECT_EQ(entry.path().filename(), "gpt_oss");
      continue;
    }
    for (const TensorKind kind : model.left_out()) {
      const bool experts = kind == TensorKind::kExpertGate || kind == TensorKind::kExpertUp ||
                           kind == TensorKind::kExpertDown;
      EXPECT_TRUE(experts) << tensor_kind_name(kind);
    }
    const auto adapter = PeftAdapter::open(model.adapter().path(), model.base().spec());
    if (!adapter) {
      EXPECT_EQ(adapter.error().code(), StatusCode::kUnsupported) << adapter.error().message();
      refused.insert(model.base().spec().architecture);
      continue;
    }
    ++n_models;
    for (std::size_t i = 0; i < adapter->spec().pairs.size(); ++i) {
      const AdapterPair& pair = adapter->spec().pairs[i];
      std::vector<float> a(pair.a_values());
      std::vector<float> b(pair.b_values());
      ASSERT_TRUE(adapter->read_pair(i, a, b).ok());
      model.expect_merged(pair, a, b);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(n_models, 90U);
  EXPECT_THAT(refused, testing::ElementsAre("falcon-h1"));
}

// What peft itself has saved (testdata/adapters): the ranks and scales that it states of modules.
TEST(PeftAdapterTest, ReadsGoldenAdapters) {
  const struct {
    const char* name;
    const char* base;
    std::size_t n_pairs;
    AdapterPair first;
    AdapterPair last;
  } cases[] = {
      {"llama_all",
       "llama_gqa_tied",
       22,
       {.kind = TensorKind::kAttnQ, .rank = 4, .in = 48, .out = 48, .scale = 1.5F},
       {.kind = TensorKind::kHead, .rank = 4, .in = 48, .out = 112, .scale = 1.5F}},
      {"llama_patterns",
       "llama_gqa_tied",
       6,
       {.kind = TensorKind::kAttnQ, .rank = 3, .in = 48, .out = 48, .scale = 2.8867514F},
       {.kind = TensorKind::kAttnV,
        .layer = 2,
        .rank = 2,
        .in = 48,
        .out = 16,
        .scale = 3.5355339F}},
      {"phi3_fused",
       "phi3_gqa",
       14,
       {.kind = TensorKind::kAttnQ, .rank = 4, .in = 48, .out = 48, .scale = 1.0F},
       {.kind = TensorKind::kFfnDown, .layer = 1, .rank = 4, .in = 52, .out = 48, .scale = 1.0F}},
      {"gpt2_transposed",
       "gpt2",
       12,
       {.kind = TensorKind::kAttnQ, .rank = 2, .in = 48, .out = 48, .scale = 1.5F},
       {.kind = TensorKind::kFfnDown, .layer = 1, .rank = 2, .in = 68, .out = 48, .scale = 1.5F}},
  };
  const std::string data = QSF_SOURCE_DIR "/testdata/";
  for (const auto& [name, base, n_pairs, first, last] : cases) {
    const auto model = HfModel::open(data + "golden/" + base).value();
    const auto adapter = PeftAdapter::open(data + "adapters/" + name, model->spec());
    ASSERT_TRUE(adapter.has_value()) << adapter.error().message();
    const std::vector<AdapterPair>& pairs = adapter->spec().pairs;
    EXPECT_EQ(adapter->spec().name, name);
    EXPECT_EQ(pairs.size(), n_pairs) << name;
    EXPECT_EQ(pairs.front(), first) << name;
    EXPECT_EQ(pairs.back(), last) << name;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      std::vector<float> a(pairs[i].a_values());
      std::vector<float> b(pairs[i].b_values());
      EXPECT_TRUE(adapter->read_pair(i, a, b).ok());
    }
  }
}

// A folder for the tiny llama, with one fault.
class PeftRefusalTest : public testing::Test {
 protected:
  PeftRefusalTest() {
    TemporaryFolder model;
    write_model(model, kTinyLlamaConfig, tiny_llama_tensors());
    base_ = HfModel::open(model.path()).value()->spec();
    Rng rng(5);
    add_lora_pair("model.layers.0.self_attn.q_proj", 16, 16, 3, rng, tensors_);
    add_lora_pair("model.layers.1.mlp.down_proj", 20, 16, 3, rng, tensors_);
  }

  Result<PeftAdapter> open(const std::string& config = kTinyPeftConfig) {
    write_adapter(folder_, config, tensors_);
    return PeftAdapter::open(folder_.path(), base_);
  }
  void expect_refused(StatusCode code, const char* message) {
    const auto adapter = open();
    ASSERT_FALSE(adapter.has_value()) << message;
    EXPECT_EQ(adapter.error().code(), code) << adapter.error().message();
    EXPECT_THAT(adapter.error().message(), HasSubstr(message));
    EXPECT_THAT(adapter.error().message(), HasSubstr(folder_.path()));
  }
  void rename(const std::string& from, const std::string& to) {
    tensors_[to] = tensors_.at(from);
    tensors_.erase(from);
  }
  static std::string at(const std::string& rest) {
    return "base_model.model.model.layers." + rest + ".weight";
  }
  void draw(const std::string& name, std::vector<std::uint64_t> shape) {
    Rng rng(6);
    tensors_[name] = random_tensor(std::move(shape), rng);
  }

  ModelSpec base_;
  TestTensors tensors_;
  TemporaryFolder folder_;
};

TEST_F(PeftRefusalTest, TheIntactFolderIsRead) {
  const auto adapter = open();
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message();
  ASSERT_EQ(adapter->spec().pairs.size(), 2U);
  EXPECT_EQ(adapter->spec().pairs[0],
            (AdapterPair{.kind = TensorKind::kAttnQ, .rank = 3, .in = 16, .out = 16, .scale = 2}));
  EXPECT_EQ(
      adapter->spec().pairs[1],
      (AdapterPair{
          .kind = TensorKind::kFfnDown, .layer = 1, .rank = 3, .in = 20, .out = 16, .scale = 2}));
  EXPECT_EQ(adapter->spec().name, std::filesystem::path(folder_.path()).filename());
  EXPECT_EQ(adapter->spec().architecture, "llama");
  EXPECT_EQ(adapter->spec().base_fingerprint, 0U);
  EXPECT_TRUE(adapter->warnings().empty());
}

TEST_F(PeftRefusalTest, VariantsOfNamesAreRead) {
  rename(at("0.self_attn.q_proj.lora_A"), at("0.self_attn.q_proj.lora_A.default"));
  rename(at("1.mlp.down_proj.lora_B"), "model.layers.1.mlp.down_proj.lora_B.poet.weight");
  draw("base_model.model.lm_head.lora_A.weight", {3, 16});
  draw("base_model.model.lm_head.lora_B.weight", {33, 3});
  const auto adapter = open();
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message();
  ASSERT_EQ(adapter->spec().pairs.size(), 3U);
  EXPECT_EQ(adapter->spec().pairs[2],
            (AdapterPair{.kind = TensorKind::kHead, .rank = 3, .in = 16, .out = 33, .scale = 2}));
}

TEST_F(PeftRefusalTest, HalvesAndTwins) {
  const TestTensors intact = tensors_;
  tensors_.erase(at("0.self_attn.q_proj.lora_A"));
  expect_refused(StatusCode::kCorrupt, "has no lora_A beside it");
  tensors_ = intact;
  tensors_.erase(at("1.mlp.down_proj.lora_B"));
  expect_refused(StatusCode::kCorrupt, "has no lora_B beside it");
  tensors_ = intact;
  tensors_[at("1.mlp.down_proj.lora_B.default")] = tensors_[at("1.mlp.down_proj.lora_B")];
  expect_refused(StatusCode::kUnsupported, "are of one module");
  tensors_ = intact;
  for (const std::string half : {"A", "B"}) {
    tensors_["layers.1.mlp.down_proj.lora_" + half + ".weight"] =
        tensors_[at("1.mlp.down_proj.lora_" + half)];
  }
  expect_refused(StatusCode::kCorrupt, "layer 1, ffn_down: repeated");
}

TEST_F(PeftRefusalTest, ShapesAndRanks) {
  const TestTensors intact = tensors_;
  const struct {
    const char* name;
    std::vector<std::uint64_t> shape;
    StatusCode code;
    const char* message;
  } cases[] = {
      {"A", {3, 17}, StatusCode::kInvalidArgument, "shape [3, 17], expected [3, 16]"},
      {"A", {3, 15}, StatusCode::kInvalidArgument, "shape [3, 15], expected [3, 16]"},
      {"A", {4, 16}, StatusCode::kCorrupt, "rank 4, expected 3 by r"},
      {"A", {48}, StatusCode::kInvalidArgument, "shape [48]"},
      {"B", {16, 4}, StatusCode::kInvalidArgument, "shape [16, 4], expected [16, 3]"},
      {"B", {17, 3}, StatusCode::kInvalidArgument, "shape [17, 3], expected [16, 3]"},
      {"B", {16, 3, 1}, StatusCode::kInvalidArgument, "shape [16, 3, 1]"},
  };
  for (const auto& [name, shape, code, message] : cases) {
    tensors_ = intact;
    draw(at(std::string("0.self_attn.q_proj.lora_") + name), shape);
    expect_refused(code, message);
  }
}

TEST_F(PeftRefusalTest, ForeignTensorsByName) {
  const TestTensors intact = tensors_;
  const std::pair<std::string, const char*> cases[] = {
      {at("0.self_attn.q_proj.lora_magnitude_vector.default"), "DoRA"},
      {"base_model.model.model.embed_tokens.lora_embedding_A", "LoRA of embeddings"},
      {"base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", "biases of LoRA"},
      {"base_model.model.lm_head.modules_to_save.default.weight",
       "modules that were trained whole"},
      {"base_model.model.lm_head.weight", "expected a name that ends in"},
      {at("0.self_attn.q_proj.lora_C"), "expected a name that ends in"},
  };
  for (const auto& [name, message] : cases) {
    tensors_ = intact;
    draw(name, {3, 16});
    expect_refused(StatusCode::kUnsupported, message);
  }
}

TEST_F(PeftRefusalTest, ModulesThatTheModelHasNot) {
  const TestTensors intact = tensors_;
  const std::tuple<const char*, StatusCode, const char*> cases[] = {
      {"model.layers.2.self_attn.q_proj", StatusCode::kInvalidArgument,
       "layer 2, but the model has 2 layers"},
      {"model.layers.00.self_attn.q_proj", StatusCode::kUnsupported, "outside the layers"},
      {"model.layers.0.self_attn.qkv_proj", StatusCode::kUnsupported,
       "expected one of self_attn.q_proj, self_attn.k_proj, self_attn.v_proj, self_attn.o_proj, "
       "mlp.gate_proj, mlp.up_proj, mlp.down_proj"},
      {"model.layers.0.input_layernorm", StatusCode::kUnsupported, "expected one of"},
      {"model.embed_tokens", StatusCode::kUnsupported, "outside the layers"},
      {"transformer.h.0.attn.c_attn", StatusCode::kUnsupported, "outside the layers"},
  };
  for (const auto& [module, code, message] : cases) {
    tensors_ = intact;
    Rng rng(8);
    add_lora_pair(module, 16, 16, 3, rng, tensors_);
    expect_refused(code, message);
    expect_refused(code, module);
  }
  tensors_ = {};
  expect_refused(StatusCode::kCorrupt, "no LoRA matrix");
  base_.architecture = "unheard-of";
  tensors_ = intact;
  expect_refused(StatusCode::kUnsupported, "PEFT adapters of a unheard-of");
}

TEST_F(PeftRefusalTest, DamagedFiles) {
  ASSERT_TRUE(open().has_value());
  const std::string file = folder_.read(kPeftWeightsName);
  for (std::size_t n = 0; n < file.size(); n += 7) {
    folder_.write(kPeftWeightsName, file.substr(0, n));
    EXPECT_FALSE(PeftAdapter::open(folder_.path(), base_).has_value()) << n;
  }
  std::filesystem::remove(folder_.file(kPeftWeightsName));
  EXPECT_THAT(PeftAdapter::open(folder_.path(), base_).error().message(),
              HasSubstr("safe_serialization"));
  EXPECT_TRUE(is_peft_folder(folder_.path()));
  std::filesystem::remove(folder_.file(kPeftConfigName));
  EXPECT_EQ(PeftAdapter::open(folder_.path(), base_).error().code(), StatusCode::kNotFound);
  EXPECT_FALSE(is_peft_folder(folder_.path()));
}

TEST_F(PeftRefusalTest, ValuesMustBeFinite) {
  tensors_.at(at("1.mlp.down_proj.lora_B")).values[7] = std::numeric_limits<float>::infinity();
  const auto adapter = open();
  ASSERT_TRUE(adapter.has_value());
  std::vector<float> a(60);
  std::vector<float> b(48);
  EXPECT_THAT(adapter->read_pair(1, a, b).message(), HasSubstr("element 7 is infinite"));
}

}  // namespace
}  // namespace qsf
