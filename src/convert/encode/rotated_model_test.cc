// SPDX-License-Identifier: MIT
//
// Tensors of rotated models, refused models and files of rotated models. rotated_logits_test holds
// the logits.

#include "convert/encode/rotated_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "convert/encode/transcode.h"
#include "format/qsf_reader.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

constexpr RotationScope kValues = {.values = true};
constexpr RotationScope kStream = {.stream = true};
constexpr RotationScope kAll = {.values = true, .stream = true};

std::unique_ptr<ModelSource> open_model(const TemporaryFolder& folder, const std::string& config,
                                        const TestTensors& tensors) {
  write_model(folder, config, tensors);
  auto model = HfModel::open(folder.path());
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

std::unique_ptr<RotatedModel> rotate(std::unique_ptr<ModelSource> model, RotationScope scope) {
  auto rotated = RotatedModel::create(std::move(model), scope);
  EXPECT_TRUE(rotated) << rotated.error().message();
  return std::move(*rotated);
}

std::unique_ptr<RotatedModel> tiny_llama(const TemporaryFolder& folder, RotationScope scope) {
  return rotate(open_model(folder, kTinyLlamaConfig, tiny_llama_tensors()), scope);
}

std::size_t index_of(const ModelSource& model, SectionKind section, std::uint32_t layer,
                     TensorKind kind) {
  const auto tensors = model.tensors(section, layer);
  const auto found = std::ranges::find(tensors, kind, &SourceTensor::kind);
  EXPECT_NE(found, tensors.end());
  return static_cast<std::size_t>(found - tensors.begin());
}

std::vector<float> read(const ModelSource& model, SectionKind section, std::uint32_t layer,
                        std::size_t tensor, std::uint32_t first, std::uint32_t n_rows) {
  const SourceTensor& info = model.tensors(section, layer)[tensor];
  std::vector<float> rows(std::size_t{n_rows} * info.cols);
  const Status status = model.read_rows(section, layer, tensor, first, rows);
  EXPECT_TRUE(status.ok()) << status.message();
  return rows;
}

std::vector<float> read(const ModelSource& model, SectionKind section, std::uint32_t layer,
                        TensorKind kind) {
  const std::size_t tensor = index_of(model, section, layer, kind);
  return read(model, section, layer, tensor, 0, model.tensors(section, layer)[tensor].rows);
}

// Returns the products of every row of a with every row of b.
std::vector<double> products(const std::vector<float>& a, const std::vector<float>& b,
                             std::size_t n_cols) {
  std::vector<double> out;
  for (std::size_t i = 0; i < a.size(); i += n_cols) {
    for (std::size_t j = 0; j < b.size(); j += n_cols) {
      double sum = 0.0;
      for (std::size_t c = 0; c < n_cols; ++c) sum += double{a[i + c]} * double{b[j + c]};
      out.push_back(sum);
    }
  }
  return out;
}

TEST(RotatedModelTest, ReadsTheEmbeddingAsBeforeWithGainsInTheMatrices) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = tiny_llama(folder, kAll);
  const std::vector<float> embedding =
      read(*model, SectionKind::kEmbedding, 0, TensorKind::kTokenEmbedding);
  EXPECT_NE(embedding, tensors.at("model.embed_tokens.weight").values);
  const struct {
    TensorKind kind;
    const char* name;
    const char* gain;
  } kMatrices[] = {{TensorKind::kAttnQ, "self_attn.q_proj", "input_layernorm"},
                   {TensorKind::kAttnK, "self_attn.k_proj", "input_layernorm"},
                   {TensorKind::kFfnGate, "mlp.gate_proj", "post_attention_layernorm"},
                   {TensorKind::kFfnUp, "mlp.up_proj", "post_attention_layernorm"}};
  for (const auto& [kind, name, gain] : kMatrices) {
    const std::string at = "model.layers.1.";
    std::vector<float> folded = tensors.at(at + name + ".weight").values;
    const std::vector<float>& gains = tensors.at(at + gain + ".weight").values;
    for (std::size_t i = 0; i < folded.size(); ++i) folded[i] *= gains[i % 16];
    const auto want = products(folded, tensors.at("model.embed_tokens.weight").values, 16);
    const auto got = products(read(*model, SectionKind::kLayer, 1, kind), embedding, 16);
    ASSERT_EQ(got.size(), want.size()) << name;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << name;
  }
  EXPECT_THAT(read(*model, SectionKind::kLayer, 1, TensorKind::kAttnNorm), Each(1.0F));
  EXPECT_THAT(read(*model, SectionKind::kLayer, 1, TensorKind::kFfnNorm), Each(1.0F));
  EXPECT_THAT(read(*model, SectionKind::kFinal, 0, TensorKind::kFinalNorm), Each(1.0F));
}

