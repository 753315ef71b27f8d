// SPDX-License-Identifier: MIT
//
// Plans of formats: exact sizes, costs from the sensitivities, and errors.

#include "convert/choose/target_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "convert/choose/sensitivity.h"
#include "format/tensor_rules.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

// A tiny llama whose layers are all the same.
std::string equal_layers_config(std::uint32_t n_layers) {
  const std::string key = "num_hidden_layers\":";
  std::string config = kTinyLlamaConfig;
  return config.replace(config.find(key) + key.size(), 1, std::to_string(n_layers));
}
TestTensors equal_layers(std::uint32_t n_layers) {
  const std::string first = "layers.0.";
  TestTensors tensors;
  for (const auto& [name, tensor] : tiny_llama_tensors()) {
    const std::size_t at = name.find(first);
    if (name.find("layers.") == std::string::npos) tensors[name] = tensor;
    if (at == std::string::npos) continue;
    for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
      std::string copy = name;
      tensors[copy.replace(at, first.size(), "layers." + std::to_string(layer) + ".")] = tensor;
    }
  }
  return tensors;
}

class TargetSizeTest : public testing::Test {
 protected:
  void SetUp() override {
    // An FFN of so many rows that its types differ by pages.
    TestTensors tensors = tiny_llama_tensors();
    Rng rng(3);
    for (auto& [name, tensor] : tensors) {
      const bool down = name.find("down_proj") != std::string::npos;
      if (down || name.find("gate_proj") != std::string::npos ||
          name.find("up_proj") != std::string::npos) {
        tensor = down ? random_tensor({16, 1024}, rng) : random_tensor({1024, 16}, rng);
      }
    }
    std::string config = kTinyLlamaConfig;
    config.replace(config.find(":20,"), 4, ":1024,");
    make_model(config, tensors);
    options_.tile_bytes = 4096;
  }

  // Opens a model, with probes that say the same of all its groups.
  void make_model(const std::string& config, const TestTensors& tensors) {
    folders_.push_back(std::make_unique<TemporaryFolder>());
    write_model(*folders_.back(), config, tensors);
    auto model = HfModel::open(folders_.back()->path());
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    const auto groups = sensitivity_groups(*model_);
    ASSERT_TRUE(groups);
    calibration_ = {};
    calibration_.n_probe_rows = 256;
    for (const TensorGroup& group : *groups) {
      for (const BlockFormat format : kProbeFormats) {
        const double divergence = format.type == QuantType::kQ2Super ? 0.1 : 0.005;
        calibration_.probes.push_back(
            {group.kind, group.first_layer, group.n_layers, format, divergence});
      }
    }
  }

  Probe& probe(TensorKind kind, std::uint32_t layer, QuantType type) {
    return *std::ranges::find_if(calibration_.probes, [&](const Probe& p) {
      return p.kind == kind && p.first_layer == layer && p.format.type == type;
    });
  }
  Result<TargetPlan> plan(std::uint64_t max_bytes) {
    return plan_target_size(*model_, calibration_, options_, max_bytes);
  }
  std::uint64_t smallest() {
    const auto bytes = smallest_target_size(*model_, options_);
    EXPECT_TRUE(bytes) << bytes.error().message();
    return bytes ? *bytes : 0;
  }

  TemporaryFolder folder_;
  std::vector<std::unique_ptr<TemporaryFolder>> folders_;  // of models
  std::unique_ptr<HfModel> model_;
  Calibration calibration_;
  TranscodeOptions options_;
};

TEST_F(TargetSizeTest, EveryMatrixIsAGroupWhereThereAreFew) {
  const auto groups = sensitivity_groups(*model_);
  ASSERT_TRUE(groups);
  EXPECT_EQ(groups->size(), 2 * 7 + 1U);
  for (const TensorGroup& group : *groups) {
    EXPECT_EQ(group.members.size(), 1U);
    EXPECT_EQ(group.n_layers, 1U);
  }
}

