// SPDX-License-Identifier: MIT
//
// Conversions of golden models whose layers differ from LLaMA's, with a calibration: importance
// lowers the weighted error of every matrix, target sizes are met, error compensation reaches the
// matrices that it can, and what is written runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temporary_path.h"
#include "convert/calibrate/calibration_file.h"
#include "convert/calibrate/collect_statistics.h"
#include "convert/calibrate/model_copy.h"
#include "convert/choose/sensitivity.h"
#include "convert/choose/target_size.h"
#include "convert/gptq/layerwise_gptq.h"
#include "engine/engine.h"
#include "format/tensor_rules.h"
#include "import/hf/hf_model.h"
#include "quant/codec.h"

namespace qsf {
namespace {

constexpr std::uint32_t kFamilyContext = 24;
constexpr std::size_t kFamilyTokens = 4 * kFamilyContext;
// Nats that rounding to 3 bits may add: it changes which experts so small a model takes.
constexpr double kMostLoss = 1.0;

std::vector<TokenId> family_tokens(std::uint32_t n_vocab) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < kFamilyTokens; ++i) {
    tokens.push_back(static_cast<TokenId>((i * i * 31 + 7 * i + 3) % n_vocab));
  }
  return tokens;
}

class CalibratedFamiliesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto model = HfModel::open(std::string(QSF_SOURCE_DIR "/testdata/golden/") + GetParam());
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    tokens_ = family_tokens(model_->spec().n_vocab);
    const auto collector = open_collector();
    ASSERT_NE(collector, nullptr);
    auto calibration = collector->run(tokens_);
    ASSERT_TRUE(calibration) << calibration.error().message();
    calibration_ = std::move(*calibration);
    auto identified = identify_model(*model_);
    ASSERT_TRUE(identified) << identified.error().message();
    calibration_.model = std::move(*identified);
    copied_loss_ = loss();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<StatisticsCollector> open_collector(std::size_t* n_runs = nullptr) {
    const Status written = write_copy(*model_, path_, {});
    EXPECT_TRUE(written.ok()) << written.message();
    CollectOptions options = {.context = kFamilyContext, .n_threads = 2};
    options.on_progress = [n_runs](const CollectProgress& progress) {
      if (n_runs != nullptr && progress.done_rows == progress.total_rows) ++*n_runs;
    };
    auto collector = StatisticsCollector::open(path_, options);
    EXPECT_TRUE(collector) << collector.error().message();
    return collector ? std::move(*collector) : nullptr;
  }
  // The mean loss of what was written at the path.
  double loss() {
    EngineOptions options;
    options.n_threads = 2;
    options.max_context = kFamilyContext;
    const auto engine = Engine::open(path_, options);
    EXPECT_TRUE(engine) << engine.error().message();
    if (!engine) return NAN;
    std::vector<double> log_probs(kFamilyContext - 1);
    const Status status = (*engine)->score(std::span(tokens_).first(kFamilyContext), 1, log_probs);
    EXPECT_TRUE(status.ok()) << status.message();
    double sum = 0.0;
    for (const double log_prob : log_probs) sum -= log_prob;
    return sum / (kFamilyContext - 1);
  }

  const std::string path_ =
      testing_support::temporary_path(std::string("calibrated_") + GetParam() + ".qsf");
  std::unique_ptr<HfModel> model_;
  std::vector<TokenId> tokens_;
  Calibration calibration_;
  double copied_loss_ = 0.0;  // of the model before it is rounded
};

bool is_rounded(const SourcePlace& t) {
  return t.section.kind == SectionKind::kLayer && t.source->rows > 1 &&
         t.source->kind != TensorKind::kRouter;
}

// The weighted error of a matrix that is encoded with or without `importance`, by the definition:
// heads of latent attention have importance of their own.
double weighted_error(const ModelSource& source, const SourcePlace& t,
                      std::span<const float> importance, bool uses) {
  const SourceTensor& tensor = *t.source;
  const BlockFormat format = block_format(QuantType::kQ2A, 32);
  const std::size_t rows_of_part = tensor.rows / (importance.size() / tensor.cols);
  RowEncoding encoding = {format, {.rounding = Rounding::kSearch}, nullptr};
  if (uses) encoding.options.importance = importance;
  const auto encoded = encode_rows(source, t, encoding, {0, tensor.rows});
  EXPECT_TRUE(encoded) << encoded.error().message();
  std::vector<float> row(tensor.cols);
  std::vector<float> decoded(tensor.cols);
  const std::size_t row_bytes = row_major_bytes(format, tensor.cols);
  double sum = 0.0;
  for (std::uint32_t r = 0; r < tensor.rows; ++r) {
    const SectionId id = t.section;
    EXPECT_TRUE(source.read_rows(id.kind, id.layer, t.index, r, row).ok());
    decode_row(format, ByteSpan(encoded->bytes).subspan(r * row_bytes, row_bytes), decoded);
    const auto of_row = importance.subspan(r / rows_of_part * tensor.cols, tensor.cols);
    for (std::size_t c = 0; c < tensor.cols; ++c) {
      const double error = row[c] - decoded[c];
      sum += static_cast<double>(of_row[c]) * error * error;
    }
  }
  return sum;
}

