// SPDX-License-Identifier: MIT
//
// The passes of tuning against the engine and against differences: log probabilities of the
// original, and gradients of every kind of field in every form of types.

#include "convert/tune/tune_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/testing/temporary_path.h"
#include "convert/encode/transcode.h"
#include "engine/engine.h"
#include "import/hf/hf_model.h"

namespace qsf {
namespace {

constexpr std::uint32_t kPassWindow = 24;

std::vector<TokenId> window_tokens(std::size_t n_windows, std::uint32_t n_vocab) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n_windows * kPassWindow; ++i) {
    tokens.push_back(static_cast<TokenId>((i * i * 31 + 7 * i + 3) % n_vocab));
  }
  return tokens;
}

struct TunedCase {
  const char* model;
  QuantType type;
};

class TuneGradientsTest : public testing::TestWithParam<TunedCase> {
 protected:
  void SetUp() override {
    auto model = HfModel::open(std::string(QSF_SOURCE_DIR "/testdata/golden/") + GetParam().model);
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    tokens_ = window_tokens(2, model_->spec().n_vocab);
  }
  void convert(QuantType type) {
    TranscodeOptions options;
    options.preset = type;
    options.vocabulary_type = type;
    options.block = 32;
    const auto report = transcode(*model_, path_, options);
    ASSERT_TRUE(report) << report.error().message();
  }
  void open() {
    auto reader = QsfReader::open(path_);
    ASSERT_TRUE(reader) << reader.error().message();
    reader_ = std::make_unique<QsfReader>(std::move(*reader));
    auto tuned = TunedModel::open(*reader_, 2);
    ASSERT_TRUE(tuned) << tuned.error().message();
    tuned_ = std::move(*tuned);
  }
  // The slope of the divergence of window 1 where all of these factors go the ways of `gradients`,
  // from differences of two widths: fields of f16 move by a step to within 8 % of it, which many
  // of them even out.
  double slope_along(TuneGradients& pass, std::span<const std::size_t> factors,
                     std::span<const float> gradients) {
    const auto divergence_at = [&](float step) {
      const std::vector<float> before(tuned_->factors().begin(), tuned_->factors().end());
      for (const std::size_t i : factors) {
        tuned_->factors()[i] += gradients[i] < 0.0F ? -step : step;
      }
      const double divergence = *pass.divergence(1);
      std::copy(before.begin(), before.end(), tuned_->factors().begin());
      return divergence;
    };
    const auto difference = [&](float step) {
      return (divergence_at(step) - divergence_at(-step)) / (2 * static_cast<double>(step));
    };
    return (4 * difference(1.0F / 128) - difference(1.0F / 64)) / 3;
  }
  TunePassOptions options() const { return {.context = kPassWindow, .n_threads = 2}; }

  const std::string path_ = testing_support::temporary_path("tune_gradients.qsf");
  std::unique_ptr<HfModel> model_;
  std::vector<TokenId> tokens_;
  std::unique_ptr<QsfReader> reader_;
  std::unique_ptr<TunedModel> tuned_;
};

TEST_P(TuneGradientsTest, OriginalHasTheEnginesLogProbabilities) {
  convert(QuantType::kF32);
  open();
  TuneGradients gradients(*model_, *tuned_, tokens_, options());
  EngineOptions engine_options;
  engine_options.n_threads = 2;
  engine_options.max_context = kPassWindow;
  engine_options.exact = true;
  engine_options.k_type = engine_options.v_type = KvType::kF32;
  const auto engine = Engine::open(path_, engine_options);
  ASSERT_TRUE(engine) << engine.error().message();
  OriginalWeights weights(*model_, 1);
  const std::uint32_t hidden = model_->spec().hidden;
  for (std::size_t window = 0; window < 2; ++window) {
    const auto tokens =
        std::span<const TokenId>(tokens_).subspan(window * kPassWindow, kPassWindow);
    std::vector<double> want(kPassWindow - 1);
    const Status scored = (*engine)->score(tokens, 1, want);
    ASSERT_TRUE(scored.ok()) << scored.message();
    const auto rows = gradients.original_rows(window);
    ASSERT_TRUE(rows) << rows.error().message();
    for (std::size_t i = 0; i + 1 < kPassWindow; ++i) {
      std::vector<float> head(hidden);
      ASSERT_TRUE(weights.load_head(tokens[i + 1], head).ok());
      double logit = 0.0;
      for (std::size_t c = 0; c < hidden; ++c) {
        logit += static_cast<double>(head[c]) * static_cast<double>((*rows)->rows[i * hidden + c]);
      }
      EXPECT_NEAR(logit - (*rows)->log_z[i], want[i], 1e-4) << window << ", " << i;
    }
    const auto divergence = gradients.divergence(window);
    ASSERT_TRUE(divergence) << divergence.error().message();
    EXPECT_NEAR(*divergence, 0.0, 1e-6) << "of a copy in f32";
  }
}

