// SPDX-License-Identifier: MIT
//
// qsf-convert as a user runs it: exit codes, one-line errors, nothing left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/sanitizer.h"
#include "format/qsf_reader.h"
#include "import/testing/hf_folder.h"
#include "import/testing/ternary_llama.h"
#include "tools/testing/convert_tool.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace testing_support;

class QsfConvertTest : public testing::Test {
 protected:
  void SetUp() override { write_model(in_, kTinyLlamaConfig, tiny_llama_tensors()); }
  TemporaryFolder in_;
  TemporaryFolder out_;
};

TEST_F(QsfConvertTest, ConvertsAndReplaces) {
  out_.write("m.qsf", "old");
  const Outcome outcome = run({"--quant-type", "4bit", in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("bits"));
  EXPECT_THAT(outcome.err, HasSubstr("no tokenizer"));
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_EQ(reader->spec().default_type, QuantType::kQ4);
  EXPECT_THAT(reader->spec().quantiser, HasSubstr("qsf-convert"));
}

TEST_F(QsfConvertTest, OptionsReachTheFile) {
  const Outcome outcome =
      run({"--quant-type", "2bit", "--block-size", "32", "--compress", "zstd", "--layout", "0",
           "--threads", "2", "--tile-bytes", "4096", "--verbose", in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("cosine"));
  EXPECT_THAT(outcome.err, HasSubstr("below 0.99"));
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader);
  const SectionDirectory& layer = reader->layer(0);
  EXPECT_EQ(layer.compression, Compression::kZstd);
  const TensorInfo& q = layer.tensors[*layer.find(TensorKind::kAttnQ)];
  EXPECT_EQ(q.format, (BlockFormat{QuantType::kQ2A, 32}));
  EXPECT_EQ(q.layout, Layout::kRowMajor);
  EXPECT_EQ(reader->embedding().tensors[0].format.type, QuantType::kQ4);
}

TEST_F(QsfConvertTest, TypesOfTensorsGoBeforeThoseOfTheModel) {
  const Outcome outcome =
      run({"--quant-type", "4bit", "--head-type", "f16", "--tensor-type", "blk\\.1\\.ffn_down=8bit",
           "--tensor-type", "token_embd=q6_k", in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  const auto down_of = [&](std::uint32_t layer) {
    const SectionDirectory& section = reader->layer(layer);
    return section.tensors[*section.find(TensorKind::kFfnDown)].format.type;
  };
  EXPECT_EQ(down_of(0), QuantType::kQ4);
  EXPECT_EQ(down_of(1), QuantType::kQ8);
  EXPECT_EQ(reader->embedding().tensors[0].format.type, QuantType::kQ6K);
}

TEST_F(QsfConvertTest, RefusesTypesOfTensorsThatAreNone) {
  const std::string out = out_.file("m.qsf");
  expect_failure(run({"--tensor-type", "ffn_down", in_.path(), out}), 2, "expected PATTERN=TYPE");
  expect_failure(run({"--tensor-type", "ffn=4bit", "--target-size", "1", in_.path(), out}), 2,
                 "--target-size excludes --tensor-type");
  expect_failure(run({"--tensor-type", "down_proj=4bit", in_.path(), out}), 1,
                 "is in no name of a matrix");
  EXPECT_TRUE(out_.names().empty());
}

TEST_F(QsfConvertTest, RoundingIsSearchedUnlessNearestIsAskedFor) {
  const auto convert = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"--quiet", "--quant-type", "2bit", in_.path()};
    args.push_back(out_.file("m.qsf"));
    args.insert(args.begin(), more.begin(), more.end());
    const Outcome outcome = run(args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out_.read("m.qsf");
  };
  const std::string nearest = convert({"--rounding", "nearest"});
  const std::string searched = convert({"--rounding", "search"});
  EXPECT_NE(nearest, searched);
  EXPECT_EQ(convert({}), searched);
  EXPECT_EQ(convert({"--scale-search", "off"}), nearest);
  EXPECT_EQ(convert({"--scale-search", "on"}), searched);
  const std::string out = out_.file("n.qsf");
  expect_failure(run({"--scale-search", "best", in_.path(), out}), 2, "--scale-search");
  expect_failure(run({"--scale-search", "on", "--rounding", "nearest", in_.path(), out}), 2,
                 "--scale-search excludes --rounding");
}

TEST_F(QsfConvertTest, RotatesWhatIsAskedForAndSaysSo) {
  const auto convert = [&](const std::string& rotation) {
    const Outcome outcome = run(
        {"--quant-type", "4bit", "--rotate", rotation, in_.path(), out_.file(rotation + ".qsf")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const auto quantiser = [&](const std::string& rotation) {
    return QsfReader::open(out_.file(rotation + ".qsf"))->spec().quantiser;
  };
  EXPECT_EQ(convert("none").find("of its own"), std::string::npos);
  EXPECT_EQ(quantiser("none").find("rotated"), std::string::npos);
  EXPECT_EQ(convert("values").find("of its own"), std::string::npos);
  EXPECT_THAT(quantiser("values"), HasSubstr(", values rotated"));
  EXPECT_THAT(convert("stream"), HasSubstr("528 more weights"));
  EXPECT_THAT(quantiser("stream"), HasSubstr(", residual stream rotated"));
  EXPECT_THAT(convert("all"), HasSubstr("528 more weights"));
  EXPECT_THAT(quantiser("all"), HasSubstr(", residual stream and values rotated"));
}

TEST_F(QsfConvertTest, RotationWithNothingToRotateIsRefused) {
  const std::string out = out_.file("m.qsf");
  expect_failure(run({"--rotate", "keys", in_.path(), out}), 2, "--rotate");
  expect_failure(run({"--rotate", "values", "--random", "tiny", out}), 2, "--random");
  expect_failure(run({"--rotate", "values", "--int8-rows", in_.path(), out}), 2, "--int8-rows");
  expect_failure(run({"--rotate", "values", "--quant-type", "keep", in_.path(), out}), 2, "keep");
  const std::string gguf = QSF_SOURCE_DIR "/testdata/gguf/qwen2.gguf";
  expect_failure(run({"--rotate", "values", gguf, out}), 1, "give a --quant-type");
  EXPECT_TRUE(out_.names().empty());
}

TEST_F(QsfConvertTest, EveryQuantTypeIsWhatItIsCalled) {
  const std::pair<const char*, QuantType> types[] = {{"f32", QuantType::kF32},
                                                     {"f16", QuantType::kF16},
                                                     {"bf16", QuantType::kBF16},
                                                     {"8bit", QuantType::kQ8},
                                                     {"4bit", QuantType::kQ4},
                                                     {"3bit", QuantType::kQ3},
                                                     {"2bit", QuantType::kQ2A},
                                                     {"2bit-sym", QuantType::kQ2S},
                                                     {"ternary", QuantType::kTernary},
                                                     {"ternary-row", QuantType::kTernaryRow},
                                                     {"4bit-super", QuantType::kQ4Super},
                                                     {"3bit-super", QuantType::kQ3Super},
                                                     {"2bit-super", QuantType::kQ2Super},
                                                     {"4bit-table", QuantType::kQ4Codebook},
                                                     {"3bit-table", QuantType::kQ3Codebook},
                                                     {"2bit-table", QuantType::kQ2Codebook},
                                                     {"q6_k", QuantType::kQ6K},
                                                     {"q5_k", QuantType::kQ5K},
                                                     {"q3_k", QuantType::kQ3K},
                                                     {"q2_k", QuantType::kQ2K}};
  for (const auto& [name, type] : types) {
    const Outcome outcome = run({"--quant-type", name, "--quiet", in_.path(), out_.file("m.qsf")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto reader = QsfReader::open(out_.file("m.qsf"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_EQ(reader->spec().default_type, type) << name;
    const SectionDirectory& layer = reader->layer(0);
    EXPECT_EQ(layer.tensors[*layer.find(TensorKind::kAttnQ)].format, block_format(type, 64));
  }
}

TEST_F(QsfConvertTest, HelpVersionQuiet) {
  EXPECT_EQ(run({"--help"}).code, 0);
  for (const char* option : {"--quant-type", "--block-size", "--compress", "--threads", "--layout",
                             "--tile-bytes", "--calibration", "--target-size", "--quiet",
                             "--random", "--seed", "--head-type", "--report", "--rotate"}) {
    EXPECT_THAT(run({"--help"}).out, HasSubstr(option));
  }
  EXPECT_EQ(run({"--version"}).code, 0);
  EXPECT_THAT(run({"--version"}).out, HasSubstr("qsf-convert "));
  const Outcome quiet = run({"--quiet", in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(quiet.code, 0);
  EXPECT_EQ(quiet.out, "");
}

TEST_F(QsfConvertTest, BadUsageIsTwo) {
  const std::string out = out_.file("m.qsf");
  expect_failure(run({}), 2, "");
  expect_failure(run({in_.path()}), 2, "OUT");
  expect_failure(run({in_.path(), out, "more"}), 2, "more");
  expect_failure(run({"--no-such-option", in_.path(), out}), 2, "--no-such-option");
  expect_failure(run({"--quant-type", "5bit", in_.path(), out}), 2, "--quant-type");
  expect_failure(run({"--block-size", "48", in_.path(), out}), 2, "--block-size");
  expect_failure(run({"--quant-type", "qk256", in_.path(), out}), 2, "--quant-type");
  expect_failure(run({"--compress", "gzip", in_.path(), out}), 2, "--compress");
  expect_failure(run({"--threads", "0", in_.path(), out}), 2, "--threads");
  expect_failure(run({"--threads", "-3", in_.path(), out}), 2, "--threads");
  expect_failure(run({"--threads", "x", in_.path(), out}), 2, "--threads");
  expect_failure(run({"--layout", "2", in_.path(), out}), 2, "--layout");
  expect_failure(run({"--tile-bytes", "8388608", in_.path(), out}), 2, "--tile-bytes");
  expect_failure(run({"--tile-bytes", "0", in_.path(), out}), 2, "--tile-bytes");
  EXPECT_TRUE(out_.names().empty());
}

TEST_F(QsfConvertTest, RandomWeightsNeedNoInput) {
  const Outcome outcome = run({"--random", "tiny", "--quant-type", "3bit", "--block-size", "32",
                               "--head-type", "8bit", "--seed", "7", out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("187600 weights"));
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  const SectionDirectory& layer = reader->layer(0);
  EXPECT_EQ(layer.tensors[*layer.find(TensorKind::kAttnQ)].format,
            (BlockFormat{QuantType::kQ3, 32}));
  EXPECT_EQ(reader->embedding().tensors[0].format, (BlockFormat{QuantType::kQ8, 32}));
  EXPECT_THAT(reader->spec().quantiser, HasSubstr("seed 7"));
}

TEST_F(QsfConvertTest, RandomIsRefusedWhereItMakesNoSense) {
  const std::string out = out_.file("m.qsf");
  expect_failure(run({"--random", "8b", out}), 2, "expected one of 1b, 3b, 7b, 7b-gqa, 13b, gpt2");
  expect_failure(run({"--random", "1b"}), 2, "OUT is required");
  expect_failure(run({"--random", "tiny", in_.path(), out}), 2, "reads no input");
  expect_failure(run({"--random", "tiny", "--head-type", "7bit", out}), 2, "--head-type");
  expect_failure(run({"--random", "tiny", "--seed", "-1", out}), 2, "--seed");
  expect_failure(run({"--seed", "1", in_.path(), out}), 2, "--random");
  expect_failure(run({"--random", "tiny", "/no/such/folder/m.qsf"}), 1, "/no/such/folder");
  EXPECT_TRUE(out_.names().empty());
}

TEST_F(QsfConvertTest, ABlockForFurtherTokensIsAFileOfItsOwn) {
  const std::string folder = QSF_SOURCE_DIR "/testdata/mtp/glm4_moe";
  for (const std::string& from : {folder, folder + ".gguf"}) {
    const Outcome outcome = run({"--mtp", "--quant-type", "8bit", from, out_.file("m.qsf")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const auto reader = QsfReader::open(out_.file("m.qsf"));
    ASSERT_TRUE(reader) << reader.error().message();
    EXPECT_TRUE(reader->spec().mtp_block);
    const SectionDirectory& layer = reader->layer(0);
    EXPECT_EQ(layer.tensors[*layer.find(TensorKind::kMtpProjection)].format.type, QuantType::kQ8);
    EXPECT_GT(reader->tokenizer_bytes(), 0U);
  }
  const std::string out = out_.file("n.qsf");
  expect_failure(run({"--mtp", in_.path(), out}), 1, "no block for multi-token prediction");
  for (const std::vector<std::string>& other : std::initializer_list<std::vector<std::string>>{
           {"--calibration", "x"}, {"--target-size", "1"}, {"--rotate", "all"}}) {
    expect_failure(run({"--mtp", other[0], other[1], folder, out}), 2,
                   "--mtp excludes " + other[0]);
  }
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
}

TEST_F(QsfConvertTest, BadInputsAreOne) {
  const std::string out = out_.file("m.qsf");
  expect_failure(run({"/no/such/folder", out}), 1, "/no/such/folder");
  expect_failure(run({in_.file("config.json"), out}), 1, "not a folder");
  in_.write("model.gguf", "GGUF");
  expect_failure(run({in_.file("model.gguf"), out}), 1, "GGUF");
  TestTensors tensors = tiny_llama_tensors();
  tensors["model.norm.weight"].values[5] = INFINITY;
  write_model(in_, kTinyLlamaConfig, tensors);
  expect_failure(run({in_.path(), out}), 1, "\"model.norm.weight\": element 5 is infinite");
  in_.write("model.safetensors", "");
  expect_failure(run({in_.path(), out}), 1, "model.safetensors");
  std::filesystem::remove(in_.file("model.safetensors"));
  expect_failure(run({in_.path(), out}), 1,
                 "no weights found; expected model.safetensors or pytorch_model.bin");
  in_.write("pytorch_model.bin", "x");
  expect_failure(run({in_.path(), out}), 1, "pytorch_model.bin: neither a zip archive");
  in_.write("config.json", R"({"architectures":["XyzForCausalLM"],"vocab_size":3})");
  expect_failure(run({in_.path(), out}), 1, "XyzForCausalLM");
  in_.write("config.json", "");
  expect_failure(run({in_.path(), out}), 1, "config.json");
  std::filesystem::remove(in_.file("config.json"));
  expect_failure(run({in_.path(), out}), 1, "config.json");
  EXPECT_TRUE(out_.names().empty());
}

TEST_F(QsfConvertTest, BadOutputsAreOneAndChangeNothing) {
  expect_failure(run({in_.path(), "/no/such/folder/m.qsf"}), 1, "/no/such/folder");
  expect_failure(run({in_.path(), out_.path()}), 1, out_.path());
  const std::string weights = in_.read("model.safetensors");
  expect_failure(run({in_.path(), in_.file("model.safetensors")}), 1, "a file of the input");
  std::filesystem::create_hard_link(in_.file("config.json"), out_.file("link.qsf"));
  expect_failure(run({in_.path(), out_.file("link.qsf")}), 1, "a file of the input");
  EXPECT_EQ(in_.read("model.safetensors"), weights);
  EXPECT_THAT(in_.names(), ElementsAre("config.json", "model.safetensors"));
  if (geteuid() != 0) {  // root may write anywhere
    std::filesystem::permissions(
        out_.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    expect_failure(run({in_.path(), out_.file("m.qsf")}), 1, "m.qsf");
    std::filesystem::permissions(out_.path(), std::filesystem::perms::owner_all);
  }
}

TEST_F(QsfConvertTest, AFullDiskLeavesNothing) {
  out_.write("m.qsf", "old");
  for (const rlim_t bytes : {0U, 4096U, 20000U}) {
    const Outcome outcome = run({in_.path(), out_.file("m.qsf")}, std::max<rlim_t>(bytes, 1024));
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("m.qsf"));
    EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
    EXPECT_EQ(out_.read("m.qsf"), "old");
  }
}

// By default weights are kept as they are, and the tokenizer comes along.
TEST_F(QsfConvertTest, AGgufFileIsKeptBitForBit) {
  const std::string gguf = QSF_SOURCE_DIR "/testdata/gguf/qwen2.gguf";
  const Outcome outcome = run({gguf, out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("kept bit for bit: matrices, "));
  EXPECT_THAT(outcome.out, HasSubstr(" of bf16"));
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_GT(reader->tokenizer_bytes(), 0U);
  EXPECT_EQ(reader->spec().architecture, "qwen2");
  const Outcome narrow = run({"--quiet", "--quant-type", "4bit", gguf, out_.file("n.qsf")});
  EXPECT_EQ(narrow.code, 0) << narrow.err;
  EXPECT_EQ(QsfReader::open(out_.file("n.qsf"))->spec().default_type, QuantType::kQ4);

  const Outcome ternary =
      run({"--quant-type", "keep", QSF_SOURCE_DIR "/testdata/bitnet/masters", out_.file("t.qsf")});
  EXPECT_EQ(ternary.code, 0) << ternary.err;
  EXPECT_THAT(ternary.out, HasSubstr(" of BF16 (as ternary-"));

  in_.write("m.gguf", in_.read("config.json"));
  expect_failure(run({in_.file("m.gguf"), out_.file("o.qsf")}), 1,
                 "not a GGUF file: it begins with \"");
  expect_failure(run({in_.file("config.json"), out_.file("o.qsf")}), 1, "not a folder");
  std::filesystem::copy_file(gguf, in_.file("n.gguf"));
  expect_failure(run({in_.file("n.gguf"), in_.file("n.gguf")}), 1, "a file of the input");
  expect_failure(run({"--random", "tiny", "--quant-type", "keep", out_.file("o.qsf")}), 2, "keep");
}

// Natively ternary weights take 1.6 bits for the disk and 2 for memory, and are the same weights.
TEST_F(QsfConvertTest, TernaryWeightsAreStoredForDiskOrMemory) {
  const std::string gguf = QSF_SOURCE_DIR "/testdata/gguf/bitnet/i2s_a.gguf";
  const auto type_for = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"--quiet", gguf, out_.file("m.qsf")};
    arguments.insert(arguments.begin(), options.begin(), options.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto reader = QsfReader::open(out_.file("m.qsf"));
    return reader->layer(0).tensors.at(1).format.type;
  };
  EXPECT_EQ(type_for({}), QuantType::kTernaryBase3);
  EXPECT_EQ(type_for({"--for", "disk"}), QuantType::kTernaryBase3);
  EXPECT_EQ(type_for({"--for", "ram"}), QuantType::kTernaryRow);
  EXPECT_EQ(type_for({"--ternary-packing", "base3"}), QuantType::kTernaryBase3);
  EXPECT_EQ(type_for({"--ternary-packing", "2bit"}), QuantType::kTernaryRow);
  expect_failure(run({"--for", "tape", gguf, out_.file("o.qsf")}), 2, "--for");
  expect_failure(run({"--ternary-packing", "3bit", gguf, out_.file("o.qsf")}), 2,
                 "--ternary-packing");
}

// The embedding of a BitNet, which is its head too, stays f16 unless another type is asked for,
// from a folder as from a GGUF file; the layers stay what they are.
TEST_F(QsfConvertTest, TheTiedEmbeddingOfABitNetIsQuantisedOnRequest) {
  for (const char* model : {"/testdata/bitnet/packed", "/testdata/gguf/bitnet/i2s_a.gguf"}) {
    const auto convert = [&](const std::vector<std::string>& options) {
      std::vector<std::string> arguments = options;
      arguments.insert(arguments.end(),
                       {"--quiet", std::string(QSF_SOURCE_DIR) + model, out_.file("m.qsf")});
      const Outcome outcome = run(arguments);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_THAT(outcome.err, Not(HasSubstr("requantised")));
      auto reader = QsfReader::open(out_.file("m.qsf"));
      EXPECT_TRUE(reader->spec().tied_head && reader->spec().natively_ternary);
      EXPECT_EQ(reader->layer(0).tensors.at(1).format.type, QuantType::kTernaryBase3);
      return reader->embedding().tensors.at(0).format.type;
    };
    const QuantType own = convert({});
    EXPECT_TRUE(own == QuantType::kF16 || own == QuantType::kBF16 || own == QuantType::kF32);
    EXPECT_EQ(convert({"--head-type", "8bit"}), QuantType::kQ8);
    EXPECT_EQ(convert({"--head-type", "q6_k", "--quant-type", "keep"}), QuantType::kQ6K);
    EXPECT_EQ(convert({"--quant-type", "ternary"}), QuantType::kQ4);
  }
  expect_failure(run({"--head-type", "ternary", in_.path(), out_.file("o.qsf")}), 2,
                 "cannot be ternary");
  expect_failure(run({"--seed", "3", in_.path(), out_.file("o.qsf")}), 2, "--seed needs --random");
}

// A ternary model that is not called BitNet: the user says how it was trained, or is asked.
TEST_F(QsfConvertTest, RowsOfInt8AreAskedForOrTold) {
  in_.write("m.gguf", ternary_llama());
  const Outcome silent = run({"--quiet", in_.file("m.gguf"), out_.file("m.qsf")});
  EXPECT_EQ(silent.code, 0) << silent.err;
  EXPECT_THAT(silent.err, HasSubstr("convert it with --int8-rows\n"));
  EXPECT_FALSE(QsfReader::open(out_.file("m.qsf"))->spec().int8_rows);
  const Outcome asked = run({"--quiet", "--int8-rows", in_.file("m.gguf"), out_.file("m.qsf")});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.err, Not(HasSubstr("int8-rows")));
  EXPECT_TRUE(QsfReader::open(out_.file("m.qsf"))->spec().int8_rows);
}

// Of the three byte orders that nothing in a file tells apart, the user may name one.
TEST_F(QsfConvertTest, TheOrderOfI2sIsTheOneThatWasNamed) {
  const auto converted = [&](const std::string& name, const std::string& layout) {
    const Outcome outcome =
        run({"--quiet", "--i2s-layout", layout,
             QSF_SOURCE_DIR "/testdata/gguf/bitnet/" + name + ".gguf", out_.file(name + ".qsf")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out_.read(name + ".qsf");
  };
  const std::string right = converted("i2s_a", "auto");
  EXPECT_EQ(converted("i2s_a", "ms128"), right);
  EXPECT_EQ(converted("i2s_b", "ms64"), right);
  EXPECT_EQ(converted("i2s_c", "ms4row"), right);
  EXPECT_NE(converted("i2s_b", "auto"), right);
  const std::string gguf = QSF_SOURCE_DIR "/testdata/gguf/bitnet/i2s_a.gguf";
  expect_failure(run({"--i2s-layout", "inline32", gguf, out_.file("o.qsf")}), 1, "bytes");
  expect_failure(run({"--i2s-layout", "ms32", gguf, out_.file("o.qsf")}), 2, "--i2s-layout");
}

// What became of every tensor, for programs; and in a line, for people.
TEST_F(QsfConvertTest, TheReportHasWhatTheTableHas) {
  const Outcome outcome = run({"--quant-type", "mixed", "--verbose", "--report",
                               out_.file("r.json"), in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("verified: "));
  EXPECT_THAT(outcome.out, HasSubstr("0 below a cosine of 0.99, "));
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf", "r.json"));
  const auto report = nlohmann::json::parse(out_.read("r.json"));
  EXPECT_EQ(report["file_bytes"], out_.read("m.qsf").size());
  EXPECT_FALSE(report["widened"].empty());
  EXPECT_EQ(report["below_low_cosine"], 0);
  EXPECT_GT(report["bits_per_weight_stored"], report["bits_per_weight"]);
  std::size_t n_rounded = 0;
  double lowest = 1.0;
  for (const auto& tensor : report["tensors"]) {
    char error[32];
    std::snprintf(error, sizeof error, "%.3e", tensor["relative_error"].get<double>());
    EXPECT_THAT(outcome.out, HasSubstr(error));
    EXPECT_THAT(outcome.out, HasSubstr(tensor["type"].get<std::string>()));
    n_rounded += tensor["relative_error"] == 0.0 ? 0U : 1U;
    lowest = std::min(lowest, tensor["cosine"].get<double>());
  }
  EXPECT_GT(n_rounded, 0U);
  EXPECT_EQ(report["rounded"], n_rounded);
  EXPECT_EQ(report["lowest_cosine"], lowest);
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_EQ(report["tensors"][0]["tensor"], "token_embedding");
  EXPECT_EQ(report["tensors"][0]["block"], reader->embedding().tensors[0].format.block);
}

TEST_F(QsfConvertTest, TensorsBelowTheFloorAreCounted) {
  const Outcome outcome = run(
      {"--quant-type", "2bit", "--report", out_.file("r.json"), in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto report = nlohmann::json::parse(out_.read("r.json"));
  const std::size_t n = report["below_low_cosine"];
  EXPECT_GT(n, 0U);
  EXPECT_THAT(outcome.out, HasSubstr(" " + std::to_string(n) + " below a cosine of 0.99, 0 given"));
  EXPECT_LT(report["lowest_cosine"], 0.99);
}

TEST_F(QsfConvertTest, AReportTakesNoOtherFilesPlace) {
  const std::string out = out_.file("m.qsf");
  const std::string config = in_.read("config.json");
  const auto refused = [&](const std::string& report, int code, const std::string& message) {
    expect_failure(run({"--report", report, in_.path(), out}), code, message);
  };
  refused(in_.file("config.json"), 1, "a file of the input");
  refused(out_.file("./m.qsf"), 1, "choose another name");
  refused("/no/such/folder/r.json", 1, "--report: /no/such/folder");
  expect_failure(run({"--random", "tiny", "--report", out_.file("r.json"), out}), 2, "--report");
  const TemporaryFolder texts;
  const std::string text = texts.file("tale.txt");
  std::filesystem::copy(QSF_SOURCE_DIR "/testdata/tale.txt", text);
  expect_failure(run({"--calibration", text, "--report", text, in_.path(), out}), 1,
                 "choose another name");
  expect_failure(run({"--calibration", text, "--calibration-out", out_.file("saved"), "--report",
                      out_.file("saved"), in_.path(), out}),
                 1, "--report");
  EXPECT_EQ(in_.read("config.json"), config);
  EXPECT_TRUE(out_.names().empty());
}

// A folder may name tokens that the model has no row for; the file must not.
TEST_F(QsfConvertTest, TokensWithoutARowAreLeftOut) {
  std::string vocabulary;
  for (int id = 0; id < 32; ++id) {
    vocabulary += (id == 0 ? "{\"" : ",\"") + std::string(1, static_cast<char>('A' + id)) +
                  "\":" + std::to_string(id);
  }
  std::replace(vocabulary.begin(), vocabulary.end(), '\\', 'a');
  in_.write("vocab.json", vocabulary + "}");
  in_.write("merges.txt", "#version: 0.2\n");
  in_.write("tokenizer_config.json", R"({"tokenizer_class":"GPT2Tokenizer","pad_token":"<pad>"})");
  in_.write("added_tokens.json", R"({"<end>":32,"<pad>":33})");
  const Outcome outcome = run({"--quiet", in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err,
            "qsf-convert: warning: the embedding has 33 rows; tokens beyond them are left out: "
            "\"<pad>\" (33)\n");
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  const auto bytes = reader->read_tokenizer();
  ASSERT_TRUE(bytes);
  EXPECT_EQ(load_le<std::uint32_t>(*bytes, 12), 33U);  // tokens

  vocabulary.replace(vocabulary.find(":31"), 3, ":34");
  in_.write("vocab.json", vocabulary + "}");
  expect_failure(run({in_.path(), out_.file("n.qsf")}), 1, "has token 34");
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
}

// Where threads cannot be started, those that run do the work.
TEST_F(QsfConvertTest, RunsWithTheThreadsItGets) {
#ifdef QSF_WITH_SANITIZER
  GTEST_SKIP() << "the sanitizer reserves more address space than the limit of this test";
#else
  std::string config = kTinyLlamaConfig;
  config.replace(config.find("\"vocab_size\":33"), 15, "\"vocab_size\":40000");
  TestTensors tensors = tiny_llama_tensors();
  Rng rng(1);
  tensors["model.embed_tokens.weight"] = random_tensor({40000, 16}, rng);
  write_model(in_, config, tensors);
  const TemporaryFolder scratch;
  const Outcome outcome =
      finish(scratch, start(scratch, {"--threads", "256", in_.path(), out_.file("m.qsf")}, kNoLimit,
                            rlim_t{256} << 20));  // room for about 20 stacks
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(QsfReader::open(out_.file("m.qsf")));
#endif
}

TEST_F(QsfConvertTest, SignalsLeaveNothing) {
  // Large enough to be interrupted: 200,000 tokens of 16, with the slowest compression of layers.
  std::string config = kTinyLlamaConfig;
  config.replace(config.find("\"vocab_size\":33"), 15, "\"vocab_size\":400000");
  TestTensors tensors = tiny_llama_tensors();
  Rng rng(1);
  tensors["model.embed_tokens.weight"] = random_tensor({400000, 16}, rng);
  write_model(in_, config, tensors);
  for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
    const TemporaryFolder scratch;
    const pid_t child =
        start(scratch, {"--threads", "1", in_.path(), out_.file("m.qsf")}, kNoLimit);
    const bool runs = wait_for_file(out_, child, FileState::kInTheMaking);
    kill(child, number);
    const Outcome outcome = finish(scratch, child);
    ASSERT_TRUE(runs) << outcome.err;
    EXPECT_EQ(outcome.code, number == SIGKILL ? -1 : 1) << outcome.err;
    if (number != SIGKILL) {
      EXPECT_THAT(outcome.err, HasSubstr("interrupted"));
    }
    EXPECT_TRUE(out_.names().empty());
  }
  // Nothing of them stands in the way of the next.
  const Outcome again = run({in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(QsfReader::open(out_.file("m.qsf")));
}

TEST_F(QsfConvertTest, KeepsToItsBudgetOrNamesTheOneItNeeds) {
  const Outcome tight =
      run({"--threads", "64", "--ram-budget", "1", in_.path(), out_.file("m.qsf")});
  expect_failure(tight, 1, "raise the budget to ");
  EXPECT_TRUE(out_.names().empty());
  const std::string mark = "raise the budget to ";
  const std::string needed =
      std::to_string(std::stoul(tight.err.substr(tight.err.find(mark) + mark.size())));
  const Outcome enough =
      run({"--threads", "64", "--ram-budget", needed, in_.path(), out_.file("m.qsf")});
  EXPECT_EQ(enough.code, 0) << enough.err;
  const Outcome free = run({in_.path(), out_.file("n.qsf")});
  EXPECT_EQ(free.code, 0) << free.err;
  EXPECT_EQ(out_.read("m.qsf"), out_.read("n.qsf"));
  expect_failure(run({"--random", "tiny", "--ram-budget", "100", out_.file("r.qsf")}), 2,
                 "--ram-budget");
}

}  // namespace
}  // namespace qsf