TEST(RotatedModelTest, AHeadThatIsTheEmbeddingBecomesItsOwn) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = tiny_llama(folder, kAll);
  EXPECT_FALSE(model->spec().tied_head);
  EXPECT_EQ(model->added_weights(), 33U * 16U);
  std::vector<float> folded = tensors.at("model.embed_tokens.weight").values;
  const std::vector<float>& gains = tensors.at("model.norm.weight").values;
  for (std::size_t i = 0; i < folded.size(); ++i) folded[i] *= gains[i % 16];
  const auto want = products(folded, tensors.at("model.embed_tokens.weight").values, 16);
  const auto got =
      products(read(*model, SectionKind::kFinal, 0, TensorKind::kHead),
               read(*model, SectionKind::kEmbedding, 0, TensorKind::kTokenEmbedding), 16);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6);
}

TEST(RotatedModelTest, RotatingValuesAloneLeavesTheRest) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = tiny_llama(folder, kValues);
  EXPECT_TRUE(model->spec().tied_head);
  EXPECT_EQ(model->added_weights(), 0U);
  for (const SourceTensor& tensor : model->tensors(SectionKind::kLayer, 0)) {
    const std::vector<float> got = read(*model, SectionKind::kLayer, 0, tensor.kind);
    const std::vector<float>& original = tensors.at(tensor.name).values;
    const bool rotated = tensor.kind == TensorKind::kAttnV || tensor.kind == TensorKind::kAttnO;
    EXPECT_EQ(got != original, rotated) << tensor.name;
    const auto kept = model->kept_format(SectionKind::kLayer, 0,
                                         index_of(*model, SectionKind::kLayer, 0, tensor.kind));
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->type, QuantType::kF32);
  }
  EXPECT_EQ(read(*model, SectionKind::kEmbedding, 0, TensorKind::kTokenEmbedding),
            tensors.at("model.embed_tokens.weight").values);
}

TEST(RotatedModelTest, RotatingTheResidualStreamAloneLeavesValues) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = tiny_llama(folder, kStream);
  // What a head adds to the stream: products of columns of Wo are kept where only rows are mixed.
  const auto transposed = [](const std::vector<float>& matrix) {
    std::vector<float> out(matrix.size());
    for (std::size_t i = 0; i < matrix.size(); ++i) out[i % 16 * 16 + i / 16] = matrix[i];
    return out;
  };
  const auto stored = transposed(tensors.at("model.layers.0.self_attn.o_proj.weight").values);
  const auto rotated = transposed(read(*model, SectionKind::kLayer, 0, TensorKind::kAttnO));
  EXPECT_NE(rotated, stored);
  const auto want = products(stored, stored, 16);
  const auto got = products(rotated, rotated, 16);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << i;
  EXPECT_EQ(model->spec().quantiser, "residual stream rotated");
}

