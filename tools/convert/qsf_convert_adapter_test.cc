// SPDX-License-Identifier: MIT
//
// qsf-convert with LoRA adapters as a user runs it: adapter files from PEFT folders and GGUF
// adapters, adapters merged into weights, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "format/adapter_reader.h"
#include "format/model_fingerprint.h"
#include "format/qsf_reader.h"
#include "format/tensor_values.h"
#include "import/testing/adapter_folder.h"
#include "import/testing/gguf_writer.h"
#include "import/testing/ternary_llama.h"
#include "tools/testing/convert_tool.h"

namespace qsf {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

constexpr const char* kQuery = "model.layers.0.self_attn.q_proj";
constexpr const char* kDown = "model.layers.1.mlp.down_proj";

// A tiny LLaMA, its conversion, and an adapter of two of its matrices: alpha 6 / rank 3.
class QsfConvertAdapterTest : public testing::Test {
 protected:
  void SetUp() override {
    write_model(in_, kTinyLlamaConfig, tiny_llama_tensors());
    Rng rng(9);
    add_lora_pair(kQuery, 16, 16, 3, rng, pairs_);
    add_lora_pair(kDown, 20, 16, 3, rng, pairs_);
    write_poet(pairs_);
    base_ = convert_model("base.qsf", {"--quant-type", "f32"});
  }

  void write_poet(const TestTensors& pairs, const std::string& config = kTinyPeftConfig) {
    std::filesystem::create_directory(poet_);
    adapters_.write("poet/adapter_config.json", config);
    adapters_.write("poet/adapter_model.safetensors", safetensors_file(pairs));
  }

  std::string convert_model(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {in_.path(), out_.file(name)});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out_.file(name);
  }

