// SPDX-License-Identifier: MIT
//
// Merged models: weights against sums by hand, refused adapters, what is kept. merged_logits_test
// holds the logits.

#include "convert/encode/merged_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "convert/encode/transcode.h"
#include "import/gguf/gguf_model.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::kTinyLlamaConfig;
using testing_support::TemporaryFolder;
using testing_support::tiny_llama_tensors;

// Pairs with values in memory.
class MemoryValues final : public AdapterValues {
 public:
  Status read_pair(std::size_t index, std::span<float> a, std::span<float> b) const override {
    std::ranges::copy(pairs.at(index).first, a.begin());
    std::ranges::copy(pairs.at(index).second, b.begin());
    return ok_status();
  }
  std::vector<std::pair<std::vector<float>, std::vector<float>>> pairs;
};

AdapterPair pair_of(TensorKind kind, std::uint32_t layer, std::uint32_t rank, std::uint32_t out,
                    std::uint32_t in) {
  return {.kind = kind, .layer = layer, .rank = rank, .in = in, .out = out, .scale = 0.5F};
}

AdapterSource make_adapter(std::vector<AdapterPair> pairs, std::uint64_t seed = 5) {
  Rng rng(seed);
  auto values = std::make_unique<MemoryValues>();
  for (const AdapterPair& pair : pairs) {
    auto& [a, b] = values->pairs.emplace_back(std::vector<float>(pair.a_values()),
                                              std::vector<float>(pair.b_values()));
    for (float& value : a) value = static_cast<float>(rng.below(2001)) / 1000.0F - 1.0F;
    for (float& value : b) value = static_cast<float>(rng.below(2001)) / 1000.0F - 1.0F;
  }
  AdapterSource adapter;
  adapter.spec.name = "poet";
  adapter.spec.architecture = "llama";
  adapter.spec.pairs = std::move(pairs);
  adapter.values = std::move(values);
  return adapter;
}

class MergedModelTest : public testing::Test {
 protected:
  std::unique_ptr<ModelSource> open(const std::string& config = kTinyLlamaConfig) {
    write_model(folder_, config, tiny_llama_tensors());
    auto model = HfModel::open(folder_.path());
    EXPECT_TRUE(model) << model.error().message();
    return std::move(*model);
  }
  // Returns whether the adapter was added and loaded.
  static bool add(MergedModel& model, AdapterSource adapter, float scale = 1.0F) {
    const Status status = model.add(std::move(adapter), scale);
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok();
  }

  TemporaryFolder folder_;
};

std::size_t tensor_index(const ModelSource& model, SectionKind section, std::uint32_t layer,
                         TensorKind kind) {
  const auto tensors = model.tensors(section, layer);
  const auto found = std::ranges::find(tensors, kind, &SourceTensor::kind);
  EXPECT_NE(found, tensors.end());
  return static_cast<std::size_t>(found - tensors.begin());
}

std::vector<float> all_rows(const ModelSource& model, SectionKind section, std::uint32_t layer,
                            TensorKind kind) {
  const std::size_t index = tensor_index(model, section, layer, kind);
  const SourceTensor& tensor = model.tensors(section, layer)[index];
  std::vector<float> rows(std::size_t{tensor.rows} * tensor.cols);
  const Status status = model.read_rows(section, layer, index, 0, rows);
  EXPECT_TRUE(status.ok()) << status.message();
  return rows;
}

// The weights with one pair of an adapter added, in f64.
std::vector<double> sum_by_hand(const std::vector<float>& weights, const AdapterSource& adapter,
                                std::size_t index, double scale) {
  const AdapterPair& pair = adapter.spec.pairs[index];
  std::vector<float> a(pair.a_values());
  std::vector<float> b(pair.b_values());
  EXPECT_TRUE(adapter.values->read_pair(index, a, b).ok());
  std::vector<double> sums(weights.begin(), weights.end());
  for (std::uint32_t o = 0; o < pair.out; ++o) {
    for (std::uint32_t i = 0; i < pair.in; ++i) {
      for (std::uint32_t r = 0; r < pair.rank; ++r) {
        sums[std::size_t{o} * pair.in + i] += scale * static_cast<double>(pair.scale) *
                                              static_cast<double>(b[o * pair.rank + r]) *
                                              static_cast<double>(a[r * pair.in + i]);
      }
    }
  }
  return sums;
}