// Queries 0 and 1 share the values of one KV head. What a head gives is Wo (sum of v): products of
// columns of Wo with rows of Wv stay what they were, head by head.
TEST(RotatedModelTest, OutputMatricesTakeRotatedValues) {
  const TemporaryFolder folder;
  const TestTensors tensors = tiny_llama_tensors();
  const auto model = tiny_llama(folder, kValues);
  constexpr std::size_t kHeadDim = 4;
  const auto give = [&](const std::vector<float>& values, const std::vector<float>& out) {
    std::vector<double> sums;
    for (std::size_t head = 0; head < 4; ++head) {
      for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t col = 0; col < 16; ++col) {
          double sum = 0.0;
          for (std::size_t i = 0; i < kHeadDim; ++i) {
            sum += double{out[row * 16 + head * kHeadDim + i]} *
                   double{values[(head / 2 * kHeadDim + i) * 16 + col]};
          }
          sums.push_back(sum);
        }
      }
    }
    return sums;
  };
  const auto want = give(tensors.at("model.layers.0.self_attn.v_proj.weight").values,
                         tensors.at("model.layers.0.self_attn.o_proj.weight").values);
  const auto got = give(read(*model, SectionKind::kLayer, 0, TensorKind::kAttnV),
                        read(*model, SectionKind::kLayer, 0, TensorKind::kAttnO));
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-7) << i;
}

TEST(RotatedModelTest, RowsDoNotDependOnWhatTheyAreReadWith) {
  const TemporaryFolder folder;
  const auto model = tiny_llama(folder, kAll);
  const auto tensors = model->tensors(SectionKind::kLayer, 0);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::uint32_t n_rows = tensors[t].rows;
    const std::vector<float> whole = read(*model, SectionKind::kLayer, 0, t, 0, n_rows);
    for (const std::uint32_t part : {1U, 3U, 7U}) {
      std::vector<float> rows;
      for (std::uint32_t first = 0; first < n_rows; first += part) {
        const auto more =
            read(*model, SectionKind::kLayer, 0, t, first, std::min(part, n_rows - first));
        rows.insert(rows.end(), more.begin(), more.end());
      }
      EXPECT_EQ(rows, whole) << tensors[t].name << ", " << part << " rows at a time";
    }
  }
}

// A Gpt2 has biases of values and outputs, and a LayerNorm.
TEST(RotatedModelTest, RotatesTheBiasOfValuesAsValues) {
  const TemporaryFolder folder;
  TestTensors tensors = tiny_gpt2_tensors("");
  // Values that are their bias alone: Wo takes the rotated ones to what it took the others to.
  const auto model = rotate(open_model(folder, kTinyGpt2Config, tensors), kValues);
  const auto bias = read(*model, SectionKind::kLayer, 0, TensorKind::kAttnVBias);
  const auto out = read(*model, SectionKind::kLayer, 0, TensorKind::kAttnO);
  const std::vector<float>& qkv = tensors.at("h.0.attn.c_attn.bias").values;
  const std::vector<float> plain_bias(qkv.begin() + 24, qkv.end());
  EXPECT_NE(bias, plain_bias);
  const std::vector<float>& stored = tensors.at("h.0.attn.c_proj.weight").values;
  for (std::size_t row = 0; row < 12; ++row) {
    double want = 0.0;
    double got = 0.0;
    for (std::size_t c = 0; c < 12; ++c) {
      want += double{stored[c * 12 + row]} * double{plain_bias[c]};
      got += double{out[row * 12 + c]} * double{bias[c]};
    }
    EXPECT_NEAR(got, want, 1e-7) << row;
  }
  EXPECT_EQ(read(*model, SectionKind::kLayer, 0, TensorKind::kAttnOBias),
            tensors.at("h.0.attn.c_proj.bias").values);
}

