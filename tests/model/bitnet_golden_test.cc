// SPDX-License-Identifier: MIT
//
// Holds BitNet models, from a Hugging Face folder to logits, to those of transformers, whichever
// way the weights are stored; and what can go wrong with them to a hundred tolerances at least. The
// models and why logits can be compared so closely: scripts/golden/make_bitnet_golden.py.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/model/testing/golden_model.h"

namespace {

using namespace qsf_tools;
namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-4;  // of the largest logit
// Attention of prompts on matrix units rounds to bf16, which turns values near the border of a
// code.
constexpr double kMatrixUnitTolerance = 0.05;
constexpr double kFaultFactor = 100;

fs::path bitnet_folder() {
  return fs::path(QSF_SOURCE_DIR) / "testdata/bitnet";
}

bool has_matrix_unit(QSFEngine* engine) {
  qsf_engine_stats stats = {};
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(qsf_engine_get_stats(engine, &stats, nullptr), QSF_OK);
  return std::string(stats.instruction_set) == "amx";
}

class BitnetGoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    scratch_ = fs::temp_directory_path() / ("qsf_bitnet_" + std::to_string(::getpid()));
    fs::create_directories(scratch_);
  }
  void TearDown() override { fs::remove_all(scratch_); }

  // Converts a folder or a GGUF file.
  fs::path convert(const fs::path& source, const std::string& type) {
    const fs::path out = scratch_ / (source.filename().string() + "-" + type + ".qsf");
    const std::string command = std::string(QSF_BIN_DIR) + "/qsf-convert --quiet --quant-type " +
                                type + " " + source.string() + " " + out.string() + " 2>/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return out;
  }

  // A copy of a model whose configuration is changed.
  fs::path changed_copy(const char* model, const json& change) {
    const fs::path copy = scratch_ / "copy";
    fs::remove_all(copy);
    fs::copy(bitnet_folder() / model, copy);
    json config = json::parse(read_file(copy / "config.json"));
    config.merge_patch(change);
    std::ofstream(copy / "config.json") << config;
    return copy;
  }

  // Of all cases, in units of the largest logit; `bound` becomes what it may be.
  double error_of(const fs::path& model, const Golden& golden, bool exact = false,
                  double* bound = nullptr) {
    const EnginePtr engine = open_engine(model, QSF_KV_F32, 0, 2, exact);
    if (engine == nullptr) return HUGE_VAL;
    if (bound != nullptr) {
      *bound = !exact && has_matrix_unit(engine.get()) ? kMatrixUnitTolerance : kTolerance;
    }
    double worst = 0;
    for (const Golden::Case& item : golden.cases) {
      worst = std::max(worst, largest_error(run_case(engine.get(), golden, item), item.rows));
    }
    return worst / golden.largest;
  }

  fs::path scratch_;
};

// Records errors in tolerances. Kept as ternary rows, products are sums of whole numbers; as f32
// they are not, and --exact may change neither.
TEST_F(BitnetGoldenTest, LogitsAreThoseOfTransformers) {
  for (const char* model : {"wide", "packed", "masters", "bitnet_1bit", "bitlinear"}) {
    const Golden golden(bitnet_folder() / model / "expected.bin");
    ASSERT_EQ(golden.cases.size(), 4U) << model;
    for (const char* type : {"keep", "f32"}) {
      const fs::path file = convert(bitnet_folder() / model, type);
      for (const bool exact : {false, true}) {
        double bound = 0;
        const double error = error_of(file, golden, exact, &bound);
        EXPECT_LE(error, bound) << model << ' ' << type << (exact ? ", exact" : "");
        RecordProperty(std::string(model) + "_" + type + (exact ? "_exact" : ""),
                       std::to_string(error / kTolerance));
      }
    }
  }
}

// The same weights as packed codes and as the numbers they were rounded from make the same bytes.
TEST_F(BitnetGoldenTest, PackedCodesAndMastersMakeOneFile) {
  EXPECT_EQ(read_file(convert(bitnet_folder() / "packed", "keep")),
            read_file(convert(bitnet_folder() / "masters", "keep")));
}

TEST_F(BitnetGoldenTest, NumbersDoNotDependOnPassesOrThreads) {
  const Golden golden(bitnet_folder() / "wide/expected.bin");
  const fs::path model = convert(bitnet_folder() / "wide", "keep");
  const Golden::Case& item = golden.cases.back();
  const auto whole = run_case(open_engine(model, QSF_KV_F32, 0, 1).get(), golden, item);
  for (const int rows_per_pass : {0, 7}) {
    const EnginePtr engine = open_engine(model, QSF_KV_F32, rows_per_pass, 2);
    EXPECT_EQ(run_case(engine.get(), golden, item), whole) << rows_per_pass << " rows a pass";
    EXPECT_EQ(run_case(engine.get(), golden, item, 1), whole) << "token by token";
  }
}

// The same weights out of GGUF files are the same logits, bit for bit. (Two of the six layouts
// cannot be told from a third, and gguf_model_test holds them to it; here each would need to be
// named.)
TEST_F(BitnetGoldenTest, GgufFilesGiveTheSameLogits) {
  const Golden golden(bitnet_folder() / "wide/expected.bin");
  const Golden::Case& item = golden.cases.back();
  const auto logits = [&](const fs::path& source) {
    const fs::path model = convert(source, "ternary-row");
    return run_case(open_engine(model, QSF_KV_F32, 0, 2).get(), golden, item);
  };
  const auto expected = logits(bitnet_folder() / "wide");
  for (const char* name : {"i2s_a", "tq1_0", "tq2_0", "iq2_bn"}) {
    const fs::path folder = bitnet_folder().parent_path() / "gguf/bitnet";
    EXPECT_EQ(logits(folder / (std::string(name) + ".gguf")), expected) << name;
  }
}

// What an importer can get wrong is heard by far.
TEST_F(BitnetGoldenTest, FaultsAreHeard) {
  const struct {
    const char* model;
    json change;
  } faults[] = {
      {"packed", {{"quantization_config", {{"linear_class", "bitlinear"}}}}},
      {"packed", {{"hidden_act", "silu"}}},
      {"packed", {{"hidden_act", "relu"}}},
      {"packed", {{"rms_norm_eps", 0.05}}},
      {"packed", {{"rope_theta", 10000.0}}},
      {"masters", {{"quantization_config", nullptr}}},  // neither weights nor rows are rounded
      {"bitnet_1bit", {{"hidden_act", "relu2"}}},
      {"bitlinear",
       {{"quantization_config",
         {{"linear_class", "autobitlinear"}, {"quantization_mode", "offline"}}}}},
  };
  for (const auto& fault : faults) {
    const Golden golden(bitnet_folder() / fault.model / "expected.bin");
    const double error = error_of(convert(changed_copy(fault.model, fault.change), "keep"), golden);
    EXPECT_GT(error, kFaultFactor * kTolerance) << fault.model << ' ' << fault.change;
  }
}

}  // namespace