TEST_P(CalibratedFamiliesTest, ImportanceLowersTheErrorsOfEveryMatrix) {
  const auto read = decode_calibration(encode_calibration(calibration_));
  ASSERT_TRUE(read) << read.error().message();
  const Status same = check_calibrated(*read, calibration_.model);
  EXPECT_TRUE(same.ok()) << same.message();
  const auto importance = column_importance(*read);
  ASSERT_TRUE(importance) << importance.error().message();
  for (const SourcePlace& t : tensors_of(*model_)) {
    if (!is_rounded(t)) continue;
    const MatrixPlace place = {t.source->kind, t.section.layer, t.source->expert};
    const std::span<const float> columns = importance->find(place, t.source->cols);
    const ExpertCalibration* expert =
        is_expert(place.kind) ? &read->layers[place.layer].experts[place.expert] : nullptr;
    ASSERT_FALSE(columns.empty()) << t.full_name();
    const double with = weighted_error(*model_, t, columns, true);
    const double without = weighted_error(*model_, t, columns, false);
    EXPECT_LT(with, without * (expert != nullptr && expert->n_rows == 0 ? 1.001 : 1.0))
        << t.full_name();
  }
}

TEST_P(CalibratedFamiliesTest, ChoosesTypesForASize) {
  SensitivityOptions sensitivity;
  sensitivity.collect = {.context = kFamilyContext, .n_threads = 2};
  const std::vector<TokenId> some(tokens_.begin(), tokens_.begin() + kFamilyContext);
  const Status measured = measure_sensitivities(*model_, some, path_, sensitivity, calibration_);
  ASSERT_TRUE(measured.ok()) << measured.message();
  const auto importance = column_importance(calibration_);
  ASSERT_TRUE(importance);
  TranscodeOptions options;
  options.tile_bytes = 4096;
  options.n_threads = 2;
  options.importance = &*importance;
  const auto least = smallest_target_size(*model_, options);
  ASSERT_TRUE(least) << least.error().message();
  const std::uint64_t most = *least + *least / 4;
  const auto plan = plan_target_size(*model_, calibration_, options, most);
  ASSERT_TRUE(plan) << plan.error().message();
  std::size_t n_matrices = 0;
  for (const TargetTensor& t : plan->tensors) n_matrices += t.n_matrices;
  std::size_t n_rounded = 0;
  for (const SourcePlace& t : tensors_of(*model_)) n_rounded += is_rounded(t) ? 1 : 0;
  EXPECT_GE(n_matrices, n_rounded);
  options.formats = &plan->formats;
  const auto report = transcode(*model_, path_, options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_LE(std::filesystem::file_size(path_), most);
  EXPECT_NEAR(loss(), copied_loss_, kMostLoss);
}

TEST_P(CalibratedFamiliesTest, CompensatesAllButExpertsAndMatricesOfLatentHeads) {
  std::size_t n_runs = 0;
  auto collector = open_collector(&n_runs);
  ASSERT_NE(collector, nullptr);
  ASSERT_TRUE(collector->save_hidden_rows(tokens_.size()).ok());
  LayerwiseGptq gptq(std::move(collector), tokens_, 1, 2);
  for (const SourcePlace& t : tensors_of(*model_)) {
    if (!is_rounded(t)) continue;
    const TensorKind kind = t.source->kind;
    const auto factor = gptq.factor_of(kind, t.section.layer, t.source->cols);
    ASSERT_TRUE(factor) << t.full_name() << ": " << factor.error().message();
    const bool left_out =
        is_expert(kind) || kind == TensorKind::kLatentKeys || kind == TensorKind::kLatentValues;
    EXPECT_EQ(*factor == nullptr, left_out) << t.full_name();
  }
  // In memory that is not bounded, every layer is a group of its own, in order.
  EXPECT_EQ(n_runs, model_->spec().n_layers);
  TranscodeOptions options;
  options.preset = QuantType::kQ3;
  options.n_threads = 2;
  options.compensation = &gptq;
  const auto report = transcode(*model_, path_, options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_NEAR(loss(), copied_loss_, kMostLoss);
}

INSTANTIATE_TEST_SUITE_P(Golden, CalibratedFamiliesTest,
                         testing::Values("lfm2", "lfm2_moe", "granite4h", "granite4h_experts",
                                         "nemotron_h", "nemotron_h_mixed", "nemotron_h_moe",
                                         "falcon_h1", "qwen3_5", "qwen3_5_moe", "qwen3_next",
                                         "gemma4", "gemma4_e", "gemma4_a4b", "deepseek_v2_lite",
                                         "deepseek_v3", "glm4_moe_lite"),
                         [](const auto& family) { return std::string(family.param); });

TEST(CalibratedFamiliesRefusalTest, ResidualStreamsAreRefusedByName) {
  const auto model = HfModel::open(QSF_SOURCE_DIR "/testdata/golden/gemma3n");
  ASSERT_TRUE(model) << model.error().message();
  const auto identified = identify_model(**model);
  ASSERT_FALSE(identified);
  EXPECT_EQ(identified.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(identified.error().message()),
              testing::HasSubstr("several residual streams"));
}

}  // namespace
}  // namespace qsf