TEST_F(MergedModelTest, AddsProductsToTheirMatricesAlone) {
  const auto base = open();
  const AdapterSource adapter = make_adapter({pair_of(TensorKind::kAttnV, 1, 3, 8, 16)});
  MergedModel model(open());
  EXPECT_EQ(model.resident_bytes(), 0U);
  ASSERT_TRUE(add(model, make_adapter({pair_of(TensorKind::kAttnV, 1, 3, 8, 16)}), 3.0F));
  EXPECT_EQ(model.resident_bytes(), sizeof(float) * 3 * (8 + 16));
  ASSERT_TRUE(model.load().ok());
  EXPECT_EQ(model.resident_bytes(), sizeof(float) * 3 * (8 + 16));
  EXPECT_EQ(model.n_changed(), 1U);
  EXPECT_THAT(model.spec().quantiser, HasSubstr("merged with \"poet\""));
  const auto before = all_rows(*base, SectionKind::kLayer, 1, TensorKind::kAttnV);
  const auto after = all_rows(model, SectionKind::kLayer, 1, TensorKind::kAttnV);
  const auto expected = sum_by_hand(before, adapter, 0, 3.0);
  for (std::size_t i = 0; i < after.size(); ++i) {
    ASSERT_EQ(after[i], static_cast<float>(expected[i])) << i;
  }
  EXPECT_NE(before, after);
  for (const TensorKind kind : {TensorKind::kAttnQ, TensorKind::kAttnK, TensorKind::kFfnDown}) {
    EXPECT_EQ(all_rows(model, SectionKind::kLayer, 1, kind),
              all_rows(*base, SectionKind::kLayer, 1, kind));
  }
  EXPECT_EQ(all_rows(model, SectionKind::kLayer, 0, TensorKind::kAttnV),
            all_rows(*base, SectionKind::kLayer, 0, TensorKind::kAttnV));
}

// A conversion reads rows in units, whose number must not show.
TEST_F(MergedModelTest, ARowHasTheSameBitsInEveryCall) {
  MergedModel model(open());
  ASSERT_TRUE(add(model, make_adapter({pair_of(TensorKind::kFfnUp, 0, 4, 20, 16)})));
  ASSERT_TRUE(model.load().ok());
  const auto whole = all_rows(model, SectionKind::kLayer, 0, TensorKind::kFfnUp);
  const std::size_t index = tensor_index(model, SectionKind::kLayer, 0, TensorKind::kFfnUp);
  for (std::uint32_t first = 0; first < 20; first += 5) {
    std::vector<float> rows(5 * 16);
    ASSERT_TRUE(model.read_rows(SectionKind::kLayer, 0, index, first, rows).ok());
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), whole.begin() + first * 16)) << first;
  }
}

TEST_F(MergedModelTest, SeveralAdaptersAddUp) {
  const std::vector<AdapterPair> pairs = {pair_of(TensorKind::kAttnO, 0, 2, 16, 16)};
  const auto base = open();
  MergedModel model(open());
  ASSERT_TRUE(add(model, make_adapter(pairs, 1), 2.0F));
  ASSERT_TRUE(add(model, make_adapter(pairs, 2), -1.0F));
  ASSERT_TRUE(model.load().ok());
  const auto before = all_rows(*base, SectionKind::kLayer, 0, TensorKind::kAttnO);
  const auto first = sum_by_hand(before, make_adapter(pairs, 1), 0, 2.0);
  const auto second = sum_by_hand(before, make_adapter(pairs, 2), 0, -1.0);
  const auto after = all_rows(model, SectionKind::kLayer, 0, TensorKind::kAttnO);
  for (std::size_t i = 0; i < after.size(); ++i) {
    ASSERT_NEAR(after[i], first[i] + second[i] - static_cast<double>(before[i]), 1e-6);
  }
}

// An adapter of the head is not for the embedding, which a tied head is.
TEST_F(MergedModelTest, ATiedHeadBecomesAMatrixOfItsOwn) {
  const auto base = open();
  ASSERT_TRUE(base->spec().tied_head);
  const std::vector<AdapterPair> pairs = {pair_of(TensorKind::kHead, 0, 2, 33, 16)};
  MergedModel model(open());
  ASSERT_TRUE(add(model, make_adapter(pairs)));
  ASSERT_TRUE(model.load().ok());
  EXPECT_FALSE(model.spec().tied_head);
  EXPECT_EQ(model.added_weights(), 33U * 16U);
  const auto embedding = all_rows(*base, SectionKind::kEmbedding, 0, TensorKind::kTokenEmbedding);
  EXPECT_EQ(all_rows(model, SectionKind::kEmbedding, 0, TensorKind::kTokenEmbedding), embedding);
  const auto head = all_rows(model, SectionKind::kFinal, 0, TensorKind::kHead);
  const auto expected = sum_by_hand(embedding, make_adapter(pairs), 0, 1.0);
  for (std::size_t i = 0; i < head.size(); ++i) {
    ASSERT_EQ(head[i], static_cast<float>(expected[i])) << i;
  }
  EXPECT_EQ(all_rows(model, SectionKind::kFinal, 0, TensorKind::kFinalNorm),
            all_rows(*base, SectionKind::kFinal, 0, TensorKind::kFinalNorm));
}

