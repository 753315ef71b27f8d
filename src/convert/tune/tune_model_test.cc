// SPDX-License-Identifier: MIT
//
// Tuning as a whole: what it writes is closer to the original and never further away, resumes with
// the same bytes, and what it refuses.

#include "convert/tune/tune_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temporary_path.h"
#include "convert/encode/transcode.h"
#include "convert/tune/tune_gradients.h"
#include "import/hf/hf_model.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::temporary_path;

constexpr std::uint32_t kTuneWindow = 32;
constexpr std::size_t kTuneWindows = 12;

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TuneModelTest : public testing::Test {
 protected:
  void SetUp() override {
    open("llama_gqa_tied");
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    std::filesystem::remove(out_);
    std::filesystem::remove_all(folder_);
  }
  void open(const std::string& name) {
    auto model = HfModel::open(std::string(QSF_SOURCE_DIR "/testdata/golden/") + name);
    ASSERT_TRUE(model) << model.error().message();
    model_ = std::move(*model);
    TranscodeOptions options;
    options.preset = QuantType::kQ2Codebook;
    const auto report = transcode(*model_, path_, options);
    ASSERT_TRUE(report) << report.error().message();
    auto reader = QsfReader::open(path_);
    ASSERT_TRUE(reader) << reader.error().message();
    converted_ = std::make_unique<QsfReader>(std::move(*reader));
    tokens_.clear();
    for (std::size_t i = 0; i < kTuneWindows * kTuneWindow; ++i) {
      tokens_.push_back(static_cast<TokenId>((i * i * 31 + 7 * i + 3) % model_->spec().n_vocab));
    }
  }
  TuneOptions options() const {
    TuneOptions options;
    options.context = kTuneWindow;
    options.n_epochs = 2;
    options.learning_rate = 1e-2F;
    options.n_threads = 2;
    return options;
  }
  Result<TuneReport> tune(const std::string& out, const TuneOptions& options) {
    return tune_model(*model_, *converted_, tokens_, out, options);
  }

  const std::string path_ = temporary_path("tune_model.qsf");
  const std::string out_ = temporary_path("tune_model.tuned.qsf");
  const std::string folder_ = temporary_path("tune_model.work");
  std::unique_ptr<HfModel> model_;
  std::unique_ptr<QsfReader> converted_;
  std::vector<TokenId> tokens_;
};

TEST_F(TuneModelTest, FileHasTheSmallerDivergenceThatIsReported) {
  const auto report = tune(out_, options());
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->n_windows, 11U);
  EXPECT_EQ(report->n_held_out, 1U);
  EXPECT_LT(report->after, 0.9 * report->before);
  const auto written = QsfReader::open(out_);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_THAT(written->spec().quantiser, HasSubstr("tuned"));
  const auto model = TunedModel::open(*written, 1);
  ASSERT_TRUE(model) << model.error().message();
  TuneGradients pass(*model_, **model, tokens_, {.context = kTuneWindow});
  const auto divergence = pass.divergence(11);
  ASSERT_TRUE(divergence) << divergence.error().message();
  EXPECT_EQ(*divergence, report->after);
  EXPECT_EQ(written->file().size_bytes(), converted_->file().size_bytes());
}

// Steps that are too long spoil every model.
TEST_F(TuneModelTest, NeverWritesAWorseModel) {
  TuneOptions wild = options();
  wild.learning_rate = 10.0F;
  const auto report = tune(out_, wild);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->after, report->before);
  const auto written = QsfReader::open(out_);
  ASSERT_TRUE(written) << written.error().message();
  const auto read = [](const QsfReader& reader, std::size_t section, std::uint32_t tile) {
    const SectionDirectory& directory = reader.directories()[section];
    std::vector<std::byte> raw(directory.tiles[tile].raw_bytes);
    EXPECT_TRUE(reader.read_tile(directory, tile, {}, raw).ok());
    return raw;
  };
  for (std::size_t s = 0; s < converted_->directories().size(); ++s) {
    for (std::uint32_t t = 0; t < converted_->directories()[s].tiles.size(); ++t) {
      EXPECT_EQ(read(*written, s, t), read(*converted_, s, t)) << s << ", " << t;
    }
  }
}

TEST_F(TuneModelTest, ResumesWithTheSameBytes) {
  ASSERT_TRUE(tune(out_, options()));
  const std::string want = bytes_of_file(out_);
  std::filesystem::remove(out_);
  TuneOptions interrupted = options();
  interrupted.folder = folder_;
  interrupted.n_threads = 1;
  std::atomic<bool> cancel{false};
  interrupted.cancel = &cancel;
  for (const std::uint64_t step : {0U, 14U, 20U}) {  // saved are 0, 11, 16 and 22
    std::uint64_t first = UINT64_MAX;
    interrupted.on_progress = [&](const TuneProgress& done) {
      first = std::min(first, done.done_windows);
      if (done.done_windows == step) cancel = true;
    };
    cancel = false;
    const auto report = tune(out_, interrupted);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), StatusCode::kCancelled);
    EXPECT_FALSE(std::filesystem::exists(out_));
    EXPECT_EQ(first, step < 20 ? 0U : 11U);
  }
  std::uint64_t first = UINT64_MAX;
  interrupted.on_progress = [&](const TuneProgress& done) {
    first = std::min(first, done.done_windows);
  };
  cancel = false;
  ASSERT_TRUE(tune(out_, interrupted));
  EXPECT_EQ(first, 16U);
  EXPECT_EQ(bytes_of_file(out_), want);
}

TEST_F(TuneModelTest, RefusesADamagedState) {
  TuneOptions saved = options();
  saved.folder = folder_;
  ASSERT_TRUE(tune(out_, saved));
  const std::string state = folder_ + "/" + tune_folder_names().front();
  ASSERT_TRUE(std::filesystem::exists(state));
  {
    std::fstream file(state, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('!');
  }
  const auto report = tune(out_, saved);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), StatusCode::kCorrupt);
  EXPECT_THAT(report.error().message(), HasSubstr("remove this file and run again"));
}

TEST_F(TuneModelTest, RefusesOtherModelsAndShortTexts) {
  tokens_.resize(kTuneWindow);
  const auto one_window = tune(out_, options());
  ASSERT_FALSE(one_window);
  EXPECT_THAT(one_window.error().message(), HasSubstr("at least two windows of 32"));
  for (const char* name : {"gemma2", "gpt2", "mixtral", "olmo2", "granite_tied", "ministral3",
                           "smollm3", "llama_biased"}) {
    open(name);
    const auto report = tune(out_, options());
    ASSERT_FALSE(report) << name;
    EXPECT_EQ(report.error().code(), StatusCode::kUnsupported) << name;
    EXPECT_THAT(report.error().message(), HasSubstr(model_->spec().architecture)) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(TuneModelTest, MemoryGrowsWithTheWindow) {
  EXPECT_LT(tune_memory_bytes(*model_, *converted_, kTuneWindow, 1),
            tune_memory_bytes(*model_, *converted_, 2 * kTuneWindow, 1));
  EXPECT_GT(tune_memory_bytes(*model_, *converted_, kTuneWindow, 1),
            6 * sizeof(float) * 1000);  // of factors
}

}  // namespace
}  // namespace qsf
