// SPDX-License-Identifier: MIT
//
// Runs qsf-inspect: its reports, its exit codes, and that --verify finds damage wherever it is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/sanitizer.h"
#include "format/testing/checksum_repair.h"
#include "format/testing/small_models.h"
#include "import/testing/ternary_llama.h"
#include "io/atomic_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code;
  std::string output;  // both streams
};

Outcome run(const std::string& arguments) {
  const std::string command = std::string(QSF_BIN_DIR) + "/qsf-inspect " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Outcome outcome{-1, {}};
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) outcome.output += buffer;
  outcome.code = WEXITSTATUS(::pclose(pipe));
  return outcome;
}

class QsfInspectTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("qsf_inspect_test." + std::to_string(::getpid()) + ".qsf"))
                .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::vector<std::byte>& bytes) const {
    ASSERT_TRUE(write_file(path_, bytes).ok());
  }
  std::string path_;
};

TEST_F(QsfInspectTest, ReportsGgufFiles) {
  const std::string gguf = QSF_SOURCE_DIR "/testdata/gguf/qwen3.gguf";
  const Outcome text = run("--tensors " + gguf);
  EXPECT_EQ(text.code, 0) << text.output;
  for (const char* part :
       {"GGUF version 3", "architecture      qwen3", "matrices of BF16 kept bit for bit as bf16",
        "qwen3.block_count = ", "blk.0.attn_q_norm.weight [14]"}) {
    EXPECT_THAT(text.output, HasSubstr(part));
  }
  const Outcome json = run("--json " + gguf);
  EXPECT_EQ(json.code, 0);
  const auto report = nlohmann::json::parse(json.output, nullptr, false);
  ASSERT_TRUE(report.is_object()) << json.output;
  EXPECT_EQ(report["version"], 3);
  EXPECT_EQ(report["keys"]["tokenizer.ggml.bos_token_id"], 1);
  EXPECT_GT(report["tensors"].size(), 20U);
  EXPECT_EQ(report["conversion"]["possible"], true);
  EXPECT_EQ(report["conversion"]["matrices"][0]["kept_as"], "bf16");
  EXPECT_EQ(run("--verify " + gguf).code, 2);
  EXPECT_THAT(run(QSF_SOURCE_DIR "/testdata/gguf/bitnet/i2s_a.gguf").output,
              HasSubstr("I2_S kept bit for bit as ternary-row, for the disk as ternary-base3\n"));
}

TEST_F(QsfInspectTest, NotesWhatAGgufFileDoesNotSay) {
  std::filesystem::remove(path_);
  path_ += ".gguf";
  const std::string gguf = testing_support::ternary_llama();
  write({as_bytes(std::string_view(gguf)).begin(), as_bytes(std::string_view(gguf)).end()});
  EXPECT_THAT(run(path_).output, HasSubstr("note              ternary, and the file does not say"));
  const auto report = nlohmann::json::parse(run("--json " + path_).output, nullptr, false);
  ASSERT_TRUE(report.is_object());
  ASSERT_EQ(report["conversion"]["notes"].size(), 1U);
  EXPECT_THAT(report["conversion"]["notes"][0].get<std::string>(), HasSubstr("--int8-rows"));
  EXPECT_THAT(run(QSF_SOURCE_DIR "/testdata/gguf/bitnet/tq2_0.gguf").output,
              Not(HasSubstr("note  ")));
}

// A file of weights that were kept says what it holds, in text and as JSON.
TEST_F(QsfInspectTest, ReportsWhichTypesAFileHolds) {
  const std::string convert = QSF_BIN_DIR "/qsf-convert --quiet " QSF_SOURCE_DIR
                                          "/testdata/gguf/bitnet/tq1_0.gguf " +
                              path_ + " 2>&1";
  ASSERT_EQ(std::system(convert.c_str()), 0);
  const Outcome text = run(path_);
  EXPECT_THAT(text.output,
              HasSubstr("weights           ternary-base3 95.7 %, f16 4.3 %; natively ternary\n"));
  EXPECT_THAT(text.output, HasSubstr("activations       rounded to 8 bits by row"));
  const auto report = nlohmann::json::parse(run("--json " + path_).output, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["model"]["weight_type"], "mixed");
  ASSERT_EQ(report["weight_types"].size(), 2U);
  EXPECT_EQ(report["weight_types"][0]["type"], "ternary-base3");
  EXPECT_EQ(report["weight_types"][0]["tensors"], 7);
  EXPECT_EQ(report["weight_types"][1]["type"], "f16");
}

