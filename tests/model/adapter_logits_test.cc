// SPDX-License-Identifier: MIT
//
// Holds adapters, from a PEFT folder to logits, to the logits of transformers with peft.
//
// Every folder of testdata/adapters is written as an adapter file for its converted base and chosen
// for sessions: prompts and decode steps have the logits of peft.

#include <gtest/gtest.h>
#include <qsf/qsf.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/model/testing/golden_model.h"
#include "tools/testing/convert_tool.h"

namespace {

using namespace qsf_tools;
using qsf::testing_support::Outcome;
using qsf::testing_support::run;
using qsf::testing_support::TemporaryFolder;
namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;   // of the largest logit, as of golden models
constexpr double kFaultFactor = 100;  // without the adapter logits are off by as many of these

const fs::path& testdata() {
  static const fs::path folder = fs::path(QSF_SOURCE_DIR) / "testdata";
  return folder;
}

std::vector<std::string> golden_adapters() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(testdata() / "adapters")) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class AdapterLogitsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto config = nlohmann::json::parse(read_file(source() / "adapter_config.json"));
    const std::string base = testdata() / "golden" / config["base_model_name_or_path"];
    const Outcome model = run({"--quiet", "--quant-type", "f32", base, file("model")});
    ASSERT_EQ(model.code, 0) << model.err;
    const Outcome adapter = run({source(), file("adapter"), "--base", file("model")});
    ASSERT_EQ(adapter.code, 0) << adapter.err;
  }

  fs::path source() const { return testdata() / "adapters" / GetParam(); }
  std::string file(const std::string& name) const { return out_.file(name + ".qsf"); }

  EnginePtr open(int rows_per_pass) const {
    QSFConfig* config = qsf_config_default();
    qsf_config_set_kv_type(config, QSF_KV_F32);
    qsf_config_set_rows_per_pass(config, rows_per_pass);
    qsf_config_set_threads(config, 2);
    qsf_config_add_adapter(config, file("adapter").c_str(), nullptr);
    qsf_config_set_adapter(config, 1, 1.0F);
    QSFEngine* engine = nullptr;
    qsf_error error = {};
    EXPECT_EQ(qsf_engine_open(file("model").c_str(), config, &engine, &error), QSF_OK)
        << error.message;
    qsf_config_free(config);
    return EnginePtr(engine);
  }

  TemporaryFolder out_;
};

TEST_P(AdapterLogitsTest, MatchPeft) {
  const Golden golden(source() / "expected.bin");
  ASSERT_FALSE(golden.cases.empty());
  for (const int rows : {0, 3}) {
    const EnginePtr engine = open(rows);
    ASSERT_NE(engine, nullptr);
    for (const Golden::Case& item : golden.cases) {
      const double error = largest_error(run_case(engine.get(), golden, item), item.rows);
      EXPECT_LE(error, kTolerance * golden.largest) << "prompt of " << item.prompt_length;
      RecordProperty("relative_error_" + std::to_string(item.prompt_length),
                     std::to_string(error / golden.largest));
    }
  }
}

TEST_P(AdapterLogitsTest, TheBaseIsOffByFar) {
  const Golden golden(source() / "expected.bin");
  const EnginePtr base = open_engine(file("model"), QSF_KV_F32, 0, 2);
  ASSERT_NE(base, nullptr);
  for (const Golden::Case& item : golden.cases) {
    EXPECT_GT(largest_error(run_case(base.get(), golden, item), item.rows),
              kFaultFactor * kTolerance * golden.largest);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdapterLogitsTest, testing::ValuesIn(golden_adapters()),
                         [](const auto& name) { return name.param; });

}  // namespace
