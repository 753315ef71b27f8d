// SPDX-License-Identifier: MIT
//
// qsf-convert --calibration as a user runs it, on the bundled model: what reaches the file, what is
// saved and used again, what is refused, the budget, and that nothing is left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/sanitizer.h"
#include "format/qsf_reader.h"
#include "import/testing/hf_folder.h"
#include "tools/testing/convert_tool.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace testing_support;

// MB. A sanitizer takes memory of its own: with it budgets are larger, and peaks say nothing.
#ifdef QSF_WITH_SANITIZER
constexpr bool kMeasuresPeaks = false;
constexpr std::uint64_t kBudgetMb = 140;
constexpr std::uint64_t kGptqBudgetMb = 200;
constexpr std::uint64_t kSmallGptqBudgetMb = 200;
#else
constexpr bool kMeasuresPeaks = true;
constexpr std::uint64_t kBudgetMb = 39;      // weights take 23 as floats, so they are streamed
constexpr std::uint64_t kGptqBudgetMb = 64;  // with the Hessians of six layers, of 4.7 each
// Little more than a calibration in windows of 32 tokens needs.
constexpr std::uint64_t kSmallGptqBudgetMb = 58;
#endif

class QsfConvertCalibrationTest : public testing::Test {
 protected:
  // Converts with a small calibration and `more`.
  Outcome convert(const std::string& calibration, std::vector<std::string> more,
                  const std::string& out = "m.qsf") {
    for (const char* argument : {"--quant-type", "3bit", "--calibration-context", "32",
                                 "--calibration-tokens", "96", "--calibration"}) {
      more.emplace_back(argument);
    }
    more.push_back(calibration);
    more.push_back(kModel);
    more.push_back(out_.file(out));
    return run(more);
  }
  // The same with what was saved, which has no use for options of a text.
  Outcome convert_saved(const std::string& saved, std::vector<std::string> more,
                        const std::string& out = "m.qsf") {
    for (const std::string& argument :
         {std::string("--quant-type"), std::string("3bit"), std::string("--calibration"), saved,
          kModel, out_.file(out)}) {
      more.push_back(argument);
    }
    return run(more);
  }
  static std::vector<std::string> quick(std::vector<std::string> more) {
    more.insert(more.begin(), {"--threads", "1"});
    return more;
  }
  TemporaryFolder in_;
  TemporaryFolder out_;
};

// What the weights become decides nothing of what they are measured to need.
TEST_F(QsfConvertCalibrationTest, SeesTheModelBeforeTypesOfTensors) {
  ASSERT_EQ(convert(kTale, quick({"--calibration-out", in_.file("plain")})).code, 0);
  const Outcome named = convert(kTale, quick({"--calibration-out", in_.file("named"),
                                              "--tensor-type", "ffn=2bit", "--quiet"}));
  ASSERT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(in_.read("named"), in_.read("plain"));
}