// Converts a golden adapter for its base.
class QsfInspectAdapterTest : public QsfInspectTest {
 protected:
  void SetUp() override {
    QsfInspectTest::SetUp();
    base_ = path_ + ".base";
    const std::string golden = QSF_SOURCE_DIR "/testdata/";
    const std::string convert = QSF_BIN_DIR "/qsf-convert --quiet ";
    ASSERT_EQ(std::system((convert + "--quant-type f32 " + golden + "golden/llama_gqa_tied " +
                           base_ + " 2> /dev/null")
                              .c_str()),
              0);
    ASSERT_EQ(std::system((convert + golden + "adapters/llama_patterns " + path_ + " --base " +
                           base_ + " 2>&1")
                              .c_str()),
              0);
  }
  void TearDown() override {
    std::filesystem::remove(base_);
    QsfInspectTest::TearDown();
  }
  std::string base_;
};

TEST_F(QsfInspectAdapterTest, ReportsAdapters) {
  const Outcome text = run("--tensors --verify " + path_);
  EXPECT_EQ(text.code, 0) << text.output;
  for (const char* part :
       {"adapter           llama_patterns\n", "architecture      llama\n",
        "base              the model with fingerprint ",
        "attn_q                      3            3", "attn_v                      3            2",
        "layer 1, attn_v: [16, 48], rank 2, scale ",
        "verified: every checksum and every value is good"}) {
    EXPECT_THAT(text.output, HasSubstr(part));
  }
  const auto report =
      nlohmann::json::parse(run("--json --tensors " + path_).output, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["adapter"]["pairs"], 6);
  EXPECT_EQ(report["adapter"]["base_fingerprint"].get<std::string>().size(), 16U);
  EXPECT_EQ(report["pairs"][0]["kind"], "attn_q");
  EXPECT_EQ(report["pairs"][0]["rank"], 3);
  EXPECT_EQ(run("--plan " + path_).code, 2);
  EXPECT_EQ(run("--dump-tensor final/head " + path_).code, 2);
}

TEST_F(QsfInspectAdapterTest, VerifyFindsDamage) {
  std::filesystem::resize_file(base_, 0);
  std::filesystem::copy_file(path_, base_, std::filesystem::copy_options::overwrite_existing);
  std::fstream file(base_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-80, std::ios::end);
  file.put('\x55');
  file.close();
  EXPECT_EQ(run(base_).code, 0);
  const Outcome verified = run("--verify " + base_);
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.output, HasSubstr("layer 2, attn_v: checksum"));
  std::filesystem::resize_file(base_, std::filesystem::file_size(base_) - 1);
  EXPECT_EQ(run(base_).code, 1);
}

TEST_F(QsfInspectTest, ReportsHowTextsAreEmbedded) {
  const auto converted = [this](const std::string& name) {
    const std::string convert = QSF_BIN_DIR "/qsf-convert --quiet " QSF_SOURCE_DIR
                                            "/testdata/embedding/" +
                                name + " " + path_ + " 2>&1";
    std::filesystem::remove(path_);
    EXPECT_EQ(std::system(convert.c_str()), 0) << name;
    return run(path_).output;
  };
  EXPECT_THAT(converted("qwen3_embedding"), HasSubstr("embeddings        pooling last\n"));
  EXPECT_THAT(converted("embedding_gemma.gguf"),
              HasSubstr("embeddings        pooling mean; cannot generate\n"));
  const auto report = nlohmann::json::parse(run("--json " + path_).output, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["model"]["pooling"], "mean");
  EXPECT_EQ(report["model"]["embeds_only"], true);
}

TEST_F(QsfInspectTest, ReportsBlocksForFurtherTokens) {
  const std::string convert = QSF_BIN_DIR "/qsf-convert --quiet --mtp " QSF_SOURCE_DIR
                                          "/testdata/mtp/deepseek_v3 " +
                              path_ + " 2>&1";
  EXPECT_EQ(std::system(convert.c_str()), 0);
  EXPECT_THAT(run(path_).output, HasSubstr("multi-token       a block that drafts for its model"));
  const auto report = nlohmann::json::parse(run("--json " + path_).output, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["model"]["mtp_block"], true);
}

