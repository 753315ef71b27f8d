// SPDX-License-Identifier: MIT

#include "format/kept_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ten layers: the ends matter least, then 5, 3, 7 (as much as 4), 4, 2, 6.
const std::vector<float> kTenLayers = {1e-6F, 1e-6F, 0.6F, 0.2F,  0.3F,
                                       0.1F,  0.7F,  0.3F, 1e-6F, 1e-6F};

ModelSpec six_layers() {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.n_layers = 6;
  return spec;
}

std::vector<std::uint32_t> chosen(std::span<const float> importance, float quality) {
  const auto kept = choose_layers(importance, quality);
  EXPECT_TRUE(kept.has_value()) << kept.error().message();
  return kept.has_value() ? *kept : std::vector<std::uint32_t>();
}

TEST(KeptLayersTest, TheLeastImportantGoFirstAndTheEndsStay) {
  EXPECT_THAT(chosen(kTenLayers, 1.0F), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(chosen(kTenLayers, 0.9F), ElementsAre(0, 1, 2, 3, 4, 6, 7, 8, 9));
  EXPECT_THAT(chosen(kTenLayers, 0.8F), ElementsAre(0, 1, 2, 4, 6, 7, 8, 9));
  EXPECT_THAT(chosen(kTenLayers, 0.7F), ElementsAre(0, 1, 2, 4, 6, 8, 9));
  EXPECT_THAT(chosen(kTenLayers, 0.6F), ElementsAre(0, 1, 2, 6, 8, 9));
  EXPECT_THAT(chosen(kTenLayers, 0.4F), ElementsAre(0, 1, 8, 9));
}

// At least the share asked for: a share that f32 cannot hold is not rounded up, and no layer goes
// before a whole one is spared.
TEST(KeptLayersTest, AShareIsNeverUndercut) {
  for (std::uint32_t n_layers : {5U, 6U, 7U, 22U, 30U, 61U, 96U, 256U}) {
    const std::vector<float> importance(n_layers, 1.0F);
    for (std::uint32_t n = 4; n <= n_layers; ++n) {
      const float quality = static_cast<float>(n) / static_cast<float>(n_layers);
      ASSERT_EQ(chosen(importance, quality).size(), n) << n_layers;
      if (n == n_layers) continue;
      const float more = (static_cast<float>(n) + 0.3F) / static_cast<float>(n_layers);
      ASSERT_EQ(chosen(importance, more).size(), n + 1) << n_layers;
    }
  }
  EXPECT_EQ(chosen(kTenLayers, 0.91F).size(), 10U);
}

TEST(KeptLayersTest, QualitiesThatCannotBeAreRefused) {
  const auto refusal = [](std::span<const float> importance, float quality) {
    const auto kept = choose_layers(importance, quality);
    EXPECT_FALSE(kept.has_value());
    if (kept.has_value()) return std::string();
    EXPECT_EQ(kept.error().code(), StatusCode::kInvalidArgument);
    return std::string(kept.error().message());
  };
  for (const float quality : {0.0F, -0.5F, 1.01F, std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(refusal(kTenLayers, quality), HasSubstr("expected above 0, and at most 1"));
  }
  EXPECT_THAT(refusal(kTenLayers, 0.3F), HasSubstr("leaves 3 of 10 layers"));
  EXPECT_THAT(refusal(kTenLayers, 0.3F), HasSubstr("use at least 0.400"));
  EXPECT_THAT(refusal(std::vector<float>(30, 1.0F), 0.1F), HasSubstr("use at least 0.134"));
  EXPECT_THAT(refusal(std::vector<float>(3, 1.0F), 0.5F), HasSubstr("use at least 1.000"));
  std::vector<float> unknown = kTenLayers;
  unknown[9] = 0.0F;
  EXPECT_THAT(refusal(unknown, 0.8F), HasSubstr("qsf convert --calibration"));
  EXPECT_EQ(chosen(unknown, 1.0F).size(), 10U);
}

// Every list by layer is that of the kept layers; nothing else changes.
TEST(KeptLayersTest, TheSpecIsThatOfAModelWithoutTheOthers) {
  ModelSpec spec = six_layers();
  spec.layer_rope = {1, 2, 1, 2, 0, 1};
  spec.layer_mixers = {0, 1, 1, 0, 0, 1};
  spec.ffn_layers = {1, 1, 0, 1, 0, 1};
  spec.sliding_window = {0, 64, 32, 0, 16, 8};
  spec.layer_heads = {{1, 8}, {2, 8}, {1, 16}, {2, 16}, {1, 32}, {2, 32}};
  spec.key_value_layers = {0, 1, 0, 0, 1, 1};
  spec.layer_ffn = {10, 20, 30, 40, 50, 60};
  spec.ffn_cutoff_layers = {1, 0, 1, 1, 0, 0};
  spec.expert_layers = {0, 1, 1, 0, 1, 0};
  ModelSpec want = spec;
  want.n_layers = 4;
  want.layer_rope = {1, 2, 0, 1};
  want.layer_mixers = {0, 1, 0, 1};
  want.ffn_layers = {1, 1, 0, 1};
  want.sliding_window = {0, 64, 16, 8};
  want.layer_heads = {{1, 8}, {2, 8}, {1, 32}, {2, 32}};
  want.key_value_layers = {0, 1, 1, 1};
  want.layer_ffn = {10, 20, 50, 60};
  want.ffn_cutoff_layers = {1, 0, 0, 0};
  want.expert_layers = {0, 1, 1, 0};
  const std::vector<std::uint32_t> kept = {0, 1, 4, 5};
  ASSERT_TRUE(keep_layers(kept, spec).ok());
  EXPECT_EQ(spec, want);
  // One window of all layers is of all that are left.
  spec = six_layers();
  spec.sliding_window = {64};
  want = spec;
  want.n_layers = 4;
  ASSERT_TRUE(keep_layers(kept, spec).ok());
  EXPECT_EQ(spec, want);
}

TEST(KeptLayersTest, ModelsWhoseLayersDependOnEachOtherAreRefused) {
  const auto refusal = [](auto change) {
    ModelSpec spec = six_layers();
    change(spec);
    const ModelSpec before = spec;
    EXPECT_TRUE(keep_layers(std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}, spec).ok());
    const Status status = keep_layers(std::vector<std::uint32_t>{0, 1, 4, 5}, spec);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(spec, before);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](ModelSpec& s) { s.kv_layers = {0, 1, 2, 3, 2, 3}; }),
              HasSubstr("keys and values of other layers"));
  EXPECT_THAT(refusal([](ModelSpec& s) { s.n_streams = 4; }), HasSubstr("residual streams"));
  EXPECT_THAT(refusal([](ModelSpec& s) { s.layer_input_dim = 8; }), HasSubstr("an input for each"));
  EXPECT_THAT(refusal([](ModelSpec& s) { s.norms_stream = true; }), HasSubstr("norm"));
  EXPECT_THAT(refusal([](ModelSpec& s) { s.layer_mixers = {1, 1, 0, 0, 1, 1}; }),
              HasSubstr("none is left that attends"));
  EXPECT_THAT(refusal([](ModelSpec& s) {
                s.n_experts = 4;
                s.expert_layers = {0, 0, 1, 1, 0, 0};
              }),
              HasSubstr("none is left that has experts"));
}

}  // namespace
}  // namespace qsf