TEST(RotatedModelTest, LayerNormForbidsTheResidualStream) {
  const TemporaryFolder folder;
  const auto rotated =
      RotatedModel::create(open_model(folder, kTinyGpt2Config, tiny_gpt2_tensors("")), kAll);
  ASSERT_FALSE(rotated);
  EXPECT_EQ(rotated.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(rotated.error().message(), HasSubstr("LayerNorm"));
}

// A source whose spec and tensors a test changes; added ones have the weights of the first.
class ChangedModel final : public ModelSource {
 public:
  explicit ChangedModel(std::unique_ptr<ModelSource> model)
      : changed(model->spec()), model_(std::move(model)) {
    for (const SectionKind section : {SectionKind::kEmbedding, SectionKind::kLayer}) {
      const auto tensors = model_->tensors(section, 0);
      (section == SectionKind::kLayer ? layer : embedding).assign(tensors.begin(), tensors.end());
    }
  }
  const ModelSpec& spec() const noexcept override { return changed; }
  std::span<const SourceTensor> tensors(SectionKind section,
                                        std::uint32_t index) const noexcept override {
    if (section == SectionKind::kEmbedding) return embedding;
    return section == SectionKind::kLayer ? layer : model_->tensors(section, index);
  }
  Status read_rows(SectionKind section, std::uint32_t index, std::size_t tensor,
                   std::uint32_t first_row, std::span<float> out) const override {
    const bool added = tensor >= model_->tensors(section, index).size();
    return model_->read_rows(section, index, added ? 0 : tensor, first_row, out);
  }
  std::optional<BlockFormat> kept_format(SectionKind, std::uint32_t,
                                         std::size_t) const noexcept override {
    return kept;
  }

  ModelSpec changed;
  std::vector<SourceTensor> embedding;
  std::vector<SourceTensor> layer;
  std::optional<BlockFormat> kept;

 private:
  std::unique_ptr<ModelSource> model_;
};

// No architecture of this version has an RMSNorm and one of these. In a parallel block the FFN
// takes attention's norm, unless it has one of its own.
TEST(RotatedModelTest, ParallelBlocksAndLearnedPositionsAreRotatedAsTheirGraphSays) {
  for (const bool two_norms : {false, true}) {
    const TemporaryFolder folder;
    const TestTensors tensors = tiny_llama_tensors();
    auto source = std::make_unique<ChangedModel>(open_model(folder, kTinyLlamaConfig, tensors));
    source->changed.parallel_block = true;
    for (SourceTensor& tensor : source->layer) {
      if (tensor.kind == TensorKind::kFfnNorm && !two_norms) tensor.kind = TensorKind::kQNorm;
    }
    source->embedding.push_back({TensorKind::kPositionEmbedding, 33, 16, "positions", ""});
    const auto model = rotate(std::move(source), kAll);
    const std::vector<float> embedding =
        read(*model, SectionKind::kEmbedding, 0, TensorKind::kTokenEmbedding);
    EXPECT_EQ(read(*model, SectionKind::kEmbedding, 0, TensorKind::kPositionEmbedding), embedding);
    std::vector<float> folded = tensors.at("model.layers.0.mlp.up_proj.weight").values;
    const char* norm = two_norms ? "model.layers.0.post_attention_layernorm.weight"
                                 : "model.layers.0.input_layernorm.weight";
    const std::vector<float>& gains = tensors.at(norm).values;
    for (std::size_t i = 0; i < folded.size(); ++i) folded[i] *= gains[i % 16];
    const auto want = products(folded, tensors.at("model.embed_tokens.weight").values, 16);
    const auto got =
        products(read(*model, SectionKind::kLayer, 0, TensorKind::kFfnUp), embedding, 16);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6);
  }
}

