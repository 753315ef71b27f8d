// SPDX-License-Identifier: MIT
//
// qsf-convert --target-size as a user runs it, on a model of random weights that is small enough
// for every probe: sizes, tables, what is saved and used again, what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "format/qsf_reader.h"
#include "import/testing/hf_folder.h"
#include "tools/testing/convert_tool.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

constexpr const char* kLlamaConfig = R"({"architectures":["LlamaForCausalLM"],
  "hidden_size":64,"intermediate_size":256,"num_hidden_layers":2,"num_attention_heads":4,
  "num_key_value_heads":2,"vocab_size":600,"max_position_embeddings":64,"rms_norm_eps":1e-5,
  "hidden_act":"silu","tie_word_embeddings":true,"bos_token_id":1,"eos_token_id":2})";

TestTensors small_tensors() {
  Rng rng(9);
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
    t[at + "mlp.gate_proj.weight"] = random_tensor({256, 64}, rng);
    t[at + "mlp.up_proj.weight"] = random_tensor({256, 64}, rng);
    t[at + "mlp.down_proj.weight"] = random_tensor({64, 256}, rng);
  }
  return t;
}

class QsfConvertTargetTest : public testing::Test {
 protected:
  void SetUp() override {
    write_model(model_, kLlamaConfig, small_tensors());
    std::filesystem::copy(QSF_SOURCE_DIR "/testdata/tokenizer/llama2/tokenizer.json",
                          model_.file("tokenizer.json"));
  }
  // Converts with a small calibration, the model's or what was saved, and `more`.
  Outcome from_text(std::vector<std::string> more, const std::string& out) {
    return run(arguments_of_text(std::move(more), out));
  }
  std::vector<std::string> arguments_of_text(std::vector<std::string> more,
                                             const std::string& out) {
    more.insert(more.begin(), {"--calibration", QSF_SOURCE_DIR "/testdata/tale.txt",
                               "--calibration-context", "32", "--calibration-tokens", "64"});
    return with_files(std::move(more), out);
  }
  Outcome from_saved(std::vector<std::string> more, const std::string& out) {
    more.insert(more.begin(), {"--calibration", in_.file("saved")});
    return finish_with(std::move(more), out);
  }
  Outcome finish_with(std::vector<std::string> more, const std::string& out) {
    return run(with_files(std::move(more), out));
  }
  std::vector<std::string> with_files(std::vector<std::string> more, const std::string& out) {
    more.push_back(model_.path());
    more.push_back(out_.file(out));
    return more;
  }
  std::uint64_t bytes_of(const std::string& name) const {
    return std::filesystem::file_size(out_.file(name));
  }
  TemporaryFolder model_;
  TemporaryFolder in_;
  TemporaryFolder out_;
};

