// SPDX-License-Identifier: MIT
//
// qsf-convert --work-folder as a user runs it: killed again and again it goes on, and the file is
// that of one run; what is another conversion's, or nobody's, is refused and kept.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "import/testing/adapter_folder.h"
#include "import/testing/hf_folder.h"
#include "tools/testing/convert_tool.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace testing_support;

class QsfConvertWorkTest : public testing::Test {
 protected:
  // Feeds errors back by a small calibration. Windows are many, so that there is time between them.
  std::vector<std::string> arguments(std::vector<std::string> more,
                                     const std::string& type = "3bit-super") {
    for (const std::string& argument :
         {std::string("--quant-type"), type, std::string("--calibration"), kTale,
          std::string("--calibration-context"), std::string("8"),
          std::string("--calibration-tokens"), std::string("192"), std::string("--gptq"), model_,
          out_.file("m.qsf")}) {
      more.push_back(argument);
    }
    more.insert(more.begin(), merging_.begin(), merging_.end());
    return more;
  }
  std::vector<std::string> resumable(const std::string& type = "3bit-super") {
    return arguments({"--work-folder", folder_}, type);
  }
  bool has(const std::string& name) const { return std::filesystem::exists(folder_ + "/" + name); }
  // Starts a conversion and kills it when the folder has such a file. Returns whether it came to
  // it.
  bool kill_at(const std::string& name, int number) {
    const TemporaryFolder scratch;
    const pid_t child = start(scratch, resumable(), kNoLimit);
    const bool runs = wait_for(child, [&] { return has(name); });
    kill(child, number);
    const Outcome outcome = finish(scratch, child);
    if (number == SIGTERM) {
      EXPECT_EQ(outcome.code, 1);
      EXPECT_THAT(outcome.err, HasSubstr("interrupted; progress is saved in " + folder_));
    }
    return runs;
  }
  std::string convert_at_once() {
    const Outcome outcome = run(arguments({}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::string bytes = out_.read("m.qsf");
    std::filesystem::remove(out_.file("m.qsf"));
    return bytes;
  }
  // Leaves a folder in which the first layer is done.
  void interrupt() { ASSERT_TRUE(kill_at("section-layer-0", SIGKILL)); }

  TemporaryFolder in_;
  TemporaryFolder out_;
  std::string model_ = kModel;
  std::vector<std::string> merging_;  // options of adapters
  const std::string folder_ = in_.file("work");
};

TEST_F(QsfConvertWorkTest, KilledAgainAndAgainItGivesTheBytesOfOneRun) {
  const std::string want = convert_at_once();
  for (const auto& [stage, number] : {std::pair{"calibrating", SIGKILL},
                                      {"calibration", SIGTERM},
                                      {"rows", SIGKILL},
                                      {"section-layer-0", SIGTERM},
                                      {"section-layer-2", SIGKILL},
                                      {"section-layer-3", SIGKILL}}) {
    ASSERT_TRUE(kill_at(stage, number)) << stage;
    EXPECT_THAT(out_.names(), IsEmpty()) << stage;
  }
  const Outcome last = run(resumable());
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("resuming from " + folder_ + ": "));
  EXPECT_THAT(last.err, Not(HasSubstr(": 0 of")));
  EXPECT_TRUE(out_.read("m.qsf") == want) << "other bytes";
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(QsfConvertWorkTest, UninterruptedItGivesTheSameBytesAndLeavesNothing) {
  const std::string want = convert_at_once();
  const Outcome outcome = run(resumable());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("resuming from")));
  EXPECT_TRUE(out_.read("m.qsf") == want) << "other bytes";
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

// What stands in the folder is what is taken: damage to any of it is seen.
TEST_F(QsfConvertWorkTest, DamageIsTold) {
  interrupt();
  for (const char* name : {"section-embedding", "section-layer-0", "calibration"}) {
    const std::string path = folder_ + "/" + name;
    const std::string kept = in_.read(std::string("work/") + name);
    std::string damaged = kept;
    damaged[damaged.size() / 2] ^= 0x10;
    in_.write(std::string("work/") + name, damaged);
    const Outcome outcome = run(resumable());
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(path + ": "));
    EXPECT_THAT(outcome.err, HasSubstr("remove this file and run again"));
    in_.write(std::string("work/") + name, kept);
  }
  const Outcome outcome = run(resumable());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(QsfConvertWorkTest, AnotherConversionIsRefusedAndItsFolderKept) {
  interrupt();
  expect_failure(
      run(resumable("2bit-super")), 1,
      "belongs to another conversion, which has \"--quant-type: 3bit-super\" where this one has "
      "\"--quant-type: 2bit-super\"");
  std::vector<std::string> rotated = resumable();
  rotated.insert(rotated.begin(), {"--rotate", "values"});
  expect_failure(run(rotated), 1, "belongs to another conversion, which has \"model: ");
  std::vector<std::string> other_types = resumable();
  other_types.insert(other_types.begin(), {"--tensor-type", "ffn_down=8bit"});
  expect_failure(run(other_types), 1, "another conversion, which has \"--tensor-type:\" where");
  std::vector<std::string> other_text = resumable();
  in_.write("other.txt", "Once upon a time there was a king who had three sons.");
  std::ranges::replace(other_text, kTale, in_.file("other.txt"));
  expect_failure(run(other_text), 1, "belongs to another conversion, which has \"--calibration: ");
  const Outcome outcome = run(resumable());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("resuming from"));
}

