// SPDX-License-Identifier: MIT
//
// qsf-convert --tune as a user runs it, on the bundled model: what it prints and writes, that it
// resumes with the same bytes, and what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "format/qsf_reader.h"
#include "import/testing/hf_folder.h"
#include "tools/testing/convert_tool.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

class QsfConvertTuneTest : public testing::Test {
 protected:
  // Five windows, of which one is held out.
  std::vector<std::string> arguments(std::vector<std::string> more,
                                     const std::string& model = kModel) {
    for (const std::string& argument :
         {std::string("--quant-type"), std::string("2bit-table"), std::string("--calibration"),
          kTale, std::string("--calibration-context"), std::string("16"),
          std::string("--calibration-tokens"), std::string("80"), model, out_.file("m.qsf")}) {
      more.push_back(argument);
    }
    return more;
  }

  TemporaryFolder in_;
  TemporaryFolder out_;
  const std::string folder_ = in_.file("work");
};

TEST_F(QsfConvertTuneTest, DivergenceFallsInTheSameBytes) {
  const Outcome plain = run(arguments({}));
  ASSERT_EQ(plain.code, 0) << plain.err;
  const std::size_t n_bytes = out_.read("m.qsf").size();
  const Outcome tuned = run(arguments({"--tune", "--tune-passes", "2"}));
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("scales and norms on 4 windows: the divergence on 1 others"));
  EXPECT_EQ(out_.read("m.qsf").size(), n_bytes);
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_THAT(reader->spec().quantiser, HasSubstr(", tuned"));
}

TEST_F(QsfConvertTuneTest, ThreadsAndInterruptionsDoNotChangeTheBytes) {
  const Outcome at_once = run(arguments({"--tune", "--threads", "1"}));
  ASSERT_EQ(at_once.code, 0) << at_once.err;
  const std::string want = out_.read("m.qsf");
  std::filesystem::remove(out_.file("m.qsf"));
  const std::vector<std::string> resumable =
      arguments({"--tune", "--threads", "2", "--work-folder", folder_});
  const TemporaryFolder scratch;
  const pid_t child = start(scratch, resumable, kNoLimit);
  EXPECT_TRUE(wait_for(child, [&] { return std::filesystem::exists(folder_ + "/tuning"); }));
  kill(child, SIGKILL);
  finish(scratch, child);
  EXPECT_THAT(out_.names(), IsEmpty());
  const Outcome resumed = run(resumable);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(out_.read("m.qsf") == want) << "other bytes";
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

#ifndef QSF_WITH_SANITIZER  // which takes memory of its own
TEST_F(QsfConvertTuneTest, BudgetIsKeptOrTheSmallestNamed) {
  const Outcome refused = run(arguments({"--tune", "--ram-budget", "44"}));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--ram-budget 44.0 MB: too small: --tune takes "));
  EXPECT_THAT(out_.names(), IsEmpty());
  constexpr std::uint64_t kBudgetMb = 60;
  const Outcome tuned = run(arguments({"--tune", "--ram-budget", std::to_string(kBudgetMb)}));
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_LE(tuned.peak_bytes, kBudgetMb * 1'000'000);
}
#endif

TEST_F(QsfConvertTuneTest, RefusesWhatItCannotTune) {
  const std::string golden = QSF_SOURCE_DIR "/testdata/golden/";
  expect_failure(run(arguments({"--tune"}, golden + "gemma2")), 1,
                 "--tune: models like this one (gemma2) cannot be tuned");
  expect_failure(run({"--tune", kModel, out_.file("m.qsf")}), 2, "--tune needs --calibration");
  expect_failure(
      run({"--tune", "--quant-type", "keep", "--calibration", kTale, kModel, out_.file("m.qsf")}),
      2, "--tune excludes --quant-type keep");
  expect_failure(run(arguments({"--tune", "--int8-rows"})), 2, "--tune excludes --int8-rows");
  expect_failure(run(arguments({"--tune-passes", "2"})), 2, "--tune-passes needs --tune");
  expect_failure(run({"--tune", "--quant-type", "3bit", "--calibration", kTale,
                      "--calibration-context", "1024", kModel, out_.file("m.qsf")}),
                 1, "expected at least two windows of 1024 for --tune");
  EXPECT_THAT(out_.names(), IsEmpty());
}

}  // namespace
}  // namespace qsf