TEST_F(MergedModelTest, RefusesWhatDoesNotFitByName) {
  const auto error_of = [this](std::vector<AdapterPair> pairs, const char* architecture = "llama") {
    AdapterSource adapter = make_adapter(std::move(pairs));
    adapter.spec.architecture = architecture;
    MergedModel model(open());
    const Status status = model.add(std::move(adapter), 1.0F);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("adapter \"poet\""));
    return std::string(status.message());
  };
  const AdapterPair good = pair_of(TensorKind::kAttnQ, 0, 2, 16, 16);
  EXPECT_THAT(error_of({good}, "gpt2"), HasSubstr("made for a gpt2, but the model is a llama"));
  EXPECT_THAT(error_of({good, pair_of(TensorKind::kAttnQ, 2, 2, 16, 16)}),
              HasSubstr("layer 2, attn_q: the model has 2 layers"));
  EXPECT_THAT(error_of({pair_of(TensorKind::kAttnGate, 0, 2, 16, 16)}),
              HasSubstr("the model has no such matrix"));
  EXPECT_THAT(error_of({pair_of(TensorKind::kAttnK, 0, 2, 16, 16)}),
              HasSubstr("for a matrix [16, 16], but the model's is [8, 16]"));
  EXPECT_THAT(error_of({pair_of(TensorKind::kHead, 0, 2, 34, 16)}),
              HasSubstr("head: for a matrix [34, 16], but the model's is [33, 16]"));
}

TEST_F(MergedModelTest, WeightsThatAreNotFiniteAreRefused) {
  MergedModel model(open());
  const float most = std::numeric_limits<float>::max();
  ASSERT_TRUE(add(model, make_adapter({pair_of(TensorKind::kAttnQ, 0, 2, 16, 16)}), most));
  ASSERT_TRUE(add(model, make_adapter({pair_of(TensorKind::kAttnQ, 0, 2, 16, 16)}), most));
  ASSERT_TRUE(add(model, make_adapter({pair_of(TensorKind::kAttnQ, 0, 2, 16, 16)}), most));
  ASSERT_TRUE(model.load().ok());
  const std::size_t index = tensor_index(model, SectionKind::kLayer, 0, TensorKind::kAttnQ);
  std::vector<float> rows(16 * 16);
  const Status status = model.read_rows(SectionKind::kLayer, 0, index, 0, rows);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("not finite"));
  EXPECT_THAT(status.message(), HasSubstr("q_proj"));
}

TEST_F(MergedModelTest, AConversionCountsTheAdaptersMemory) {
  const auto base = open();
  MergedModel model(open());
  ASSERT_TRUE(add(model, make_adapter({pair_of(TensorKind::kAttnQ, 0, 64, 16, 16)})));
  const TranscodeOptions options;
  EXPECT_EQ(transcode_memory_bytes(model, options, false),
            transcode_memory_bytes(*base, options, false) + sizeof(float) * 64 * 32 +
                options.n_threads * sizeof(double) * 16);
}

TEST_F(MergedModelTest, TheChecksumTellsAdaptersApart) {
  const std::vector<AdapterPair> q = {pair_of(TensorKind::kAttnQ, 0, 2, 16, 16)};
  const std::vector<AdapterPair> o = {pair_of(TensorKind::kAttnO, 0, 2, 16, 16)};
  const auto crc = [this](const std::vector<AdapterPair>& pairs, std::uint64_t seed, float scale) {
    MergedModel model(open());
    EXPECT_TRUE(add(model, make_adapter(pairs, seed), scale));
    EXPECT_TRUE(model.load().ok());
    return model.adapters_crc();
  };
  EXPECT_EQ(crc(q, 1, 1.0F), crc(q, 1, 1.0F));
  EXPECT_NE(crc(q, 1, 1.0F), crc(q, 2, 1.0F));
  EXPECT_NE(crc(q, 1, 1.0F), crc(q, 1, 0.5F));
  EXPECT_NE(crc(q, 1, 1.0F), crc(o, 1, 1.0F));
}

// Blocks of the input are copied where no adapter changes them, and there alone.
TEST_F(MergedModelTest, ChangedMatricesAreNotKept) {
  auto source = GgufModel::open(QSF_SOURCE_DIR "/testdata/gguf/qwen3.gguf");
  ASSERT_TRUE(source) << source.error().message();
  const std::size_t q = tensor_index(**source, SectionKind::kLayer, 0, TensorKind::kAttnQ);
  const std::size_t k = tensor_index(**source, SectionKind::kLayer, 0, TensorKind::kAttnK);
  const SourceTensor tensor = (*source)->tensors(SectionKind::kLayer, 0)[q];
  ASSERT_TRUE((*source)->kept_format(SectionKind::kLayer, 0, q).has_value());
  MergedModel model(std::move(*source));
  AdapterSource adapter =
      make_adapter({pair_of(TensorKind::kAttnQ, 0, 2, tensor.rows, tensor.cols)});
  adapter.spec.architecture = "qwen3";
  ASSERT_TRUE(add(model, std::move(adapter)));
  EXPECT_FALSE(model.kept_format(SectionKind::kLayer, 0, q).has_value());
  EXPECT_TRUE(model.kept_format(SectionKind::kLayer, 0, k).has_value());
}

}  // namespace
}  // namespace qsf
