// SPDX-License-Identifier: MIT
//
// Holds adapters, from a PEFT folder to logits, to the logits of transformers with peft.
//
// Every folder of testdata/adapters is written as an adapter file for its converted base and chosen
// for sessions: prompts and decode steps have the logits of peft.

#include <gtest/gtest.h>
#include <qsf/qsf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "format/adapter_writer.h"
#include "format/qsf_reader.h"
#include "import/hf/peft_adapter.h"
#include "tests/model/testing/golden_model.h"

namespace {

using namespace qsf_tools;
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
    scratch_ = fs::temp_directory_path() /
               ("qsf_adapter_" + GetParam() + "_" + std::to_string(::getpid()));
    fs::create_directories(scratch_);
    const std::string config = read_file(source() / "adapter_config.json");
    base_ = nlohmann::json::parse(config).at("base_model_name_or_path");
    model_ = scratch_ / "model.qsf";
    const std::string command = std::string(QSF_BIN_DIR) +
                                "/qsf-convert --quiet --quant-type f32 " +
                                (testdata() / "golden" / base_).string() + " " + model_.string();
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const qsf::QsfReader reader = qsf::QsfReader::open(model_).value();
    const auto adapter = qsf::PeftAdapter::open(source(), reader.spec());
    ASSERT_TRUE(adapter.has_value()) << adapter.error().message();
    const qsf::Status written =
        qsf::write_adapter_file(scratch_ / "adapter.qsf", adapter->spec(), *adapter);
    ASSERT_TRUE(written.ok()) << written.message();
  }
  void TearDown() override { fs::remove_all(scratch_); }

  fs::path source() const { return testdata() / "adapters" / GetParam(); }

  EnginePtr open(int rows_per_pass) const {
    QSFConfig* config = qsf_config_default();
    qsf_config_set_kv_type(config, QSF_KV_F32);
    qsf_config_set_rows_per_pass(config, rows_per_pass);
    qsf_config_set_threads(config, 2);
    qsf_config_add_adapter(config, (scratch_ / "adapter.qsf").c_str(), "golden");
    qsf_config_set_adapter(config, 1, 1.0F);
    QSFEngine* engine = nullptr;
    qsf_error error = {};
    EXPECT_EQ(qsf_engine_open(model_.c_str(), config, &engine, &error), QSF_OK) << error.message;
    qsf_config_free(config);
    return EnginePtr(engine);
  }

  fs::path scratch_, model_;
  std::string base_;
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
  const EnginePtr base = open_engine(model_, QSF_KV_F32, 0, 2);
  ASSERT_NE(base, nullptr);
  for (const Golden::Case& item : golden.cases) {
    EXPECT_GT(largest_error(run_case(base.get(), golden, item), item.rows),
              kFaultFactor * kTolerance * golden.largest);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdapterLogitsTest, testing::ValuesIn(golden_adapters()),
                         [](const auto& name) { return name.param; });

}  // namespace