TEST_F(QsfConvertCalibrationTest, ReachesTheFileAndIsUsedAgain) {
  const Outcome first =
      convert(kTale, quick({"--calibration-out", out_.file("saved"), "--verbose"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("calibrated on 93 tokens"));
  EXPECT_THAT(first.out, HasSubstr("nats without"));
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf", "saved"));
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_TRUE(reader->spec().calibrated);
  for (std::uint32_t layer = 0; layer < reader->spec().n_layers; ++layer) {
    EXPECT_GT(reader->layer(layer).importance, 0.0F) << layer;
  }
  EXPECT_GT(reader->layer(0).importance, 1.0F);  // without it this model says nothing

  const Outcome again = convert_saved(out_.file("saved"), {"--threads", "2"}, "again.qsf");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(out_.read("again.qsf"), out_.read("m.qsf"));
  const Outcome plain = run({"--quant-type", "3bit", kModel, out_.file("plain.qsf")});
  ASSERT_EQ(plain.code, 0) << plain.err;
  const auto without = QsfReader::open(out_.file("plain.qsf"));
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->spec().calibrated);
  EXPECT_EQ(without->layer(0).importance, 0.0F);
  const auto last_tile = [](const QsfReader& file) { return file.layer(0).tiles.back().crc; };
  EXPECT_NE(last_tile(*without), last_tile(*reader)) << "columns were worth the same";
}

// Columns of rotated weights multiply other inputs.
TEST_F(QsfConvertCalibrationTest, HoldsForTheRotationItWasGatheredWith) {
  const auto gather = [&](const char* rotation) {
    const Outcome outcome =
        convert(kTale, quick({"--rotate", rotation, "--calibration-out", in_.file(rotation)}),
                std::string(rotation) + ".qsf");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  };
  gather("none");
  gather("values");
  gather("all");
  const Outcome same = convert_saved(in_.file("all"), {"--rotate", "all"}, "again.qsf");
  ASSERT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(out_.read("again.qsf"), out_.read("all.qsf"));
  for (const auto& [saved, rotation] :
       {std::pair{"none", "values"}, {"values", "none"}, {"none", "all"}, {"all", "values"}}) {
    const Outcome other = convert_saved(in_.file(saved), {"--rotate", rotation}, "m.qsf");
    expect_failure(other, 1, "calibrate this model again");
  }
  EXPECT_FALSE(std::filesystem::exists(out_.file("m.qsf")));
}

// What is run has the weights as they are, whatever becomes of them.
TEST_F(QsfConvertCalibrationTest, WhatIsSavedDoesNotDependOnTheTypesOfTheOutput) {
  const auto saved = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--calibration-out", in_.file(name)});
    const Outcome outcome = convert(kTale, quick(std::move(more)));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return in_.read(name);
  };
  const std::string plain = saved("plain", {});
  ASSERT_FALSE(plain.empty());
  EXPECT_EQ(saved("head", {"--head-type", "2bit"}), plain);
  EXPECT_EQ(saved("compressed", {"--compress", "zstd", "--head-type", "q6_k"}), plain);
}

// Makes a copy of the bundled model in which a layer adds nothing to the residual stream: the
// matrices that write into it are zero.
void write_without_layer(const TemporaryFolder& folder, std::uint32_t layer) {
  for (const auto& entry : std::filesystem::directory_iterator(kModel)) {
    std::filesystem::copy(entry.path(), folder.path());
  }
  std::string file = folder.read("model.safetensors");
  const auto header_bytes = load_le<std::uint64_t>(as_bytes(file), 0);
  for (const char* matrix : {".self_attn.o_proj.weight", ".mlp.down_proj.weight"}) {
    const std::string name = "\"model.layers." + std::to_string(layer) + matrix + "\"";
    const std::size_t at = file.find(name);
    ASSERT_LT(at, header_bytes) << name;
    std::size_t first = 0;
    std::size_t last = 0;
    const std::size_t offsets = file.find("[", file.find("data_offsets", at));
    ASSERT_EQ(std::sscanf(file.c_str() + offsets, "[%zu,%zu]", &first, &last), 2) << name;
    std::fill(file.begin() + static_cast<long>(8 + header_bytes + first),
              file.begin() + static_cast<long>(8 + header_bytes + last), '\0');
  }
  folder.write("model.safetensors", file);
}

