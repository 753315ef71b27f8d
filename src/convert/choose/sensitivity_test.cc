// SPDX-License-Identifier: MIT
//
// Measurements resume after an interruption, and start again if their rows or matrices differ.

#include "convert/choose/sensitivity.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

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
    options_.collect = {.context = 8, .n_threads = 1};
    options_.on_probe = [this](std::size_t done, std::size_t total) -> Status {
      dones_.push_back(done);
      total_ = total;
      return done == stop_at_ ? cancelled("stopped") : ok_status();
    };
  }
  // Returns the probes that were run, by number.
  std::vector<std::size_t> measure(Calibration& calibration, std::size_t n_tokens = 16,
                                   std::size_t stop_at = 0) {
    stop_at_ = stop_at;
    dones_.clear();
    std::vector<TokenId> tokens;
    for (std::size_t i = 0; i < n_tokens; ++i) tokens.push_back(static_cast<TokenId>(i * 7 % 33));
    const Status status =
        measure_sensitivities(*model_, tokens, out_.file("m.qsf"), options_, calibration);
    EXPECT_EQ(status.code(), stop_at == 0 ? StatusCode::kOk : StatusCode::kCancelled)
        << status.message();
    return dones_;
  }
  TemporaryFolder folder_;
  TemporaryFolder out_;
  std::unique_ptr<HfModel> model_;
  SensitivityOptions options_;
  std::vector<std::size_t> dones_;
  std::size_t total_ = 0;
  std::size_t stop_at_ = 0;
};

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
