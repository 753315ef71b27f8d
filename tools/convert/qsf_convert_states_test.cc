// SPDX-License-Identifier: MIT
//
// Calibrations of a model with states as a user runs them: importance, target sizes, error
// compensation in a budget and a work folder, and files of other models.

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
using namespace testing_support;

constexpr const char* kLfm2Config = R"({"architectures":["Lfm2ForCausalLM"],"model_type":"lfm2",
  "hidden_size":64,"block_dim":64,"conv_dim":64,"conv_dim_out":64,"block_ff_dim":192,
  "block_auto_adjust_ff_dim":true,"block_ffn_dim_multiplier":1.0,"block_multiple_of":64,
  "block_use_swiglu":true,"conv_L_cache":3,"conv_bias":false,"full_attn_idxs":[1],
  "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":600,
  "max_position_embeddings":64,"norm_eps":1e-5,"rope_theta":10000.0,
  "bos_token_id":1,"eos_token_id":2,"pad_token_id":0})";

TestTensors convolutions_and_attention(std::uint64_t seed) {
  TensorShapes shapes = {{"model.embed_tokens.weight", {600, 64}},
                         {"model.embedding_norm.weight", {64}},
                         {"model.layers.0.conv.conv.weight", {64, 1, 3}},
                         {"model.layers.0.conv.in_proj.weight", {192, 64}},
                         {"model.layers.0.conv.out_proj.weight", {64, 64}},
                         {"model.layers.1.self_attn.q_proj.weight", {64, 64}},
                         {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
                         {"model.layers.1.self_attn.v_proj.weight", {32, 64}},
                         {"model.layers.1.self_attn.out_proj.weight", {64, 64}},
                         {"model.layers.1.self_attn.q_layernorm.weight", {16}},
                         {"model.layers.1.self_attn.k_layernorm.weight", {16}}};
  for (const char* layer : {"0", "1"}) {
    const std::string at = std::string("model.layers.") + layer + ".";
    shapes[at + "operator_norm.weight"] = {64};
    shapes[at + "ffn_norm.weight"] = {64};
    shapes[at + "feed_forward.w1.weight"] = {128, 64};
    shapes[at + "feed_forward.w2.weight"] = {64, 128};
    shapes[at + "feed_forward.w3.weight"] = {128, 64};
  }
  Rng rng(seed);
  return random_tensors(shapes, rng);
}

class QsfConvertStatesTest : public testing::Test {
 protected:
  void SetUp() override { write_states(9); }
  void write_states(std::uint64_t seed) {
    write_model(model_, kLfm2Config, convolutions_and_attention(seed));
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

  TemporaryFolder model_;
  TemporaryFolder out_;
};

TEST_F(QsfConvertStatesTest, RoundsByTheColumnsOfItsInputs) {
  const Outcome first =
      from_text({"--quant-type", "2bit", "--calibration-out", out_.file("saved")}, "a.qsf");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(QsfReader::open(out_.file("a.qsf"))->spec().calibrated);
  const Outcome again = from_saved({"--quant-type", "2bit", "--threads", "1"}, "b.qsf");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(out_.read("b.qsf"), out_.read("a.qsf"));
  ASSERT_EQ(from({"--quant-type", "2bit"}, "plain.qsf").code, 0);
  EXPECT_NE(out_.read("plain.qsf"), out_.read("a.qsf"));
  write_states(10);
  expect_failure(from_saved({"--quant-type", "2bit"}, "c.qsf"), 1, "made with other weights");
}

TEST_F(QsfConvertStatesTest, ChoosesTypesForASize) {
  const Outcome first =
      from_text({"--target-size", "130k", "--calibration-out", out_.file("saved")}, "a.qsf");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_LE(out_.read("a.qsf").size(), 130'000U);
  EXPECT_GE(out_.read("a.qsf").size(), 90'000U);
  EXPECT_THAT(first.out, HasSubstr("mixer_in"));
  EXPECT_THAT(first.out, HasSubstr("mixer_out"));
}

TEST_F(QsfConvertStatesTest, CompensatesInABudgetAndAFolder) {
  const Outcome whole = from_text({"--quant-type", "3bit", "--gptq"}, "a.qsf");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome in_budget = from_text(
      {"--quant-type", "3bit", "--gptq", "--ram-budget", "150", "--work-folder", out_.file("work")},
      "b.qsf");
  ASSERT_EQ(in_budget.code, 0) << in_budget.err;
  EXPECT_EQ(out_.read("b.qsf"), out_.read("a.qsf"));
  ASSERT_EQ(from_text({"--quant-type", "3bit"}, "plain.qsf").code, 0);
  EXPECT_NE(out_.read("plain.qsf"), out_.read("a.qsf"));
}

TEST_F(QsfConvertStatesTest, IsCalibratedRotated) {
  const Outcome rotated =
      from_text({"--quant-type", "3bit", "--rotate", "stream", "--gptq"}, "a.qsf");
  ASSERT_EQ(rotated.code, 0) << rotated.err;
  ASSERT_EQ(from_text({"--quant-type", "3bit", "--rotate", "stream"}, "calibrated.qsf").code, 0);
  ASSERT_EQ(from_text({"--quant-type", "3bit", "--gptq"}, "straight.qsf").code, 0);
  EXPECT_NE(out_.read("a.qsf"), out_.read("calibrated.qsf"));
  EXPECT_NE(out_.read("a.qsf"), out_.read("straight.qsf"));
}

}  // namespace
}  // namespace qsf
