// SPDX-License-Identifier: MIT
//
// Plans of formats: exact sizes, what probes say, and what is refused.

#include "calibrate/target_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/rng.h"
#include "calibrate/sensitivity.h"
#include "import/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

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
    write_model(folder_, config, tensors);
    auto model = HfModel::open(folder_.path());
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    const auto groups = sensitivity_groups(*model_);
    ASSERT_TRUE(groups);
    calibration_.n_probe_rows = 256;
    for (const TensorGroup& group : *groups) {
      for (const BlockFormat format : kProbeFormats) {
        const double divergence = format.type == QuantType::kQ2Super ? 0.1 : 0.005;
        calibration_.probes.push_back(
            {group.kind, group.first_layer, group.n_layers, format, divergence});
      }
    }
    options_.tile_bytes = 4096;
  }

  Probe& probe(TensorKind kind, std::uint32_t layer, QuantType type) {
    return *std::ranges::find_if(calibration_.probes, [&](const Probe& p) {
      return p.kind == kind && p.first_layer == layer && p.format.type == type;
    });
  }
  Result<TargetPlan> plan(std::uint64_t max_bytes) {
    return plan_target_size(*model_, calibration_, options_, max_bytes);
  }
  // The smallest file there is, out of the refusal that names it.
  std::uint64_t smallest() {
    const auto refused = plan(1);
    EXPECT_FALSE(refused);
    const std::string message(refused.error().message());
    return std::stoull(message.substr(message.find("takes ") + 6));
  }

  TemporaryFolder folder_;
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

TEST_F(TargetSizeTest, TheFileHasTheBytesThatWereToldAndNoMore) {
  const std::uint64_t least = smallest();
  double last = 1e9;
  for (const std::uint64_t more : {0U, 4096U, 20000U, 70000U, 1000000U}) {
    const auto planned = plan(least + more);
    ASSERT_TRUE(planned) << planned.error().message();
    EXPECT_LE(planned->file_bytes, least + more);
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
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("ask for at least"));
  EXPECT_TRUE(plan(least));
}

// Bytes go where the text says that they are missed.
TEST_F(TargetSizeTest, WhatIsSensitiveGetsTheBits) {
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

TEST_F(TargetSizeTest, TheVocabularyKeepsATypeThatIsAskedFor) {
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