// What cannot be converted is still described, with the reason.
TEST_F(QsfInspectTest, ReportsGgufFilesThatAreNoModelsOrDamaged) {
  std::filesystem::remove(path_);
  path_ += ".gguf";
  const auto write_text = [&](std::string_view bytes) {
    write({as_bytes(bytes).begin(), as_bytes(bytes).end()});
  };
  using namespace std::string_view_literals;
  constexpr auto kEmpty = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv;
  static_assert(kEmpty.size() == 24);
  write_text(kEmpty);
  const Outcome empty = run("--json " + path_);
  EXPECT_EQ(empty.code, 0) << empty.output;
  const auto report = nlohmann::json::parse(empty.output, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["conversion"]["possible"], false);
  EXPECT_THAT(std::string(report["conversion"]["error"]), HasSubstr("general.architecture"));
  EXPECT_THAT(run(path_).output, HasSubstr("not possible"));
  for (std::size_t n = 0; n < kEmpty.size(); ++n) {
    write_text(kEmpty.substr(0, n));
    const Outcome cut = run(path_);
    EXPECT_EQ(cut.code, 1) << n;
    EXPECT_THAT(cut.output, HasSubstr("GGUF"));
  }
}

TEST_F(QsfInspectTest, ReportsAsTextAndJson) {
  ASSERT_TRUE(write_small_model(testing_support::types_model(), path_).ok());
  const Outcome text = run("--tensors --verify " + path_);
  EXPECT_EQ(text.code, 0) << text.output;
  for (const char* part : {"architecture      llama", "layer 1", "ffn_down", "ternary",
                           "tokenizer         none", "rope.scaling", "verified: every"}) {
    EXPECT_THAT(text.output, HasSubstr(part));
  }
  // Importance of layers has a column where it was measured.
  EXPECT_THAT(text.output, HasSubstr(" bits importance packed"));
  const std::size_t layer = text.output.find("\nlayer 0 ");
  ASSERT_NE(layer, std::string::npos);
  EXPECT_THAT(text.output.substr(layer + 1, text.output.find('\n', layer + 1) - layer - 1),
              HasSubstr("       0.25 "));
  const Outcome json = run("--json --tensors " + path_);
  EXPECT_EQ(json.code, 0);
  const auto report = nlohmann::json::parse(json.output, nullptr, false);
  ASSERT_TRUE(report.is_object()) << json.output;
  EXPECT_EQ(report["model"]["layers"], 2);
  EXPECT_EQ(report["sections"][1]["tensors"][1]["type"], "2bit-sym");
  EXPECT_EQ(report["metadata"]["rope.factor"], 8.0);
  const Outcome dump = run("--dump-tensor layer.0/ffn_norm " + path_);
  EXPECT_EQ(dump.code, 0);
  EXPECT_EQ(std::count(dump.output.begin(), dump.output.end(), ' '), 85);
}

TEST_F(QsfInspectTest, ReportsExperts) {
  ASSERT_TRUE(write_small_model(testing_support::full_model(), path_).ok());
  EXPECT_THAT(run(path_).output, HasSubstr("experts           2, 1 a token, ffn 70"));
  const auto report = nlohmann::json::parse(run("--json " + path_).output, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["model"]["experts"], 2);
  EXPECT_EQ(report["model"]["experts_used"], 1);
  EXPECT_EQ(report["model"]["expert_ffn"], 70);
}

// The plan is the library's: regions add up, and a budget is kept or refused.
TEST_F(QsfInspectTest, PlansAsTextAndJson) {
  const std::string model = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";
  EXPECT_THAT(run(model).output, Not(HasSubstr("importance")));
  const Outcome text = run("--plan --ram-budget 500 --max-seq-len 200 " + model);
  EXPECT_EQ(text.code, 0) << text.output;
  for (const char* part :
       {"budget            500.0 MB", "context           200 positions", "keys and values   f16\n",
        "resident; ", "read per pass     0.0 MB", "kv_cache", "in all"}) {
    EXPECT_THAT(text.output, HasSubstr(part));
  }
  const Outcome json = run("--plan --json --io pread --kv-type 8 --threads 3 " + model);
  EXPECT_EQ(json.code, 0);
  const auto plan = nlohmann::json::parse(json.output, nullptr, false);
  ASSERT_TRUE(plan.is_object()) << json.output;
  EXPECT_EQ(plan["budget_named"], false);
  EXPECT_EQ(plan["everything_resident"], true);
  EXPECT_EQ(plan["rows_per_pass"], 512);
  EXPECT_GT(plan["tokens_per_second"], 1.0);
  EXPECT_TRUE(plan["disk_bytes_per_second"].is_null());  // nothing is streamed
  EXPECT_THAT(plan["mode"].get<std::string>(), HasSubstr("pread"));
  std::uint64_t sum = 0;
  for (const auto& region : plan["regions"]) {
    sum += region["bytes"].get<std::uint64_t>();
    EXPECT_FALSE(region["reason"].get<std::string>().empty());
    if (region["name"] == "thread_stacks") {
      EXPECT_THAT(region["reason"].get<std::string>(), HasSubstr("2 workers"));
    }
  }
  EXPECT_EQ(plan["kv_type_k"], "8");
  EXPECT_EQ(plan["kv_type_v"], "8");
  const auto planned = plan["planned_bytes"].get<std::uint64_t>();
  EXPECT_GE(planned, sum);
  EXPECT_LT(planned, sum + 64 * plan["regions"].size());
  const Outcome many = run("--plan --sequences 3 --kv-positions 1100 --rows-per-pass 2 " + model);
  EXPECT_EQ(many.code, 0) << many.output;
  EXPECT_THAT(many.output, HasSubstr("sequences         3, 18 KV pages of 64 positions for all\n"));
  EXPECT_THAT(many.output, HasSubstr("delay             1 passes at most"));
  EXPECT_THAT(many.output, HasSubstr("1152 positions for 3 sequences of up to 1024 positions"));
  const Outcome refused = run("--plan --ram-budget 1 " + model);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("a budget of 1 MB is too small"));
  EXPECT_EQ(run("--ram-budget 100 " + model).code, 2);
  EXPECT_EQ(run("--plan --ram-budget 0 " + model).code, 2);
}

