// SPDX-License-Identifier: MIT
//
// Calibrations of mixtures of experts as a user runs them: importance of every expert's columns,
// target sizes, error compensation beside them, and experts that no token chose.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "format/qsf_reader.h"
#include "import/testing/hf_folder.h"
#include "tools/testing/convert_tool.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

constexpr int kExperts = 4;

constexpr const char* kMixtralConfig = R"({"architectures":["MixtralForCausalLM"],
  "hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
  "num_key_value_heads":2,"vocab_size":600,"max_position_embeddings":64,"rms_norm_eps":1e-5,
  "num_local_experts":4,"num_experts_per_tok":2,
  "hidden_act":"silu","tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":2})";

TestTensors mixture(std::uint64_t seed) {
  Rng rng(seed);
  TestTensors t;
  t["model.embed_tokens.weight"] = random_tensor({600, 64}, rng);
  t["model.norm.weight"] = random_tensor({64}, rng);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    t[at + "input_layernorm.weight"] = random_tensor({64}, rng);
    t[at + "post_attention_layernorm.weight"] = random_tensor({64}, rng);
    t[at + "self_attn.q_proj.weight"] = random_tensor({64, 64}, rng);
    t[at + "self_attn.k_proj.weight"] = random_tensor({32, 64}, rng);
    t[at + "self_attn.v_proj.weight"] = random_tensor({32, 64}, rng);
    t[at + "self_attn.o_proj.weight"] = random_tensor({64, 64}, rng);
    t[at + "block_sparse_moe.gate.weight"] = random_tensor({kExperts, 64}, rng);
    for (int e = 0; e < kExperts; ++e) {
      const std::string expert = at + "block_sparse_moe.experts." + std::to_string(e) + ".";
      t[expert + "w1.weight"] = random_tensor({128, 64}, rng);
      t[expert + "w3.weight"] = random_tensor({128, 64}, rng);
      t[expert + "w2.weight"] = random_tensor({64, 128}, rng);
    }
  }
  return t;
}

class QsfConvertExpertsTest : public testing::Test {
 protected:
  void write_mixture(std::uint64_t seed) {
    write_model(model_, kMixtralConfig, mixture(seed));
    std::filesystem::copy(QSF_SOURCE_DIR "/testdata/tokenizer/llama2/tokenizer.json",
                          model_.file("tokenizer.json"),
                          std::filesystem::copy_options::overwrite_existing);
  }
  Outcome from_text(std::vector<std::string> more, const std::string& out) {
    more.insert(more.begin(), {"--calibration", kTale, "--calibration-context", "32",
                               "--calibration-tokens", "128"});
    return from(std::move(more), out);
  }
  Outcome from_saved(std::vector<std::string> more, const std::string& out) {
    more.insert(more.begin(), {"--calibration", out_.file("saved")});
    return from(std::move(more), out);
  }
  Outcome from(std::vector<std::string> more, const std::string& out) {
    more.push_back(model_.path());
    more.push_back(out_.file(out));
    return run(std::move(more));
  }
  std::string bytes_of(const std::string& name) const { return out_.read(name); }

  TemporaryFolder model_;
  TemporaryFolder out_;
};

TEST_F(QsfConvertExpertsTest, RoundsByTheColumnsOfEveryExpert) {
  write_mixture(9);
  const Outcome first = from_text(
      {"--quant-type", "2bit", "--calibration-out", out_.file("saved"), "--verbose"}, "a.qsf");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, Not(HasSubstr("no token chose")));
  EXPECT_THAT(first.out, HasSubstr("experts used"));
  EXPECT_THAT(first.out, HasSubstr("4 of   4"));
  EXPECT_THAT(first.out, HasSubstr("experts: a tenth of them in memory serves "));
  const std::vector<float> hits = QsfReader::open(out_.file("a.qsf"))->spec().expert_hits;
  ASSERT_EQ(hits.size(), 16U);
  EXPECT_GT(hits.back(), 0.9F);  // where all are in memory
  const Outcome again = from_saved({"--quant-type", "2bit", "--threads", "1"}, "b.qsf");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(bytes_of("b.qsf"), bytes_of("a.qsf"));
  ASSERT_EQ(from({"--quant-type", "2bit"}, "plain.qsf").code, 0);
  EXPECT_NE(bytes_of("plain.qsf"), bytes_of("a.qsf"));
  EXPECT_TRUE(QsfReader::open(out_.file("plain.qsf"))->spec().expert_hits.empty());
  const Outcome compensated = from_text({"--quant-type", "2bit", "--gptq"}, "c.qsf");
  ASSERT_EQ(compensated.code, 0) << compensated.err;
  EXPECT_NE(bytes_of("c.qsf"), bytes_of("a.qsf"));
}

TEST_F(QsfConvertExpertsTest, ChoosesTypesForASize) {
  write_mixture(9);
  const Outcome first =
      from_text({"--target-size", "250k", "--calibration-out", out_.file("saved")}, "a.qsf");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_LE(bytes_of("a.qsf").size(), 250'000U);
  EXPECT_GE(bytes_of("a.qsf").size(), 200'000U);
  EXPECT_THAT(first.out, HasSubstr("expert_down"));
  EXPECT_THAT(first.out, Not(HasSubstr("router")));
  const Outcome by_error = from({"--target-size", "250k"}, "b.qsf");
  ASSERT_EQ(by_error.code, 0) << by_error.err;
  EXPECT_LE(bytes_of("b.qsf").size(), 250'000U);
  const Outcome small = from_saved({"--target-size", "20k"}, "c.qsf");
  expect_failure(small, 1, "--target-size: got 20000 bytes, expected at least ");
}

TEST_F(QsfConvertExpertsTest, TellsOfExpertsThatNoTokenChose) {
  write_mixture(9);
  // A window of two tokens has one row, which takes two experts of each layer.
  const Outcome outcome = from({"--calibration", kTale, "--calibration-context", "2",
                                "--calibration-tokens", "2", "--quant-type", "2bit"},
                               "a.qsf");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no token chose 4 of 8 experts"));
}

TEST_F(QsfConvertExpertsTest, RefusesTheCalibrationOfAnotherMixture) {
  write_mixture(9);
  ASSERT_EQ(
      from_text({"--quant-type", "2bit", "--calibration-out", out_.file("saved")}, "a.qsf").code,
      0);
  write_mixture(10);
  expect_failure(from_saved({"--quant-type", "2bit"}, "b.qsf"), 1, "made with other weights");
}

}  // namespace
}  // namespace qsf