// What is no weight decides as well what calibration sees.
TEST_F(QsfConvertWorkTest, AnotherConfigurationOrTokenizerIsRefused) {
  model_ = in_.file("model");
  std::filesystem::copy(kModel, model_);
  interrupt();
  for (const auto& [name, from, to, line] :
       {std::array{"config.json", ": 10000.0", ": 20000.0", "constants: checksum "},
        {"tokenizer_config.json", "_token\": true", "_token\": false", "tokenizer: "}}) {
    const std::string file = std::string("model/") + name;
    const std::string whole = in_.read(file);
    const std::size_t at = whole.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    in_.write(file, std::string(whole).replace(at, std::string(from).size(), to));
    expect_failure(run(resumable()), 1,
                   std::string("belongs to another conversion, which has \"") + line);
    in_.write(file, whole);
  }
}

// A process may be killed in the moment in which a file has a temporary name.
// The model is identified by its first rows, which this adapter does not change.
TEST_F(QsfConvertWorkTest, AnotherAdapterIsAnotherConversion) {
  TestTensors pair;
  Rng rng(8);
  add_lora_pair("model.layers.5.self_attn.v_proj", 256, 128, 3, rng, pair);
  std::vector<float>& b =
      pair["base_model.model.model.layers.5.self_attn.v_proj.lora_B.weight"].values;
  std::fill(b.begin(), b.begin() + 3 * 64, 0.0F);
  const TemporaryFolder adapter;
  write_adapter(adapter, kTinyPeftConfig, pair);
  const std::string without = convert_at_once();
  merging_ = {"--merge-lora", adapter.path()};
  const std::string at_once = convert_at_once();
  EXPECT_NE(at_once, without);
  interrupt();
  merging_.back() += ":0.5";
  expect_failure(run(resumable()), 1, "which has \"--merge-lora: 1 adapters, checksum ");
  merging_.back() = adapter.path();
  const Outcome outcome = run(resumable());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(out_.read("m.qsf"), at_once);
}