// A file of at most the size; what was measured once serves for other sizes and threads.
TEST_F(QsfConvertTargetTest, ChoosesTypesForASize) {
  const Outcome first =
      from_text({"--target-size", "300k", "--calibration-out", in_.file("saved")}, "a.qsf");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_LE(bytes_of("a.qsf"), 300'000U);
  EXPECT_GE(bytes_of("a.qsf"), 250'000U);
  for (const char* said : {"token_embedding", "ffn_down", "expected divergence", " of 300000"}) {
    EXPECT_THAT(first.out, HasSubstr(said));
  }
  const Outcome one = from_saved({"--target-size", "0.3", "--threads", "1", "--verbose"}, "b.qsf");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("1 ffn_down"));
  const Outcome three = from_saved({"--target-size", "0.3M", "--threads", "3"}, "c.qsf");
  ASSERT_EQ(three.code, 0) << three.err;
  EXPECT_EQ(out_.read("b.qsf"), out_.read("a.qsf"));
  EXPECT_EQ(out_.read("c.qsf"), out_.read("a.qsf"));
  EXPECT_THAT(out_.names(), ElementsAre("a.qsf", "b.qsf", "c.qsf"));
}

TEST_F(QsfConvertTargetTest, GoesTogetherWithOtherOptions) {
  const Outcome outcome = from_text({"--target-size", "300k", "--calibration-out",
                                     in_.file("saved"), "--gptq", "--ram-budget", "200"},
                                    "a.qsf");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LE(bytes_of("a.qsf"), 300'000U);
  const Outcome head =
      from_saved({"--target-size", "300k", "--head-type", "8bit", "--compress", "zstd"}, "b.qsf");
  ASSERT_EQ(head.code, 0) << head.err;
  const auto reader = QsfReader::open(out_.file("b.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_EQ(reader->directories().front().tensors[0].format.type, QuantType::kQ8);
  EXPECT_LE(bytes_of("b.qsf"), 300'000U);
  EXPECT_THAT(head.out, Not(HasSubstr("token_embedding")));
  const Outcome small = from_saved({"--target-size", "50k"}, "c.qsf");
  expect_failure(small, 1, "--target-size: got 50000 bytes, expected at least ");
  EXPECT_THAT(out_.names(), ElementsAre("a.qsf", "b.qsf"));
}

// Probes are kept one by one.
TEST_F(QsfConvertTargetTest, GoesOnWhereItWasKilled) {
  ASSERT_EQ(from_text({"--target-size", "300k"}, "a.qsf").code, 0);
  const std::string work = in_.file("work");
  const TemporaryFolder scratch;
  const pid_t child =
      start(scratch, arguments_of_text({"--target-size", "300k", "--work-folder", work}, "b.qsf"),
            kNoLimit);
  std::uintmax_t first_bytes = 0;
  ASSERT_TRUE(wait_for(child, [&] {
    std::error_code missing;
    const std::uintmax_t n_bytes = std::filesystem::file_size(work + "/calibration", missing);
    if (missing) return false;
    if (first_bytes == 0) first_bytes = n_bytes;
    return n_bytes > first_bytes + 100;
  }));
  kill(child, SIGKILL);
  finish(scratch, child);
  EXPECT_THAT(out_.names(), ElementsAre("a.qsf"));
  const Outcome last = from_text({"--target-size", "300k", "--work-folder", work}, "b.qsf");
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("resuming from"));
  EXPECT_TRUE(out_.read("b.qsf") == out_.read("a.qsf")) << "other bytes";
  EXPECT_FALSE(std::filesystem::exists(work));
}

// Without a text the weights' own errors decide; the same bytes from any number of threads.
TEST_F(QsfConvertTargetTest, ChoosesTypesByTheWeightsErrorsWithoutACalibration) {
  const Outcome first = finish_with({"--target-size", "0.3"}, "a.qsf");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_LE(bytes_of("a.qsf"), 300'000U);
  EXPECT_GE(bytes_of("a.qsf"), 250'000U);
  for (const char* said :
       {"token_embedding", "ffn_down", "relative squared error of the weights", " of 300000"}) {
    EXPECT_THAT(first.out, HasSubstr(said));
  }
  ASSERT_EQ(
      finish_with({"--target-size", "300k", "--threads", "3", "--ram-budget", "200"}, "b.qsf").code,
      0);
  EXPECT_EQ(out_.read("b.qsf"), out_.read("a.qsf"));
  ASSERT_EQ(finish_with({"--target-size", "0.2"}, "c.qsf").code, 0);
  EXPECT_LE(bytes_of("c.qsf"), 200'000U);
}

// A number is MB, as with --ram-budget. A hopeless size is refused before the text is even read,
// and the error names a size that works.
TEST_F(QsfConvertTargetTest, RefusesAHopelessSizeBeforeAnyMeasuring) {
  in_.write("empty", "");
  const std::string work = in_.file("work");
  const Outcome refused = finish_with(
      {"--target-size", "0.05", "--calibration", in_.file("empty"), "--work-folder", work},
      "m.qsf");
  expect_failure(refused, 1, "--target-size: got 50000 bytes, expected at least ");
  EXPECT_FALSE(std::filesystem::exists(work));
  const std::string least = refused.err.substr(refused.err.find("give ") + 5);
  const Outcome enough = finish_with({"--target-size", least.substr(0, least.find(' '))}, "m.qsf");
  EXPECT_EQ(enough.code, 0) << enough.err;
  EXPECT_EQ(finish_with({"--target-size", "500"}, "n.qsf").code, 0);
}

TEST_F(QsfConvertTargetTest, RefusesInputsThatAreNoFiles) {
  const std::string fifo = in_.file("model.gguf");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& input : {fifo, std::string("/dev/null")}) {
    expect_failure(run({input, out_.file("m.qsf")}), 1, "neither a file nor a folder");
  }
}

TEST_F(QsfConvertTargetTest, SizesThatCannotBeMeantAreRefused) {
  for (const char* size : {"0", "-1", "abc", "1.5X", "3MM", "nan", "1e30"}) {
    expect_failure(from_text({std::string("--target-size=") + size}, "m.qsf"), 2, "--target-size");
  }
  for (const char* option : {"--quant-type=4bit", "--block-size=32"}) {
    expect_failure(from_text({"--target-size", "3M", option}, "m.qsf"), 2,
                   "--target-size excludes --");
  }
  ASSERT_EQ(from_text({"--calibration-out", in_.file("saved")}, "m.qsf").code, 0);
  expect_failure(from_saved({"--target-size", "3M"}, "n.qsf"), 1, "has no sensitivities");
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
}

}  // namespace
}  // namespace qsf