  // Converts the adapter for a base.
  Outcome convert_poet(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {poet_, out_.file("poet.qsf"), "--base", base_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  void expect_refused(const Outcome& outcome, const std::string& message) {
    expect_failure(outcome, 1, message);
    EXPECT_THAT(out_.names(), Not(Contains("poet.qsf")));
  }

  TemporaryFolder in_;
  TemporaryFolder out_;
  TemporaryFolder adapters_;
  std::string poet_ = adapters_.file("poet");
  std::string base_;
  TestTensors pairs_;
};

std::vector<float> stored_matrix(const std::string& path, SectionKind section, std::uint32_t layer,
                                 TensorKind kind) {
  const auto reader = QsfReader::open(path);
  EXPECT_TRUE(reader) << reader.error().message();
  for (const SectionDirectory& directory : reader->directories()) {
    if (directory.kind != section || directory.layer != layer) continue;
    const auto index = directory.find(kind);
    if (!index) break;
    return read_tensor_values(*reader, directory, static_cast<std::uint32_t>(*index)).value();
  }
  ADD_FAILURE() << path << " has no such matrix";
  return {};
}

std::vector<float> stored_query(const std::string& path) {
  return stored_matrix(path, SectionKind::kLayer, 0, TensorKind::kAttnQ);
}

TEST_F(QsfConvertAdapterTest, MakesAFileForTheBase) {
  const Outcome outcome = convert_poet();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("adapter of 2 matrices, rank 3; for " + base_ + " alone"));
  const auto adapter = AdapterReader::open(out_.file("poet.qsf"));
  ASSERT_TRUE(adapter) << adapter.error().message();
  const auto base = QsfReader::open(base_);
  EXPECT_EQ(adapter->spec().name, "poet");
  EXPECT_EQ(adapter->spec().architecture, "llama");
  EXPECT_EQ(adapter->spec().base_fingerprint, model_fingerprint(*base));
  EXPECT_TRUE(check_adapter_fits(adapter->spec(), *base).ok());
  ASSERT_EQ(adapter->spec().pairs.size(), 2U);
  const AdapterPair& down = adapter->spec().pairs[1];
  EXPECT_EQ(down.kind, TensorKind::kFfnDown);
  EXPECT_EQ(down.scale, 2.0F);
  std::vector<std::byte> stored(adapter_pair_bytes(down));
  ASSERT_TRUE(adapter->read_pair(1, stored).ok());
  std::vector<float> a(down.a_values());
  decode_adapter_values(ByteSpan(stored).first(a.size() * adapter_value_bytes(down.type)),
                        down.type, a);
  EXPECT_EQ(a, pairs_["base_model.model." + std::string(kDown) + ".lora_A.weight"].values);
  EXPECT_EQ(convert_poet({"--quiet"}).out, "");
}

// Other quantisations of the base have another fingerprint.
TEST_F(QsfConvertAdapterTest, AnyBaseFitsOtherQuantisations) {
  const auto other = QsfReader::open(convert_model("other.qsf", {"--quant-type", "4bit"}));
  ASSERT_TRUE(other);
  ASSERT_EQ(convert_poet().code, 0);
  const Status bound =
      check_adapter_fits(AdapterReader::open(out_.file("poet.qsf"))->spec(), *other);
  EXPECT_THAT(bound.message(), HasSubstr("with --any-base"));
  const Outcome outcome = convert_poet({"--any-base"});
  EXPECT_THAT(outcome.out, HasSubstr("for every llama with matrices of these shapes"));
  const auto adapter = AdapterReader::open(out_.file("poet.qsf"));
  EXPECT_EQ(adapter->spec().base_fingerprint, 0U);
  EXPECT_TRUE(check_adapter_fits(adapter->spec(), *other).ok());
}

// An adapter file is written anew for another base, without the folder that it came from.
TEST_F(QsfConvertAdapterTest, AnAdapterFileMovesToAnotherBase) {
  ASSERT_EQ(convert_poet().code, 0);
  const std::string other = convert_model("other.qsf", {"--quant-type", "4bit"});
  const Outcome outcome =
      run({out_.file("poet.qsf"), out_.file("moved.qsf"), "--base", other, "--quiet"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto moved = AdapterReader::open(out_.file("moved.qsf"));
  ASSERT_TRUE(moved) << moved.error().message();
  EXPECT_TRUE(check_adapter_fits(moved->spec(), *QsfReader::open(other)).ok());
  EXPECT_EQ(out_.read("moved.qsf").substr(64), out_.read("poet.qsf").substr(64));
}

TEST_F(QsfConvertAdapterTest, ReadsGgufAdapters) {
  GgufWriter writer;
  writer.add_text("general.type", "adapter");
  writer.add_text("general.architecture", "llama");
  writer.add_text("adapter.type", "lora");
  writer.add_f32("adapter.lora.alpha", 4.0F);
  writer.add_f32_tensor("blk.1.ffn_down.weight.lora_a", {20, 2}, std::vector<float>(40, 0.5F));
  writer.add_f32_tensor("blk.1.ffn_down.weight.lora_b", {2, 16}, std::vector<float>(32, 0.25F));
  adapters_.write("bard.gguf", writer.finish());
  const Outcome outcome = run({adapters_.file("bard.gguf"), out_.file("a.qsf"), "--base", base_});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto adapter = AdapterReader::open(out_.file("a.qsf"));
  ASSERT_TRUE(adapter) << adapter.error().message();
  EXPECT_EQ(adapter->spec().name, "bard");
  EXPECT_EQ(adapter->spec().pairs[0].scale, 2.0F);
}

TEST_F(QsfConvertAdapterTest, NeedsABase) {
  expect_refused(run({poet_, out_.file("poet.qsf")}),
                 "qsf convert " + poet_ + " " + out_.file("poet.qsf") + " --base MODEL.qsf");
  expect_failure(run({poet_, out_.file("poet.qsf"), "--any-base"}), 2, "--any-base needs --base");
  expect_refused(run({poet_, out_.file("poet.qsf"), "--base", in_.file("model.safetensors")}),
                 "--base: " + in_.file("model.safetensors") + ": is not a QSF file");
  expect_refused(run({poet_, out_.file("poet.qsf"), "--base", out_.file("none.qsf")}), "none.qsf");
  expect_refused(run({in_.path(), out_.file("poet.qsf"), "--base", base_}), "no adapter");
  ASSERT_EQ(convert_poet().code, 0);
  expect_failure(run({poet_, out_.file("a.qsf"), "--base", out_.file("poet.qsf")}), 1,
                 "is an adapter file, not a model");
}

TEST_F(QsfConvertAdapterTest, RefusesOptionsOfModels) {
  const std::vector<std::vector<std::string>> all = {{"--quant-type", "4bit"},
                                                     {"--target-size", "10"},
                                                     {"--head-type", "8bit"},
                                                     {"--block-size", "32"},
                                                     {"--scale-search", "off"},
                                                     {"--rotate", "all"},
                                                     {"--ternary-packing", "2bit"},
                                                     {"--int8-rows"},
                                                     {"--calibration", kTale},
                                                     {"--compress", "lz4"},
                                                     {"--threads", "2"},
                                                     {"--ram-budget", "500"},
                                                     {"--layout", "0"},
                                                     {"--tile-bytes", "8192"},
                                                     {"--work-folder", out_.file("work")},
                                                     {"--report", out_.file("report")},
                                                     {"--verbose"}};
  for (const std::vector<std::string>& option : all) {
    expect_refused(convert_poet(option), option[0] + " is for models");
  }
  expect_failure(convert_poet({"--merge-lora", poet_}), 2, "--base excludes --merge-lora");
}

TEST_F(QsfConvertAdapterTest, RefusesForeignBases) {
  const TemporaryFolder other;
  write_model(other, kTinyGpt2Config, tiny_gpt2_tensors(""));
  const std::string gpt2 = out_.file("gpt2.qsf");
  ASSERT_EQ(run({"--quant-type", "f32", other.path(), gpt2}).code, 0);
  expect_refused(run({poet_, out_.file("poet.qsf"), "--base", gpt2}),
                 "model.layers.0.self_attn.q_proj");
  // Rotated weights have other inputs and outputs.
  const std::string rotated =
      convert_model("rotated.qsf", {"--quant-type", "4bit", "--rotate", "values"});
  expect_refused(run({poet_, out_.file("poet.qsf"), "--base", rotated, "--any-base"}), "rotated");
  ASSERT_EQ(convert_poet().code, 0);
  expect_failure(run({out_.file("poet.qsf"), out_.file("a.qsf"), "--base", gpt2}), 1,
                 "made for a llama, but the model is a gpt2");
}

TEST_F(QsfConvertAdapterTest, RefusesDamagedAdapters) {
  const std::string intact = adapters_.read("poet/adapter_model.safetensors");
  adapters_.write("poet/adapter_model.safetensors", intact.substr(0, intact.size() - 4));
  expect_refused(convert_poet(), "adapter_model.safetensors");
  TestTensors half = pairs_;
  half.erase("base_model.model." + std::string(kDown) + ".lora_B.weight");
  write_poet(half);
  expect_refused(convert_poet(), "half of the pair is missing");
  std::string config = kTinyPeftConfig;
  config.replace(config.find("\"r\":3"), 5, "\"r\":5000");
  write_poet(pairs_, config);
  expect_refused(convert_poet(), "5000");
  write_poet(pairs_);
  std::filesystem::remove(adapters_.file("poet/adapter_model.safetensors"));
  expect_refused(convert_poet(), "expected adapter_model.safetensors");
  write_poet(pairs_);
  ASSERT_EQ(convert_poet().code, 0);
  std::string file = out_.read("poet.qsf");
  file.back() = static_cast<char>(file.back() ^ 1);
  out_.write("damaged.qsf", file);
  expect_failure(run({out_.file("damaged.qsf"), out_.file("a.qsf"), "--base", base_}), 1,
                 "layer 1, ffn_down");
  EXPECT_THAT(out_.names(), Not(Contains("a.qsf")));
}

TEST_F(QsfConvertAdapterTest, NeverOverwritesItsInputs) {
  const std::string weights = adapters_.read("poet/adapter_model.safetensors");
  const std::string model = out_.read("base.qsf");
  expect_failure(run({poet_, poet_ + "/adapter_model.safetensors", "--base", base_}), 1,
                 "a file of the input");
  expect_failure(run({poet_, base_, "--base", base_}), 1, "this is the --base");
  ASSERT_EQ(convert_poet().code, 0);
  const std::string own = out_.file("poet.qsf");
  expect_failure(run({own, own, "--base", base_}), 1, "a file of the input");
  const std::string merged = poet_ + "/adapter_model.safetensors";
  expect_failure(run({"--merge-lora", poet_, in_.path(), merged}), 1, "a file of the input");
  expect_failure(run({"--merge-lora", own, in_.path(), own}), 1, "a file of the input");
  EXPECT_EQ(adapters_.read("poet/adapter_model.safetensors"), weights);
  EXPECT_EQ(out_.read("base.qsf"), model);
}

// What merging in PEFT would give, as a folder.
TestTensors merged_by_hand(const TestTensors& pairs, float scale) {
  TestTensors tensors = tiny_llama_tensors();
  for (const char* module : {kQuery, kDown}) {
    const std::string pair = "base_model.model." + std::string(module);
    merge_pair(pairs.at(pair + ".lora_A.weight"), pairs.at(pair + ".lora_B.weight"), scale, false,
               tensors.at(std::string(module) + ".weight"));
  }
  return tensors;
}

TEST_F(QsfConvertAdapterTest, MergesIntoTheWeights) {
  const TemporaryFolder by_hand;
  write_model(by_hand, kTinyLlamaConfig, merged_by_hand(pairs_, 2.0F));
  ASSERT_EQ(run({"--quant-type", "f32", by_hand.path(), out_.file("hand.qsf")}).code, 0);
  const Outcome outcome =
      run({"--quant-type", "f32", "--merge-lora", poet_, in_.path(), out_.file("merged.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("merged adapters into 2 matrices"));
  for (const auto& [layer, kind] :
       {std::pair(0U, TensorKind::kAttnQ), {1U, TensorKind::kFfnDown}, {1U, TensorKind::kAttnQ}}) {
    const auto got = stored_matrix(out_.file("merged.qsf"), SectionKind::kLayer, layer, kind);
    const auto expected = stored_matrix(out_.file("hand.qsf"), SectionKind::kLayer, layer, kind);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5F) << i;
  }
  EXPECT_NE(stored_query(out_.file("merged.qsf")), stored_query(base_));
  EXPECT_THAT(QsfReader::open(out_.file("merged.qsf"))->spec().quantiser,
              HasSubstr("merged with \"poet\""));
}

// The same adapter as a folder and as an adapter file gives the same bytes, with types as well.
TEST_F(QsfConvertAdapterTest, MergesAdapterFiles) {
  ASSERT_EQ(convert_poet().code, 0);
  for (const std::string type : {"f32", "4bit"}) {
    convert_model("a.qsf", {"--quant-type", type, "--merge-lora", poet_});
    convert_model("b.qsf", {"--quant-type", type, "--merge-lora", out_.file("poet.qsf")});
    EXPECT_EQ(out_.read("a.qsf"), out_.read("b.qsf")) << type;
  }
}

TEST_F(QsfConvertAdapterTest, MergesWithAScale) {
  const std::vector<float> base = stored_query(base_);
  const auto merged = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--quant-type", "f32"});
    return stored_query(convert_model("m.qsf", std::move(arguments)));
  };
  const std::vector<float> whole = merged({"--merge-lora", poet_});
  EXPECT_EQ(merged({"--merge-lora", poet_ + ":1"}), whole);
  EXPECT_EQ(merged({"--merge-lora", poet_ + ":0"}), base);
  EXPECT_EQ(merged({"--merge-lora", poet_ + ":0.5", "--merge-lora", poet_ + ":0.5"}), whole);
  const std::vector<float> away = merged({"--merge-lora", poet_ + ":-1"});
  for (std::size_t i = 0; i < base.size(); ++i) {
    ASSERT_NEAR(away[i] + whole[i], 2 * base[i], 1e-5F) << i;
  }
  for (const std::string scale : {"", "x", "1x", "nan", "inf", "1e99"}) {
    expect_failure(run({"--merge-lora", poet_ + ":" + scale, in_.path(), out_.file("n.qsf")}), 2,
                   "--merge-lora " + poet_ + ":" + scale);
  }
  expect_failure(run({"--merge-lora", poet_ + "s:1", in_.path(), out_.file("n.qsf")}), 1,
                 "no adapter");
}

TEST_F(QsfConvertAdapterTest, AMergedTiedHeadIsAMatrixOfItsOwn) {
  TestTensors head;
  Rng rng(3);
  add_lora_pair("lm_head", 16, 33, 3, rng, head);
  write_poet(head);
  const Outcome outcome =
      run({"--quant-type", "f32", "--merge-lora", poet_, in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("528 more weights"));
  EXPECT_FALSE(QsfReader::open(out_.file("m.qsf"))->spec().tied_head);
  const auto embedding = [](const std::string& path) {
    return stored_matrix(path, SectionKind::kEmbedding, 0, TensorKind::kTokenEmbedding);
  };
  EXPECT_EQ(embedding(out_.file("m.qsf")), embedding(base_));
  EXPECT_NE(stored_matrix(out_.file("m.qsf"), SectionKind::kFinal, 0, TensorKind::kHead),
            embedding(base_));
}

TEST_F(QsfConvertAdapterTest, MergedWeightsCannotBeKept) {
  const std::string out = out_.file("m.qsf");
  expect_failure(run({"--merge-lora", poet_, "--quant-type", "keep", in_.path(), out}), 2, "keep");
  const std::string gguf = QSF_SOURCE_DIR "/testdata/gguf/qwen2.gguf";
  expect_failure(run({"--merge-lora", poet_, gguf, out}), 1, "give a --quant-type");
  expect_failure(run({"--merge-lora", poet_, "--random", "tiny", out}), 2, "--merge-lora");
  EXPECT_THAT(out_.names(), ElementsAre("base.qsf"));
}

// Matrices that were ternary stay so where no adapter changes them.
TEST_F(QsfConvertAdapterTest, ChangedTernaryMatricesGetAnotherType) {
  in_.write("ternary.gguf", ternary_llama());
  const std::string plain = out_.file("plain.qsf");
  ASSERT_EQ(run({"--quant-type", "mixed", in_.file("ternary.gguf"), plain}).code, 0);
  const auto base = QsfReader::open(plain);
  const TensorInfo q = base->layer(0).tensors[*base->layer(0).find(TensorKind::kAttnQ)];
  ASSERT_EQ(q.format.type, QuantType::kTernaryBase3);
  TestTensors pairs;
  Rng rng(4);
  add_lora_pair(kQuery, q.cols, q.rows, 3, rng, pairs);
  write_poet(pairs);
  const Outcome outcome = run({"--quant-type", "mixed", "--merge-lora", poet_,
                               in_.file("ternary.gguf"), out_.file("m.qsf")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto merged = QsfReader::open(out_.file("m.qsf"));
  const SectionDirectory& layer = merged->layer(0);
  EXPECT_NE(layer.tensors[*layer.find(TensorKind::kAttnQ)].format.type, QuantType::kTernaryBase3);
  EXPECT_EQ(layer.tensors[*layer.find(TensorKind::kAttnV)].format.type, QuantType::kTernaryBase3);
  EXPECT_FALSE(merged->spec().natively_ternary);
}

// The adapters' matrices are in memory: the least budget grows by them.
TEST_F(QsfConvertAdapterTest, AdaptersCountInTheBudget) {
  TestTensors large;
  Rng rng(2);
  for (const int layer : {0, 1}) {
    for (const char* module : {"q_proj", "o_proj"}) {
      add_lora_pair("model.layers." + std::to_string(layer) + ".self_attn." + module, 16, 16, 4096,
                    rng, large);
    }
  }
  std::string config = kTinyPeftConfig;
  config.replace(config.find("\"r\":3"), 5, "\"r\":4096");
  write_poet(large, config);
  const auto least_budget = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(),
                     {"--ram-budget", "1", "--threads", "1", in_.path(), out_.file("m.qsf")});
    const Outcome outcome = run(arguments);
    expect_failure(outcome, 1, "raise the budget to ");
    return std::stoull(outcome.err.substr(outcome.err.find("raise the budget to ") + 20));
  };
  const std::uint64_t megabytes = 4 * 2 * 16 * 4096 * sizeof(float) / 1'000'000;
  const std::uint64_t without = least_budget({});
  const std::uint64_t with = least_budget({"--merge-lora", poet_});
  EXPECT_GE(with, without + megabytes);
  EXPECT_LE(with, without + megabytes + 2);
}

// Merged first, then rotated, calibrated and compensated; the types chosen for a size.
TEST_F(QsfConvertAdapterTest, MergesBeforeAllElse) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--quant-type", "4bit", "--rotate", "all"},
                                             {"--target-size", "1"},
                                             {"--quant-type", "mixed"},
                                             {"--quant-type", "4bit", "--compress", "zstd"}}) {
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--merge-lora", poet_});
    const std::string merged = convert_model("m.qsf", arguments);
    EXPECT_NE(stored_query(merged), stored_query(convert_model("n.qsf", more))) << more.back();
  }
}

}  // namespace
}  // namespace qsf