// Scales of the embedding, of what sublayers add, of scores and of logits are numbers: a rotation
// goes through them. Norms of queries and keys follow their products.
TEST(RotatedModelTest, ScalesAndNormsOfQueriesStayAsTheyAre) {
  const TemporaryFolder folder;
  auto source =
      std::make_unique<ChangedModel>(open_model(folder, kTinyLlamaConfig, tiny_llama_tensors()));
  source->changed.embedding_scale = 12.0F;
  source->changed.residual_scale = 0.25F;
  source->changed.attention_scale = 0.5F;
  source->changed.logit_scale = 0.125F;
  source->layer.push_back({TensorKind::kQNorm, 1, 16, "q.norm", ""});
  const std::size_t norm = source->layer.size() - 1;
  std::vector<float> gains(16);
  ASSERT_TRUE(source->read_rows(SectionKind::kLayer, 0, norm, 0, gains).ok());
  const auto model = rotate(std::move(source), kAll);
  EXPECT_EQ(model->spec().embedding_scale, 12.0F);
  EXPECT_EQ(model->spec().residual_scale, 0.25F);
  EXPECT_EQ(model->spec().attention_scale, 0.5F);
  EXPECT_EQ(model->spec().logit_scale, 0.125F);
  EXPECT_EQ(read(*model, SectionKind::kLayer, 0, TensorKind::kQNorm), gains);
}

// OLMo 2 and EXAONE 4 have norms behind the sublayers alone.
TEST(RotatedModelTest, ModelsWithoutNormsBeforeSublayersKeepTheirStream) {
  const TemporaryFolder folder;
  const auto post_only = [&] {
    auto source =
        std::make_unique<ChangedModel>(open_model(folder, kTinyLlamaConfig, tiny_llama_tensors()));
    for (SourceTensor& tensor : source->layer) {
      if (tensor.kind == TensorKind::kAttnNorm) tensor.kind = TensorKind::kAttnPostNorm;
      if (tensor.kind == TensorKind::kFfnNorm) tensor.kind = TensorKind::kFfnPostNorm;
    }
    return source;
  };
  const auto stream = RotatedModel::create(post_only(), kAll);
  ASSERT_FALSE(stream);
  EXPECT_THAT(stream.error().message(), HasSubstr("rotate only the values"));
  const auto values = rotate(post_only(), kValues);
  EXPECT_NE(read(*values, SectionKind::kLayer, 0, TensorKind::kAttnV),
            tiny_llama_tensors().at("model.layers.0.self_attn.v_proj.weight").values);
}

TEST(RotatedModelTest, SaysWhyAModelCannotBeRotated) {
  const TemporaryFolder folder;
  const struct {
    void (*change)(ChangedModel&);
    RotationScope scope;
    const char* why;
  } kCases[] = {
      {[](ChangedModel& m) { m.changed.int8_rows = true; }, kValues, "ternary"},
      {[](ChangedModel& m) {
         m.kept = BlockFormat{QuantType::kTernaryRow, 64};
       },
       kValues, "ternary"},
      {[](ChangedModel& m) {
         m.layer.push_back({TensorKind::kAttnSubNorm, 1, 16, "attn.sub", ""});
       },
       kValues, "attn.sub"},
      {[](ChangedModel& m) { m.changed.head_dim = 5; }, kValues, "heads of 5"},
      {[](ChangedModel& m) { m.changed.qkv_clip = 6.0F; }, kValues, "clamps"},
      {[](ChangedModel& m) {
         m.layer.push_back({TensorKind::kAttnPostNorm, 1, 16, "post", ""});
       },
       kAll, "post"},
      {[](ChangedModel& m) {
         m.layer.push_back({TensorKind::kFfnNormBias, 1, 16, "ln.bias", ""});
       },
       kAll, "ln.bias"},
      {[](ChangedModel& m) { m.changed.hidden = 15; }, kAll, "15 columns"},
      {[](ChangedModel& m) { m.changed.norm = NormType::kLayerNorm; }, kAll, "LayerNorm"},
  };
  for (const auto& [change, scope, why] : kCases) {
    auto source =
        std::make_unique<ChangedModel>(open_model(folder, kTinyLlamaConfig, tiny_llama_tensors()));
    change(*source);
    const auto rotated = RotatedModel::create(std::move(source), scope);
    ASSERT_FALSE(rotated) << why;
    EXPECT_EQ(rotated.error().code(), StatusCode::kUnsupported) << why;
    EXPECT_THAT(rotated.error().message(), HasSubstr(why));
    EXPECT_THAT(rotated.error().message(), HasSubstr("rotated"));
  }
}