// 64 columns, 2 KV heads, 6 layers, 1,024 positions: a key in 2 bits has 16 bytes of codes and two
// scales, one in 8 bits 64 and one, f16 128.
TEST_F(QsfInspectTest, PlansCountKeysAndValuesByTheirOwnTypes) {
  const std::string model = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";
  const struct {
    const char* options;
    const char* keys;
    const char* values;
    std::uint64_t bytes;  // of a key and its value
  } kCases[] = {{"--kv-type 2", "2", "2", 20 + 20},
                {"--kv-type-v 2", "f16", "2", 128 + 20},
                {"--kv-type-k 8 --kv-type 2", "8", "2", 66 + 20},
                {"--kv-type-k 8 --kv-type-v f16 --kv-type 4", "8", "f16", 66 + 128}};
  for (const auto& [options, keys, values, bytes] : kCases) {
    const Outcome json = run(std::string("--plan --json ") + options + " " + model);
    ASSERT_EQ(json.code, 0) << json.output;
    const auto plan = nlohmann::json::parse(json.output, nullptr, false);
    EXPECT_EQ(plan["kv_type_k"], keys);
    EXPECT_EQ(plan["kv_type_v"], values);
    for (const auto& region : plan["regions"]) {
      if (region["name"] == "kv_cache") {
        EXPECT_EQ(region["bytes"], bytes * 1024 * 2 * 6);
      }
    }
    const Outcome text = run(std::string("--plan ") + options + " " + model);
    EXPECT_THAT(text.output,
                HasSubstr(std::string("keys and values   ") +
                          (std::string(keys) == values
                               ? keys + std::string("\n")
                               : std::string(keys) + " for keys, " + values + " for values\n")));
  }
  EXPECT_EQ(run("--plan --kv-type-k 3 " + model).code, 2);
  EXPECT_EQ(run("--kv-type-v 8 " + model).code, 2);
}

// 6 layers, 2 KV heads, 1,024 positions; chunks of 128.
TEST_F(QsfInspectTest, PlansCountWhatAttentionAndWindowsTake) {
  const std::string model = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";
  const auto region_bytes = [&](const std::string& options, const char* name) -> std::uint64_t {
    const Outcome json = run("--plan --json " + options + " " + model);
    EXPECT_EQ(json.code, 0) << json.output;
    const auto plan = nlohmann::json::parse(json.output, nullptr, false);
    for (const auto& region : plan["regions"]) {
      if (region["name"] == name) return region["bytes"];
    }
    return 0;
  };
  const std::string sizes = "--h2o-local 16 --h2o-heavy 16 --h2o-sinks 2 --h2o-chunk ";
  EXPECT_EQ(region_bytes("", "sparse_prefill_state"), 0U);
  const std::uint64_t state =
      region_bytes("--attention h2o " + sizes + "128", "sparse_prefill_state");
  EXPECT_GE(state, 6U * 2 * 1024 * 2);  // scores alone
  EXPECT_GT(region_bytes("--attention h2o " + sizes + "256", "sparse_prefill_state"), state);
  EXPECT_LT(region_bytes("--kv-policy window --kv-window 64 --rows-per-pass 16", "kv_cache"),
            region_bytes("", "kv_cache"));
  const Outcome needs_sparse_prefill_state = run("--plan --h2o-chunk 128 " + model);
  EXPECT_EQ(needs_sparse_prefill_state.code, 2);
  EXPECT_THAT(needs_sparse_prefill_state.output, HasSubstr("needs --attention h2o"));
  const Outcome needs_plan = run("--attention h2o " + model);
  EXPECT_EQ(needs_plan.code, 2);
  EXPECT_THAT(needs_plan.output, HasSubstr("need --plan"));
}