TEST_F(QsfConvertWorkTest, FilesInTheMakingAreRemoved) {
  interrupt();
  for (const char* name : {"calibration.tmp-12-0", "section-layer-1.tmp-12-3", "rows.tmp-1-1"}) {
    in_.write(std::string("work/") + name, "half of");
  }
  ASSERT_TRUE(kill_at("section-layer-2", SIGKILL));
  EXPECT_FALSE(has("calibration.tmp-12-0") || has("section-layer-1.tmp-12-3"));
  in_.write("work/conversion.tmp-12-1", "half of");
  const Outcome outcome = run(resumable());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

// Files that are called like ours are not: what was calibrated by somebody, on another text.
TEST_F(QsfConvertWorkTest, FilesOfOurNamesWithoutAConversionAreStrange) {
  interrupt();
  std::filesystem::remove(folder_ + "/conversion");
  expect_failure(run(resumable()), 1, "which is no file of a conversion");
  EXPECT_TRUE(has("calibration") && has("section-layer-0"));
}

TEST_F(QsfConvertWorkTest, ResultsInTheFolderAreRefused) {
  std::filesystem::create_directory(folder_);
  for (const char* option : {"--calibration-out", "--report"}) {
    std::vector<std::string> inside = resumable();
    inside.insert(inside.begin(), {option, folder_ + "/section-result"});
    expect_failure(run(inside), 1,
                   "would hold " + folder_ + "/section-result, and is removed at the end");
  }
  std::vector<std::string> inside = resumable();
  inside.back() = folder_ + "/calibration";
  expect_failure(run(inside), 1,
                 "would hold " + folder_ + "/calibration, and is removed at the end");
}

TEST_F(QsfConvertWorkTest, AFolderInWhichNothingWasKeptIsRemoved) {
  std::vector<std::string> useless = resumable();
  std::ranges::replace(useless, kTale, in_.file("empty.txt"));
  in_.write("empty.txt", "");
  expect_failure(run(useless), 1, "empty.txt");
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(QsfConvertWorkTest, ALinkedFolderIsEmptiedAndStays) {
  const TemporaryFolder elsewhere;
  std::filesystem::create_directory_symlink(elsewhere.path(), folder_);
  interrupt();
  EXPECT_THAT(elsewhere.names(), Not(IsEmpty()));
  const Outcome outcome = run(resumable());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(elsewhere.names(), IsEmpty());
  EXPECT_TRUE(std::filesystem::is_symlink(folder_));
}

TEST_F(QsfConvertWorkTest, StrangeFoldersAreRefused) {
  std::filesystem::create_directory(folder_);
  in_.write("work/letter.txt", "Dear Sir");
  expect_failure(run(resumable()), 1, "holds letter.txt, which is no file of a conversion");
  EXPECT_EQ(in_.read("work/letter.txt"), "Dear Sir");
  std::filesystem::remove_all(folder_);
  in_.write("work", "a file");
  expect_failure(run(resumable()), 1, "not a folder");
  std::filesystem::remove(folder_);
  std::vector<std::string> nowhere = arguments({"--work-folder", in_.file("none/work")});
  expect_failure(run(nowhere), 1, "cannot be created");
  expect_failure(run({"--random", "tiny", "--work-folder", folder_, out_.file("m.qsf")}), 2,
                 "--random excludes --work-folder");
  EXPECT_THAT(out_.names(), IsEmpty());
}

// One that was killed a moment ago may hold the lock still.
TEST_F(QsfConvertWorkTest, WaitsForTheEndOfAnother) {
  std::filesystem::create_directory(folder_);
  const std::string name = folder_ + "/lock";
  const int lock = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const TemporaryFolder scratch;
  const pid_t child = start(scratch, resumable(), kNoLimit);
  // Before it is the tool it has our own handle.
  const std::string program = "/proc/" + std::to_string(child) + "/exe";
  ASSERT_TRUE(wait_for_open(child, [&](const std::string& file) {
    return file == name && std::filesystem::read_symlink(program).filename() == "qsf";
  }));
  close(lock);
  const Outcome outcome = finish(scratch, child);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(QsfConvertWorkTest, TwoAtATimeAreRefused) {
  const TemporaryFolder scratch;
  const pid_t child = start(scratch, resumable(), kNoLimit);
  ASSERT_TRUE(wait_for(child, [&] { return has("conversion"); }));
  kill(child, SIGSTOP);
  expect_failure(run(resumable()), 1, "another conversion uses it");
  kill(child, SIGCONT);
  const Outcome outcome = finish(scratch, child);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(out_.names(), ElementsAre("m.qsf"));
}

}  // namespace
}  // namespace qsf