// Returns the factors of a tensor's mins, or of its scales and gains.
std::vector<std::size_t> factors_of(const TunedTensor& tensor, bool mins) {
  std::vector<std::size_t> factors;
  for (std::size_t i = 0; i < tensor.n_factors(); ++i) {
    if ((i % tensor.row_factors() >= tensor.n_groups) == mins) factors.push_back(tensor.first + i);
  }
  return factors;
}

TEST_P(TuneGradientsTest, GradientsAreThoseOfDifferences) {
  convert(GetParam().type);
  open();
  TuneGradients gradients(*model_, *tuned_, tokens_, options());
  Rng rng(7);
  for (float& factor : tuned_->factors()) {
    factor = 0.1F + 0.0002F * static_cast<float>(rng.below(1001));
  }
  const auto divergence = gradients.find(1);
  ASSERT_TRUE(divergence) << divergence.error().message();
  EXPECT_EQ(*divergence, *gradients.divergence(1));
  const std::vector<float> found(tuned_->gradients().begin(), tuned_->gradients().end());
  std::size_t first = 0;
  std::size_t n_tensors = 0;
  for (const SectionDirectory& section : reader_->directories()) {
    for (const TensorInfo& info : section.tensors) {
      const TunedTensor tensor = tuned_tensor(info, first);
      first += tensor.n_factors();
      if (tensor.n_factors() == 0) continue;
      ++n_tensors;
      for (const bool mins : {false, true}) {
        const std::vector<std::size_t> factors = factors_of(tensor, mins);
        EXPECT_EQ(factors.empty(), mins && !tensor.has_min);
        if (factors.empty()) continue;
        double sum = 0.0;
        for (const std::size_t i : factors) sum += std::fabs(static_cast<double>(found[i]));
        const double want = slope_along(gradients, factors, found);
        EXPECT_NEAR(sum, want, 0.08 * std::fabs(want))
            << section_label(section.kind, section.layer) << " " << tensor_kind_name(info.kind)
            << (mins ? ", mins" : "");
        EXPECT_GT(sum, 0.0);
      }
    }
  }
  EXPECT_EQ(first, found.size());
  EXPECT_GE(n_tensors, 2 * 9 + 2U);
}

TEST_P(TuneGradientsTest, BitsDoNotDependOnThreads) {
  convert(GetParam().type);
  open();
  TuneGradients two(*model_, *tuned_, tokens_, options());
  ASSERT_TRUE(two.find(0));
  const std::vector<float> want(tuned_->gradients().begin(), tuned_->gradients().end());
  open();
  TuneGradients one(*model_, *tuned_, tokens_, {.context = kPassWindow, .n_threads = 1});
  ASSERT_TRUE(one.find(0));
  EXPECT_TRUE(std::equal(want.begin(), want.end(), tuned_->gradients().begin()));
}

// Every form of scales and mins; grouped queries, heads of their own and tied, biases, norms of
// heads, windows.
INSTANTIATE_TEST_SUITE_P(Models, TuneGradientsTest,
                         testing::Values(TunedCase{"llama3", QuantType::kQ2Codebook},
                                         TunedCase{"llama_gqa_tied", QuantType::kQ2K},
                                         TunedCase{"qwen2", QuantType::kQ2A},
                                         TunedCase{"qwen3", QuantType::kQ3Super},
                                         TunedCase{"mistral", QuantType::kQ2S},
                                         TunedCase{"mistral", QuantType::kQ2Trellis},
                                         TunedCase{"llama_yarn", QuantType::kQ3K}),
                         [](const auto& tested) {
                           return std::string(tested.param.model) + std::to_string(tested.index);
                         });

}  // namespace
}  // namespace qsf
