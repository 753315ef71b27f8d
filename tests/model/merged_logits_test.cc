// SPDX-License-Identifier: MIT
//
// Holds models into which qsf-convert has merged an adapter to the logits that peft and
// transformers give with it: every folder of testdata/adapters, with f32 weights, at the tolerance
// of models without adapters. The checker is on trial too: with another scale, or without the
// adapter, the logits must be off.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/testing/golden_model.h"
#include "tools/testing/convert_tool.h"

namespace {

using namespace qsf_tools;
using qsf::testing_support::expect_failure;
using qsf::testing_support::Outcome;
using qsf::testing_support::run;
using qsf::testing_support::TemporaryFolder;
namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;  // docs/testing.md
// make_adapter_golden.py makes sure that faults move logits by 1e-2.
constexpr double kFault = 5e-3;

fs::path golden_adapters() {
  return fs::path(QSF_SOURCE_DIR) / "testdata/adapters";
}

std::vector<std::string> adapter_names() {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(golden_adapters())) {
    if (entry.is_directory()) names.insert(entry.path().filename().string());
  }
  return {names.begin(), names.end()};
}

class MergedLogitsTest : public testing::TestWithParam<std::string> {
 protected:
  std::string adapter() const { return (golden_adapters() / GetParam()).string(); }
  std::string base() const {
    const auto config = nlohmann::json::parse(read_file(adapter() + "/adapter_config.json"));
    return (golden_adapters().parent_path() / "golden" /
            config["base_model_name_or_path"].get<std::string>())
        .string();
  }

  // Converts the base to OUT.qsf.
  Outcome convert(const std::string& out, std::vector<std::string> more) const {
    more.insert(more.end(), {"--quiet", "--quant-type", "f32", base(), file(out)});
    return run(more);
  }
  std::string file(const std::string& name) const { return out_.file(name + ".qsf"); }

  // The largest error over both prompts and the tokens behind them, against the largest logit.
  double error_of(const std::string& model) const {
    const Golden golden(adapter() + "/expected.bin");
    EXPECT_EQ(golden.cases.size(), 2U);
    const EnginePtr engine = open_engine(file(model), QSF_KV_F32, 0, 2);
    if (engine == nullptr || golden.cases.empty()) return HUGE_VAL;
    double worst = 0;
    for (const Golden::Case& item : golden.cases) {
      EXPECT_FALSE(item.rows.empty());
      worst = std::max(worst, largest_error(run_case(engine.get(), golden, item), item.rows));
    }
    return worst / golden.largest;
  }

  TemporaryFolder out_;
};

TEST_P(MergedLogitsTest, MatchPeft) {
  const Outcome merged = convert("merged", {"--merge-lora", adapter()});
  ASSERT_EQ(merged.code, 0) << merged.err;
  const double error = error_of("merged");
  EXPECT_LE(error, kTolerance);
  RecordProperty("relative_error", std::to_string(error));
  ASSERT_EQ(convert("base", {}).code, 0);
  EXPECT_GE(error_of("base"), kFault);
  ASSERT_EQ(convert("scaled", {"--merge-lora", adapter() + ":1.5"}).code, 0);
  EXPECT_GE(error_of("scaled"), kFault);
}

// Adapters are for weights that are not rotated, so they are merged before.
TEST_P(MergedLogitsTest, RotatedModelsMatchPeftOrAreRefused) {
  const Outcome outcome = convert("rotated", {"--rotate", "values", "--merge-lora", adapter()});
  if (outcome.code != 0) {
    expect_failure(outcome, 1, "values cannot be rotated");
    return;
  }
  EXPECT_LE(error_of("rotated"), kTolerance);
}

// What an adapter file holds is what the folder holds.
TEST_P(MergedLogitsTest, AdapterFilesGiveTheSameWeights) {
  ASSERT_EQ(convert("base", {}).code, 0);
  const Outcome own = run({adapter(), file("adapter"), "--base", file("base")});
  ASSERT_EQ(own.code, 0) << own.err;
  ASSERT_EQ(convert("a", {"--merge-lora", adapter()}).code, 0);
  ASSERT_EQ(convert("b", {"--merge-lora", file("adapter")}).code, 0);
  EXPECT_EQ(out_.read("a.qsf"), out_.read("b.qsf"));
}

INSTANTIATE_TEST_SUITE_P(All, MergedLogitsTest, testing::ValuesIn(adapter_names()),
                         [](const auto& name) { return name.param; });

TEST(MergedAdaptersTest, AreOfEveryFamily) {
  EXPECT_GE(adapter_names().size(), 60U);
}

}  // namespace
