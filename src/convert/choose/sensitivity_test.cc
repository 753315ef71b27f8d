// SPDX-License-Identifier: MIT
//
// Measurements are divergences of whole models, resume after an interruption, and start again if
// their rows or matrices differ.

#include "convert/choose/sensitivity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/calibrate/model_copy.h"
#include "engine/engine.h"
#include "import/hf/hf_model.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using namespace testing_support;

class SensitivityTest : public testing::Test {
 protected:
  void SetUp() override {
    write_model(folder_, kTinyLlamaConfig, tiny_llama_tensors());
    auto model = HfModel::open(folder_.path());
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    options_.collect = {.context = kWindow, .n_threads = 1};
    options_.on_probe = [this](std::size_t done, std::size_t total) -> Status {
      dones_.push_back(done);
      total_ = total;
      return done == stop_at_ ? cancelled("stopped") : ok_status();
    };
  }
  static std::vector<TokenId> some_tokens(std::size_t n) {
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(i * 7 % 33));
    return tokens;
  }
  // Returns the probes that were run, by number.
  std::vector<std::size_t> measure(Calibration& calibration, std::size_t n_tokens = 16,
                                   std::size_t stop_at = 0) {
    stop_at_ = stop_at;
    dones_.clear();
    const Status status = measure_sensitivities(*model_, some_tokens(n_tokens), out_.file("m.qsf"),
                                                options_, calibration);
    EXPECT_EQ(status.code(), stop_at == 0 ? StatusCode::kOk : StatusCode::kCancelled)
        << status.message();
    return dones_;
  }
  static constexpr std::uint32_t kWindow = 8;
  TemporaryFolder folder_;
  TemporaryFolder out_;
  std::unique_ptr<HfModel> model_;
  SensitivityOptions options_;
  std::vector<std::size_t> dones_;
  std::size_t total_ = 0;
  std::size_t stop_at_ = 0;
};

// Keeps the logits of a window.
class Logits final : public LogitsSink {
 public:
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    for (std::size_t i = 0; i < logits.size(); ++i) of_[{row, first_token + i}] = logits[i];
  }
  // The log probabilities of the tokens after a row, by token.
  std::vector<double> log_p(std::uint32_t row, std::size_t n_vocab) const {
    std::vector<double> logits;
    double sum = 0.0;
    for (std::size_t i = 0; i < n_vocab; ++i) {
      logits.push_back(of_.at({row, i}));
      sum += std::exp(logits.back());
    }
    for (double& value : logits) value -= std::log(sum);
    return logits;
  }

 private:
  std::map<std::pair<std::uint32_t, std::size_t>, float> of_;
};

TEST_F(SensitivityTest, IsTheDivergenceOfAModelWithTheseMatricesRounded) {
  Calibration calibration;
  measure(calibration, kWindow);
  const auto logits_of = [&](const TensorFormats& formats) {
    const std::string path = out_.file("copy");
    TranscodeOptions options = options_.transcode;
    options.formats = &formats;
    EXPECT_TRUE(write_copy(*model_, path, options).ok());
    EngineOptions engine;
    engine.n_threads = 1;
    engine.max_context = kWindow;
    engine.k_type = KvType::kF32;
    engine.v_type = KvType::kF32;
    engine.exact = true;
    const auto opened = Engine::open(path, engine);
    EXPECT_TRUE(opened) << opened.error().message();
    const auto session = (*opened)->create_session();
    Logits logits;
    EXPECT_TRUE((*session)->prefill_rows(some_tokens(kWindow), logits).ok());
    return logits;
  };
  const Logits reference = logits_of({});
  const std::size_t n_vocab = model_->spec().n_vocab;
  double largest = 0.0;
  for (const Probe& probe : calibration.probes) {
    TensorFormats formats;
    ASSERT_TRUE(formats.set(probe.kind, probe.first_layer, probe.format).ok());
    const Logits changed = logits_of(formats);
    double sum = 0.0;
    for (std::uint32_t row = 0; row < kWindow; ++row) {
      const std::vector<double> p = reference.log_p(row, n_vocab);
      const std::vector<double> q = changed.log_p(row, n_vocab);
      for (std::size_t i = 0; i < n_vocab; ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
    }
    const double expected = sum / kWindow;
    largest = std::max(largest, expected);
    // The logarithms of sums are exact to some 1e-9.
    EXPECT_NEAR(probe.divergence, expected, 1e-4 * expected + 5e-9)
        << tensor_kind_name(probe.kind) << probe.first_layer;
  }
  EXPECT_GT(largest, 1e-7) << "says nothing";
}

TEST_F(SensitivityTest, ResumesAfterTheLastMeasurement) {
  Calibration at_once;
  measure(at_once);
  // Seven matrices of each of two layers and the embedding, at two widths.
  ASSERT_EQ(at_once.probes.size(), 30U);
  EXPECT_EQ(total_, 30U);
  Calibration calibration;
  EXPECT_EQ(measure(calibration, 16, 3), (std::vector<std::size_t>{1, 2, 3}));
  ASSERT_EQ(calibration.probes.size(), 3U);
  const std::vector<std::size_t> later = measure(calibration);
  ASSERT_EQ(later.size(), 27U);
  EXPECT_EQ(later.front(), 4U);
  EXPECT_EQ(calibration.probes, at_once.probes);
  EXPECT_EQ(calibration.n_probe_rows, at_once.n_probe_rows);
  EXPECT_TRUE(measure(calibration).empty());
  EXPECT_EQ(calibration.probes, at_once.probes);
}

TEST_F(SensitivityTest, OtherRowsAndOtherMatricesAreMeasuredAgain) {
  Calibration calibration;
  measure(calibration, 16, 4);
  EXPECT_EQ(measure(calibration, 8, 1).front(), 1U);
  EXPECT_EQ(calibration.probes.size(), 1U);
  measure(calibration, 8, 4);
  calibration.probes[2].first_layer = 1;
  EXPECT_EQ(measure(calibration, 8).front(), 3U);
  Calibration at_once;
  measure(at_once, 8);
  EXPECT_EQ(calibration.probes, at_once.probes);
}

}  // namespace
}  // namespace qsf