TEST(RotatedModelTest, SaysWhatItsBlocksTakeAndForgetsWhatItsSourceRead) {
  const TemporaryFolder folder;
  write_model(folder, kTinyLlamaConfig, tiny_llama_tensors());
  FaultyFileOps files;
  auto source = HfModel::open(folder.path(), files);
  ASSERT_TRUE(source) << source.error().message();
  TranscodeOptions options;
  options.n_threads = 3;
  const std::uint64_t without = transcode_memory_bytes(**source, options, false);
  const auto model = rotate(std::move(*source), kAll);
  EXPECT_EQ(model->read_buffer_bytes(), 4U * 16U * 20U) << "16 rows of the down projection";
  EXPECT_EQ(transcode_memory_bytes(*model, options, false),
            without + 3 * model->read_buffer_bytes());
  EXPECT_EQ(files.drops(), 0U);
  model->drop_cached();
  EXPECT_GT(files.drops(), 0U);
}

TEST(RotatedModelTest, RefusesWeightsWhoseSumsOverflow) {
  const TemporaryFolder folder;
  TestTensors tensors = tiny_llama_tensors();
  for (float& weight : tensors.at("model.layers.1.mlp.down_proj.weight").values) {
    weight = std::numeric_limits<float>::max();
  }
  const auto model = rotate(open_model(folder, kTinyLlamaConfig, tensors), kAll);
  std::vector<float> out(20);
  const Status status =
      model->read_rows(SectionKind::kLayer, 1,
                       index_of(*model, SectionKind::kLayer, 1, TensorKind::kFfnDown), 3, out);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("model.layers.1.mlp.down_proj.weight"));
}