TEST_F(TargetSizeTest, TheFileHasThePlannedBytes) {
  const std::uint64_t least = smallest();
  double last = 1e9;
  std::uint64_t least_others = 0;
  for (const std::uint64_t more : {0U, 4096U, 20000U, 70000U, 1000000U}) {
    const auto planned = plan(least + more);
    ASSERT_TRUE(planned) << planned.error().message();
    EXPECT_LE(planned->file_bytes, least + more);
    // All but matrices: the same for every choice, but for pages of directories.
    std::uint64_t others = planned->file_bytes;
    for (const TargetTensor& t : planned->tensors) others -= t.bytes;
    if (more == 0) least_others = others;
    EXPECT_NEAR(static_cast<double>(others), static_cast<double>(least_others), 2 * 4096.0);
    EXPECT_LE(planned->divergence, last);
    last = planned->divergence;
    TranscodeOptions options = options_;
    options.preset = QuantPreset::kKeep;
    options.formats = &planned->formats;
    const auto report = transcode(*model_, folder_.file("out.qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(std::filesystem::file_size(folder_.file("out.qsf")), planned->file_bytes);
    for (const TensorReport& line : report->tensors) {
      if (line.rows == 1) continue;
      EXPECT_TRUE(std::ranges::any_of(planned->tensors, [&](const TargetTensor& t) {
        return t.place.source->name == line.source_name && t.format == line.format;
      })) << line.source_name;
    }
  }
}

TEST_F(TargetSizeTest, TooSmallASizeNamesTheSmallest) {
  const std::uint64_t least = smallest();
  const auto refused = plan(least - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.error().message()),
              HasSubstr("expected at least " + std::to_string(least)));
  EXPECT_TRUE(plan(least));
}

// The plan says the sum of what its matrices cost. Probes of bands of another width say nothing.
TEST_F(TargetSizeTest, CostsEqualTheSensitivities) {
  make_model(equal_layers_config(2), equal_layers(2));
  const auto own = plan(1U << 20);
  ASSERT_TRUE(own) << own.error().message();
  double sum = 0.0;
  for (const TargetTensor& t : own->tensors) {
    EXPECT_GT(t.bytes, 0U);
    sum += t.divergence;
  }
  EXPECT_GT(sum, 0.0);
  EXPECT_DOUBLE_EQ(own->divergence, sum);
  for (const Probe& probe : std::vector(calibration_.probes)) {
    calibration_.probes.push_back(
        {probe.kind, probe.first_layer, probe.n_layers + 1, probe.format, 0.0});
  }
  const auto with_others = plan(1U << 20);
  ASSERT_TRUE(with_others) << with_others.error().message();
  EXPECT_EQ(with_others->divergence, own->divergence);
}

// A tiny llama of one layer with four experts of random weights.
std::string mixture_config() {
  std::string config = equal_layers_config(1);
  config.replace(config.find("LlamaForCausalLM"), 16, "MixtralForCausalLM");
  return config.insert(1, R"("num_local_experts":4,"num_experts_per_tok":2,)");
}
TestTensors mixture_tensors() {
  TestTensors tensors;
  for (const auto& [name, tensor] : equal_layers(1)) {
    if (name.find(".mlp.") == std::string::npos) tensors[name] = tensor;
  }
  Rng rng(11);
  const std::string moe = "model.layers.0.block_sparse_moe.";
  tensors[moe + "gate.weight"] = random_tensor({4, 16}, rng);
  for (int e = 0; e < 4; ++e) {
    const std::string at = moe + "experts." + std::to_string(e) + ".";
    tensors[at + "w1.weight"] = random_tensor({20, 16}, rng);
    tensors[at + "w3.weight"] = random_tensor({20, 16}, rng);
    tensors[at + "w2.weight"] = random_tensor({16, 20}, rng);
  }
  return tensors;
}

// The experts of a layer have one format for each of their matrices; the router stays as it is.
TEST_F(TargetSizeTest, ExpertsOfALayerShareTheirFormats) {
  make_model(mixture_config(), mixture_tensors());
  calibration_.layers.resize(1);
  calibration_.layers[0].experts.assign(4, {.n_rows = 5});
  const std::uint64_t least = smallest();
  for (const std::uint64_t more : {0U, 4096U, 1000000U}) {
    const auto planned = plan(least + more);
    ASSERT_TRUE(planned) << planned.error().message();
    EXPECT_LE(planned->file_bytes, least + more);
    EXPECT_EQ(planned->tensors.size(), 4 + 3 + 1U);
    for (const TargetTensor& t : planned->tensors) {
      const TensorKind kind = t.place.source->kind;
      EXPECT_EQ(t.n_matrices, is_expert(kind) ? 4U : 1U) << tensor_kind_name(kind);
      EXPECT_NE(kind, TensorKind::kRouter);
      EXPECT_GE(t.bytes, t.n_matrices * 4096U);  // a page at least
    }
    TranscodeOptions options = options_;
    options.preset = QuantPreset::kKeep;
    options.formats = &planned->formats;
    const auto report = transcode(*model_, folder_.file("out.qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(std::filesystem::file_size(folder_.file("out.qsf")), planned->file_bytes);
  }
}

// So have the products into residual streams, and those out of them.
TEST_F(TargetSizeTest, StreamsShareTheirFormats) {
  auto model = HfModel::open(QSF_SOURCE_DIR "/testdata/golden/gemma3n");
  ASSERT_TRUE(model) << model.error().message();
  model_ = std::move(*model);
  const std::uint64_t least = smallest();
  for (const std::uint64_t more : {0U, 20000U, 1000000U}) {
    const auto planned = plan_target_size_by_error(*model_, options_, least + more);
    ASSERT_TRUE(planned) << planned.error().message();
    std::uint32_t n_of_streams = 0;
    for (const TargetTensor& t : planned->tensors) {
      if (!is_of_stream(t.place.source->kind)) continue;
      EXPECT_EQ(t.n_matrices, 3U);
      ++n_of_streams;
    }
    EXPECT_EQ(n_of_streams, 2U);
    TranscodeOptions options = options_;
    options.preset = QuantPreset::kKeep;
    options.formats = &planned->formats;
    const auto report = transcode(*model_, folder_.file("out.qsf"), options);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(std::filesystem::file_size(folder_.file("out.qsf")), planned->file_bytes);
  }
}

// An expert counts by the rows that chose it: the third has four values alone, which two bits hold.
TEST_F(TargetSizeTest, ExpertsThatAreUsedDecide) {
  TestTensors tensors = mixture_tensors();
  for (auto& [name, tensor] : tensors) {
    if (name.find("experts.2.") == std::string::npos) continue;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = 0.25F * static_cast<float>(static_cast<int>(i * 7 % 4)) - 0.375F;
    }
  }
  make_model(mixture_config(), tensors);
  calibration_.layers.resize(1);
  const auto divergence_with = [&](std::size_t used) {
    calibration_.layers[0].experts.assign(4, {});
    calibration_.layers[0].experts[used].n_rows = 9;
    const auto planned = plan(smallest());
    EXPECT_TRUE(planned) << planned.error().message();
    double sum = 0.0;
    for (const TargetTensor& t : planned->tensors) {
      if (is_expert(t.place.source->kind)) sum += t.divergence;
    }
    return sum;
  };
  EXPECT_LT(divergence_with(2), 0.2 * divergence_with(1));
}

// Where layers are many, those that were probed together share what was measured: of equal layers
// each has what it has alone, divided by their number.
TEST_F(TargetSizeTest, MembersShareTheCostOfAGroup) {
  double alone = 0.0;
  for (const std::uint32_t n_layers : {1U, 20U}) {
    make_model(equal_layers_config(n_layers), equal_layers(n_layers));
    const auto planned = plan(1U << 24);
    ASSERT_TRUE(planned) << planned.error().message();
    const auto up = std::ranges::find_if(planned->tensors, [](const TargetTensor& t) {
      return t.place.source->kind == TensorKind::kFfnUp;
    });
    ASSERT_NE(up, planned->tensors.end());
    EXPECT_EQ(planned->tensors.size(), n_layers * 7 + 1U);
    EXPECT_TRUE(std::ranges::is_sorted(planned->tensors, {}, [](const TargetTensor& t) {
      return std::pair(t.place.section.kind, t.place.section.layer);
    }));
    // 9 bands of 7 kinds and an embedding are at most 64 groups, so 20 layers are 3 each.
    const double n_members = n_layers == 1 ? 1.0 : 3.0;
    if (n_layers == 1) alone = up->divergence;
    EXPECT_NEAR(up->divergence, alone / n_members, 1e-9 * alone);
  }
  EXPECT_GT(alone, 0.0);
}

// Estimates are of what the conversion writes, by the rounding that it is told.
TEST_F(TargetSizeTest, EstimatesUseTheChosenRounding) {
  make_model(equal_layers_config(1), equal_layers(1));
  const std::uint64_t max_bytes = smallest();
  const auto searched = plan(max_bytes);
  options_.rounding = Rounding::kNearest;
  const auto nearest = plan(max_bytes);
  ASSERT_TRUE(searched);
  ASSERT_TRUE(nearest);
  EXPECT_NE(searched->divergence, nearest->divergence);
}

TEST_F(TargetSizeTest, PositionsHaveTheTypeOfFourBits) {
  make_model(kTinyGpt2Config, tiny_gpt2_tensors(""));
  const auto planned = plan(1U << 20);
  ASSERT_TRUE(planned) << planned.error().message();
  const auto positions = planned->formats.find(TensorKind::kPositionEmbedding, 0);
  ASSERT_TRUE(positions);
  EXPECT_EQ(*positions, preset_format(QuantType::kQ4, TensorKind::kPositionEmbedding, 0));
}

TEST_F(TargetSizeTest, ItCanBeCancelled) {
  const std::atomic<bool> cancel = true;
  options_.cancel = &cancel;
  EXPECT_EQ(plan(1U << 20).error().code(), StatusCode::kCancelled);
}

// Bytes go where the text says that they are missed.
TEST_F(TargetSizeTest, SensitiveMatricesGetMoreBits) {
  const auto bytes_of = [&](const TargetPlan& planned, TensorKind kind, std::uint32_t layer) {
    for (const TargetTensor& t : planned.tensors) {
      if (t.place.source->kind == kind && t.place.section.layer == layer) return t.bytes;
    }
    return std::uint64_t{0};
  };
  options_.tile_bytes = kDefaultTileBytes;  // so that types differ by pages
  const std::uint64_t max_bytes = smallest() + 5 * 4096;
  for (const auto& [layer, other] : {std::pair(0U, 1U), std::pair(1U, 0U)}) {
    for (Probe& p : calibration_.probes) {
      p.divergence = p.format.type == QuantType::kQ2Super ? 1e-4 : 5e-6;
    }
    probe(TensorKind::kFfnUp, layer, QuantType::kQ2Super).divergence = 1.0;
    probe(TensorKind::kFfnUp, layer, QuantType::kQ4Super).divergence = 0.1;
    const auto planned = plan(max_bytes);
    ASSERT_TRUE(planned) << planned.error().message();
    EXPECT_GT(bytes_of(*planned, TensorKind::kFfnUp, layer),
              bytes_of(*planned, TensorKind::kFfnUp, other));
  }
}

TEST_F(TargetSizeTest, TheVocabularyKeepsItsChosenType) {
  options_.vocabulary_type = QuantType::kQ6K;
  const auto planned = plan(1U << 20);
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_FALSE(planned->formats.find(TensorKind::kTokenEmbedding, 0));
  EXPECT_EQ(planned->tensors.size(), 14U);
}

TEST_F(TargetSizeTest, ProbesOfEveryMatrixAreNeeded) {
  std::erase_if(calibration_.probes, [](const Probe& p) { return p.kind == TensorKind::kAttnV; });
  const auto refused = plan(1U << 20);
  ASSERT_FALSE(refused);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("attn_v"));
}

TEST(InterpolateDivergenceTest, IsStraightBetweenLogarithmsAndProportionalBeyond) {
  const double errors[] = {0.1, 0.001};
  const double divergences[] = {0.2, 0.0002};
  EXPECT_DOUBLE_EQ(interpolate_divergence(errors, divergences, 0.1), 0.2);
  EXPECT_DOUBLE_EQ(interpolate_divergence(errors, divergences, 0.001), 0.0002);
  EXPECT_NEAR(interpolate_divergence(errors, divergences, 0.01), 0.2 / 31.6227766, 1e-9);
  EXPECT_NEAR(interpolate_divergence(errors, divergences, 0.0001), 0.00002, 1e-12);
  EXPECT_NEAR(interpolate_divergence(errors, divergences, 0.2), 0.4, 1e-9);
  EXPECT_EQ(interpolate_divergence(errors, divergences, 0.0), 0.0);
  const double more_errors[] = {0.1, 0.001, 1.0};
  const double more_divergences[] = {0.2, 0.0002, 0.4};
  EXPECT_NEAR(interpolate_divergence(more_errors, more_divergences, 0.01), 0.2 / 31.6227766, 1e-9);
  EXPECT_NEAR(interpolate_divergence(more_errors, more_divergences, 0.31622776602), 0.28284271247,
              1e-9);
  EXPECT_GE(interpolate_divergence(std::vector{0.0}, std::vector{0.0}, 0.5), 0.0);
}

TEST(ProbeRowsTest, KeepWorkAndMemoryWithinBounds) {
  ModelSpec spec;
  spec.n_vocab = 4096;
  EXPECT_EQ(probe_rows(spec, 5'800'000, 86, 1'000'000'000), 2048U);
  EXPECT_EQ(probe_rows(spec, 1'100'000'000, 128, 1'000'000'000), 256U);
  spec.n_vocab = 128'256;
  EXPECT_EQ(probe_rows(spec, 1'100'000'000, 128, 1'000'000'000), 243U);
  EXPECT_EQ(probe_rows(spec, 1'100'000'000, 128, 0), 256U);
}

}  // namespace
}  // namespace qsf