// Returns the perplexity of the tale.
double perplexity(const std::string& model) {
  const TemporaryFolder scratch;
  const Outcome outcome = finish(
      scratch, start_tool(scratch, {"qsf-perplexity", "--context", "128", "--file", kTale, model}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::size_t at = outcome.out.rfind("PPL = ");
  EXPECT_NE(at, std::string::npos) << outcome.out;
  return at == std::string::npos ? 0.0 : std::strtod(outcome.out.c_str() + at + 6, nullptr);
}

// What the index says of layers is what leaving them out by hand shows.
TEST_F(QsfConvertCalibrationTest, TheLeastImportantLayerIsMissedLeast) {
  ASSERT_EQ(convert(kTale, quick({})).code, 0);
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader);
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  for (std::uint32_t layer = 1; layer < reader->spec().n_layers; ++layer) {
    const float importance = reader->layer(layer).importance;
    if (importance < reader->layer(least).importance) least = layer;
    if (importance > reader->layer(most).importance) most = layer;
  }
  ASSERT_NE(least, most);
  const auto without = [&](std::uint32_t layer) {
    const TemporaryFolder folder;
    write_without_layer(folder, layer);
    EXPECT_EQ(run({"--quant-type", "f16", folder.path(), out_.file("w.qsf")}).code, 0);
    return perplexity(out_.file("w.qsf"));
  };
  ASSERT_EQ(run({"--quant-type", "f16", kModel, out_.file("whole.qsf")}).code, 0);
  const double whole = perplexity(out_.file("whole.qsf"));
  const double without_least = without(least);
  EXPECT_GT(without_least, whole);
  EXPECT_GT(without(most), 2 * without_least);
}

TEST_F(QsfConvertCalibrationTest, FloatsHaveImportanceOfLayersAlone) {
  const Outcome outcome =
      run({"--quant-type", "f16", "--calibration", kTale, "--calibration-tokens", "32",
           "--calibration-context", "32", kModel, out_.file("m.qsf")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto reader = QsfReader::open(out_.file("m.qsf"));
  ASSERT_TRUE(reader);
  EXPECT_FALSE(reader->spec().calibrated);
  EXPECT_GT(reader->layer(0).importance, 0.0F);
}

TEST_F(QsfConvertCalibrationTest, AShortTextIsTakenWithAWarning) {
  in_.write("short.txt", "Once upon a time there was a king.");
  const Outcome outcome = convert(in_.file("short.txt"), quick({"--quiet"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("tokens are few for a calibration"));
}

TEST_F(QsfConvertCalibrationTest, WhatIsNoTextIsRefused) {
  expect_failure(convert(in_.file("missing"), {}), 1, "missing");
  in_.write("empty", "");
  expect_failure(convert(in_.file("empty"), {}), 1, "empty: the text is empty");
  in_.write("binary", std::string("ab\0c", 4));
  expect_failure(convert(in_.file("binary"), {}), 1, "byte 2 is zero");
  in_.write("saved", "QSFC and nothing that could follow");
  expect_failure(convert_saved(in_.file("saved"), {}), 1, "saved: ");
  expect_failure(convert(in_.path(), {}), 1, in_.path());
  EXPECT_THAT(out_.names(), IsEmpty());
}

TEST_F(QsfConvertCalibrationTest, OtherModelsAreRefused) {
  ASSERT_EQ(convert(kTale, quick({"--calibration-out", in_.file("saved")})).code, 0);
  const TemporaryFolder tiny;
  write_model(tiny, kTinyLlamaConfig, tiny_llama_tensors());
  const std::string out = out_.file("n.qsf");
  expect_failure(run({"--calibration", in_.file("saved"), tiny.path(), out}), 1, "another model");
  expect_failure(run({"--calibration", kTale, tiny.path(), out}), 1, "no tokenizer");
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
}

TEST_F(QsfConvertCalibrationTest, OptionsThatMakeNoSenseAreRefused) {
  const std::string out = out_.file("m.qsf");
  for (const char* option :
       {"--calibration-out", "--calibration-tokens", "--calibration-context"}) {
    expect_failure(run({option, "100", kModel, out}), 2, "needs --calibration");
  }
  expect_failure(run({"--random", "tiny", "--calibration", kTale, out}), 2, "--random");
  expect_failure(convert(kTale, {"--ram-budget", "0"}), 2, "--ram-budget");
  expect_failure(run({"--calibration", kTale, "--calibration-context", "1", kModel, out}), 2,
                 "--calibration-context");
  in_.write("text", "Once upon a time there was a king who had three sons.");
  expect_failure(convert(in_.file("text"), {"--calibration-out", in_.file("text")}), 1,
                 "choose another name");
  expect_failure(convert(in_.file("text"), {"--calibration-out", out}), 1, "choose another name");
  in_.write("saved", "QSFC");
  expect_failure(convert_saved(in_.file("saved"), {"--calibration-out", out_.file("x")}), 1,
                 "saved already");
  for (const char* option : {"--calibration-tokens", "--calibration-context"}) {
    expect_failure(convert_saved(in_.file("saved"), {option, "100"}), 1,
                   std::string(option) + " needs a text");
  }
  EXPECT_THAT(in_.read("text"), HasSubstr("three sons"));
  EXPECT_THAT(out_.names(), IsEmpty());
}

// What is calibrated with is not written over.
TEST_F(QsfConvertCalibrationTest, TheOutputIsNoFileOfTheCalibration) {
  in_.write("text", "Once upon a time there was a king who had three sons.");
  in_.write("saved", "QSFC");
  std::filesystem::create_symlink(in_.file("text"), in_.file("link"));
  for (const auto& [calibration, out] : std::vector<std::pair<const char*, const char*>>{
           {"text", "text"}, {"text", "link"}, {"link", "text"}, {"saved", "saved"}}) {
    const Outcome outcome = run({"--calibration", in_.file(calibration), kModel, in_.file(out)});
    expect_failure(outcome, 1, "choose another output");
  }
  EXPECT_THAT(in_.read("text"), HasSubstr("three sons"));
  EXPECT_EQ(in_.read("saved"), "QSFC");
  EXPECT_THAT(in_.names(), ElementsAre("link", "saved", "text"));
}

// What cannot be written is refused before the model runs: the text, which is none, would be
// refused then.
TEST_F(QsfConvertCalibrationTest, FilesThatCannotBeWrittenAreRefusedFirst) {
  in_.write("empty", "");
  const std::string missing = out_.file("missing/file");
  for (const std::string& path : {out_.path(), std::string("/dev/full"), missing}) {
    expect_failure(convert(in_.file("empty"), {"--calibration-out", path}), 1,
                   "--calibration-out: " + path);
    expect_failure(run({"--calibration", in_.file("empty"), kModel, path}), 1, path);
  }
  EXPECT_THAT(out_.names(), IsEmpty());
}

// First by the conversion, then by what runs the model; whoever follows them has a file.
TEST_F(QsfConvertCalibrationTest, RefusedBudgetsNameOneThatGoesOn) {
  std::string budget = "5";
  for (const char* names : {"raise the budget to ", "needs "}) {
    const Outcome refused = convert(kTale, {"--gptq", "--ram-budget", budget});
    expect_failure(refused, 1, "--ram-budget " + budget + ".0 MB: ");
    const std::size_t at = refused.err.find(names);
    ASSERT_NE(at, std::string::npos) << refused.err;
    budget =
        std::to_string(std::strtoul(refused.err.c_str() + at + std::strlen(names), nullptr, 10));
  }
  EXPECT_THAT(out_.names(), IsEmpty());
  const Outcome outcome = convert(kTale, {"--gptq", "--ram-budget", budget});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(QsfConvertCalibrationTest, KeepsWithinTheBudget) {
  expect_failure(convert(kTale, {"--ram-budget", "5"}), 1, "raise the budget to");
  EXPECT_THAT(out_.names(), IsEmpty());
  const Outcome bound = convert(kTale, quick({"--ram-budget", std::to_string(kBudgetMb),
                                              "--calibration-out", in_.file("bound")}));
  ASSERT_EQ(bound.code, 0) << bound.err;
  const Outcome free = convert(kTale, quick({"--calibration-out", in_.file("free")}), "n.qsf");
  ASSERT_EQ(free.code, 0) << free.err;
  EXPECT_EQ(in_.read("bound"), in_.read("free"));
  EXPECT_EQ(out_.read("m.qsf"), out_.read("n.qsf"));
  if (!kMeasuresPeaks) return;
  EXPECT_LE(bound.peak_bytes, kBudgetMb * 1'000'000);
  EXPECT_GT(free.peak_bytes, bound.peak_bytes) << "all weights fit: this test shows nothing";
}

// Feeding errors back changes matrices, a tied embedding among them, the same way at any number of
// threads and in any budget.
TEST_F(QsfConvertCalibrationTest, ErrorsAreFedBack) {
  for (const auto& [name, more] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"plain.qsf", {}},
           {"one.qsf", {"--gptq", "--threads", "1"}},
           {"two.qsf", {"--gptq", "--threads", "2", "--ram-budget", std::to_string(kGptqBudgetMb)}},
           {"parts.qsf", {"--gptq", "--ram-budget", std::to_string(kSmallGptqBudgetMb)}}}) {
    const Outcome outcome = convert(kTale, more, name);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_THAT(out_.names(), ElementsAre("one.qsf", "parts.qsf", "plain.qsf", "two.qsf"));
  EXPECT_EQ(out_.read("one.qsf"), out_.read("two.qsf"));
  EXPECT_EQ(out_.read("one.qsf"), out_.read("parts.qsf"));
  const auto plain = QsfReader::open(out_.file("plain.qsf"));
  const auto fed_back = QsfReader::open(out_.file("one.qsf"));
  ASSERT_TRUE(plain && fed_back);
  EXPECT_TRUE(fed_back->spec().calibrated);
  for (std::size_t s = 0; s < plain->directories().size(); ++s) {
    const SectionDirectory& a = plain->directories()[s];
    const SectionDirectory& b = fed_back->directories()[s];
    EXPECT_EQ(a.crc == b.crc, a.kind == SectionKind::kFinal) << s;
  }
}

TEST_F(QsfConvertCalibrationTest, FeedbackNeedsAText) {
  ASSERT_EQ(convert(kTale, {"--calibration-out", in_.file("saved")}).code, 0);
  expect_failure(convert_saved(in_.file("saved"), {"--gptq"}), 1, "--gptq needs a text");
  expect_failure(run({"--gptq", kModel, out_.file("n.qsf")}), 2, "--gptq needs --calibration");
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
}

// The file that is run loses its name once it is open; after that even a killed process leaves
// nothing.
TEST_F(QsfConvertCalibrationTest, SignalsLeaveNothing) {
  std::string text;
  while (text.size() < 400000) text += "Once upon a time there was a king who had three sons. ";
  in_.write("long.txt", text);
  for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
    const TemporaryFolder scratch;
    const pid_t child = start(
        scratch, {"--calibration", in_.file("long.txt"), kModel, out_.file("m.qsf")}, kNoLimit);
    const bool runs = wait_for_file(out_, child, FileState::kRemoved);
    kill(child, number);
    const Outcome outcome = finish(scratch, child);
    ASSERT_TRUE(runs) << outcome.err;
    if (number == SIGKILL) {
      EXPECT_EQ(outcome.code, -1);
    } else {
      EXPECT_EQ(outcome.code, 1) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr("cancel"));
    }
    EXPECT_THAT(out_.names(), IsEmpty()) << number;
  }
}

// The same while it is written.
TEST_F(QsfConvertCalibrationTest, SignalsLeaveNothingOfTheCopy) {
  for (const int number : {SIGTERM, SIGKILL}) {
    const TemporaryFolder scratch;
    const pid_t child = start(
        scratch, {"--threads", "1", "--calibration", kTale, kModel, out_.file("m.qsf")}, kNoLimit);
    const bool runs = wait_for_file(out_, child, FileState::kInTheMaking);
    kill(child, number);
    const Outcome outcome = finish(scratch, child);
    ASSERT_TRUE(runs) << outcome.err;
    EXPECT_EQ(outcome.code, number == SIGKILL ? -1 : 1) << outcome.err;
    if (number == SIGTERM) {
      EXPECT_THAT(outcome.err, HasSubstr("the conversion was interrupted"));
    }
    EXPECT_THAT(out_.names(), IsEmpty());
  }
}

}  // namespace
}  // namespace qsf