TEST(RotatedModelTest, FilesHaveTheSameBytesAtAnyNumberOfThreadsAndSayThatTheyAreRotated) {
  const TemporaryFolder folder;
  const TemporaryFolder out;
  const auto model = tiny_llama(folder, kAll);
  TranscodeOptions options;
  options.program = "test";
  for (const unsigned n_threads : {1U, 3U}) {
    options.n_threads = n_threads;
    const auto report = transcode(*model, out.file(std::to_string(n_threads) + ".qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
  }
  EXPECT_EQ(out.read("1.qsf"), out.read("3.qsf"));
  const auto reader = QsfReader::open(out.file("1.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_EQ(reader->spec().quantiser,
            "test: 4bit, blocks of 64, residual stream and values rotated");
  EXPECT_FALSE(reader->spec().tied_head);
}

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(n);
  for (float& value : values) value = rng.next_normal();
  return values;
}

// R as the definition has it: column i is what the rotation makes of the i-th unit vector.
std::vector<std::vector<float>> columns_of(const HadamardRotation& rotation, std::size_t n) {
  std::vector<std::vector<float>> columns;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<float> x(n);
    x[i] = 1.0F;
    rotation.rotate(x);
    columns.push_back(x);
  }
  return columns;
}

TEST(HadamardRotationTest, BlocksAreTheLargestPowerOfTwo) {
  EXPECT_EQ(HadamardRotation(80, 256, 1).block(), 16U);
  EXPECT_EQ(HadamardRotation(256, 256, 1).block(), 256U);
  EXPECT_EQ(HadamardRotation(4096, 256, 1).block(), 256U);
  EXPECT_EQ(HadamardRotation(12, 256, 1).block(), 4U);
  EXPECT_EQ(HadamardRotation(7, 256, 1).block(), 1U);
}

// Up to signs of rows and columns, R is Sylvester's matrix: the sign of (i, j) is the parity of the
// ones that i and j share.
TEST(HadamardRotationTest, IsAHadamardMatrixBetweenSigns) {
  constexpr std::size_t kN = 24;
  const HadamardRotation rotation(kN, 256, 3);
  ASSERT_EQ(rotation.block(), 8U);
  const auto columns = columns_of(rotation, kN);
  const float size = std::sqrt(1.0F / 8.0F);
  std::set<float> signs_of_rows;
  for (std::size_t first = 0; first < kN; first += 8) {
    for (std::size_t j = 0; j < kN; ++j) {
      for (std::size_t i = first; i < first + 8; ++i) {
        if (j < first || j >= first + 8) {
          EXPECT_EQ(columns[j][i], 0.0F) << i << ", " << j;
          continue;
        }
        const bool odd = (__builtin_popcountll((i - first) & (j - first)) & 1) != 0;
        const float of_row = columns[first][i];
        const float of_column = columns[j][first] / columns[first][first];
        EXPECT_FLOAT_EQ(std::fabs(columns[j][i]), size);
        EXPECT_FLOAT_EQ(columns[j][i], (odd ? -1.0F : 1.0F) * of_row * of_column) << i << ", " << j;
        signs_of_rows.insert(of_row);
      }
    }
  }
  EXPECT_EQ(signs_of_rows.size(), 2U) << "no row has its sign drawn";
}

// Quantised values are rotated by H once more when they are stored.
TEST(HadamardRotationTest, IsNotUndoneByASecondHadamard) {
  constexpr std::size_t kN = 64;
  const HadamardRotation rotation(kN, kN, 2);
  std::vector<float> x(kN);
  x[5] = 1.0F;
  rotation.rotate(x);
  double largest = 0.0;
  for (std::size_t i = 0; i < kN; ++i) {
    double sum = 0.0;
    for (std::size_t j = 0; j < kN; ++j) {
      sum += (__builtin_popcountll(i & j) & 1) != 0 ? -static_cast<double>(x[j])
                                                    : static_cast<double>(x[j]);
    }
    largest = std::max(largest, std::fabs(sum) / std::sqrt(double{kN}));
  }
  EXPECT_LT(largest, 0.6) << "one column holds it all again";
}

TEST(HadamardRotationTest, KeepsProducts) {
  for (const std::uint32_t n : {16U, 48U, 256U, 768U}) {
    const HadamardRotation rotation(n, 256, 7);
    std::vector<float> x = random_values(n, 1);
    std::vector<float> y = random_values(n, 2);
    const auto dot = [&] {
      double sum = 0.0;
      for (std::uint32_t i = 0; i < n; ++i) sum += double{x[i]} * double{y[i]};
      return sum;
    };
    const double before = dot();
    rotation.rotate(x);
    rotation.rotate(y);
    EXPECT_NEAR(dot(), before, 1e-4) << n;
  }
}

TEST(HadamardRotationTest, MixesRowsAsItMixesElements) {
  constexpr std::size_t kN = 24;
  constexpr std::size_t kCols = 131;  // two panels and a rest
  const HadamardRotation rotation(kN, 256, 5);
  const std::vector<float> matrix = random_values(2 * kN * kCols, 4);  // two vectors a column
  std::vector<float> rows = matrix;
  for (std::uint32_t at = 0; at < 2 * kN; at += rotation.block()) {
    rotation.rotate_columns(at, kCols,
                            std::span(rows).subspan(at * kCols, rotation.block() * kCols));
  }
  for (std::size_t c = 0; c < kCols; ++c) {
    std::vector<float> column(2 * kN);
    for (std::size_t r = 0; r < column.size(); ++r) column[r] = matrix[r * kCols + c];
    rotation.rotate(column);
    for (std::size_t r = 0; r < column.size(); ++r) {
      ASSERT_EQ(rows[r * kCols + c], column[r]) << r << ", " << c;
    }
  }
}

}  // namespace
}  // namespace qsf