// A plan measures the memory, and what it takes for that is inside the budget as well: the peak is
// the system's own count, whatever the machine has.
TEST_F(QsfInspectTest, APlanKeepsWithinTheBudgetThatItPlans) {
#ifdef QSF_WITH_SANITIZER
  GTEST_SKIP() << "the sanitizer's own memory counts";
#else
  for (const char* budget : {"60", "100", "150"}) {
    const pid_t child = fork();
    if (child == 0) {
      static_cast<void>(!freopen(path_.c_str(), "w", stdout));
      execl(QSF_BIN_DIR "/qsf-inspect", "qsf-inspect", "--plan", "--json", "--ram-budget", budget,
            QSF_SOURCE_DIR "/models/tales-5M-4bit.qsf", nullptr);
      _exit(127);
    }
    int status = 0;
    rusage usage = {};
    ASSERT_EQ(wait4(child, &status, 0, &usage), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_LE(std::uint64_t{1024} * static_cast<std::uint64_t>(usage.ru_maxrss),
              std::stoull(budget) * 1'000'000);
    std::ifstream file(path_);
    const auto plan = nlohmann::json::parse(file, nullptr, false);
    ASSERT_TRUE(plan.is_object());
    EXPECT_GT(plan["memory_bytes_per_second"], 1e8) << "nothing was measured";
  }
#endif
}

TEST_F(QsfInspectTest, ExitCodesTellMisuseFromFailure) {
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_EQ(run("--version").code, 0);
  EXPECT_EQ(run("").code, 2);
  EXPECT_EQ(run("--no-such-option x").code, 2);
  EXPECT_EQ(run("/no/such/file.qsf").code, 1);
  write(std::vector<std::byte>(5000));
  const Outcome outcome = run(path_);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("not a QSF file"));
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1);
  ASSERT_TRUE(write_small_model(testing_support::minimal_model(), path_).ok());
  EXPECT_EQ(run("--dump-tensor final/head " + path_).code, 1);
}

TEST_F(QsfInspectTest, VerifyFindsEveryKindOfDamage) {
  const auto intact = small_model_bytes(testing_support::compressed_model()).value();
  write(intact);
  ASSERT_EQ(run("--verify " + path_).code, 0);
  const QsfReader reader = QsfReader::open(path_).value();
  const SectionDirectory& layer = reader.layer(1);
  const TileInfo& tile = layer.tiles.back();
  const struct {
    std::uint64_t offset;
    const char* message;
  } damages[] = {
      {tile.file_offset, "layer 1: tile"},
      {tile.file_offset + tile.stored_bytes, "padding"},
      {200, "padding"},
      {reader.find_section("layer_index")->file_offset + 4000, "padding"},
  };
  for (const auto& damage : damages) {
    std::vector<std::byte> bytes = intact;
    bytes[static_cast<std::size_t>(damage.offset)] ^= std::byte{0x10};
    write(bytes);
    const Outcome outcome = run("--json --verify " + path_);
    EXPECT_EQ(outcome.code, 1) << damage.message;
    EXPECT_THAT(outcome.output, HasSubstr(damage.message));
  }
}

// Weights that are not finite are damage although every checksum is right.
TEST_F(QsfInspectTest, VerifyFindsWeightsThatAreNotFinite) {
  std::vector<std::byte> bytes = small_model_bytes(testing_support::minimal_model()).value();
  write(bytes);
  const QsfReader reader = QsfReader::open(path_).value();
  const TileInfo& tile = reader.embedding().tiles[0];
  const auto at = static_cast<std::size_t>(tile.file_offset);
  store_le(bytes, at, std::uint16_t{0x7C00});  // the first scale becomes infinite
  const std::size_t crc_at = static_cast<std::size_t>(reader.embedding().file_offset) +
                             kTensorHeaderBytes + 4 + tile_at::kCrc;
  store_le(bytes, crc_at, crc32(ByteSpan(bytes).subspan(at, tile.stored_bytes)));
  testing_support::ChecksumRepair(reader, bytes).repair(bytes);
  write(bytes);
  EXPECT_EQ(run(path_).code, 0);
  const Outcome outcome = run("--verify " + path_);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("embedding: tile 0 at offset 8192: token_embedding"));
}

}  // namespace
}  // namespace qsf
