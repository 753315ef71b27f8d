// SPDX-License-Identifier: MIT
//
// Conversations that leave memory and come back from files: a text is the same bytes whether its
// prompt is computed, found in memory or read, and whatever is wrong with a file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/engine_impl.h"
#include "engine/testing/prefix_texts.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;
using testing::HasSubstr;

class PrefixFolderEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = temporary_path("prefix_folder_engine");
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  void TearDown() override { fs::remove_all(path_); }

  // KV pages for little more than one conversation.
  EngineOptions options(std::uint32_t n_sequences = 2) {
    EngineOptions options = step_options(n_sequences);
    options.max_context = 256;
    options.kv_positions = 256;
    options.prefix_cache = true;
    options.prefix_folder = path_;
    options.prefix_folder_bytes = 1U << 30U;
    options.file_ops = &ops_;
    options.log = {[](LogLevel level, std::string_view line, void* user) {
                     if (level != LogLevel::kWarning) return;
                     static_cast<std::vector<std::string>*>(user)->emplace_back(line);
                   },
                   &warnings_};
    return options;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> names;
    for (const auto& file : fs::directory_iterator(path_)) names.push_back(file.path());
    return names;
  }

  std::string path_;
  FaultyFileOps ops_;
  std::vector<std::string> warnings_;
};

// Has others take the memory of every conversation so far.
void crowd_out(Engine& engine) {
  for (const char* const start : {"A fox said. ", "A king came. "}) {
    run(engine, tale(3, start), sampled(20, "others"));
  }
}

TEST_F(PrefixFolderEngineTest, TextsAreTheSameComputedFromMemoryAndFromFiles) {
  const std::string prompt = tale(3) + "The king";
  for (const KvType type : kAllKvTypes) {
    SCOPED_TRACE(std::string(kv_type_name(type)));
    EngineOptions wanted = options();
    wanted.k_type = wanted.v_type = type;
    {
      const std::unique_ptr<Engine> engine = open_bundled(wanted);
      const Outcome cold = run(*engine, prompt);
      EXPECT_EQ(cold.cached_tokens, 0U);
      const Outcome warm = run(*engine, prompt);
      EXPECT_GE(warm.cached_tokens, 128U);
      EXPECT_EQ(warm.text, cold.text);
      EXPECT_EQ(engine->prefix_stats().n_folder_hits, 0U);
      crowd_out(*engine);
      const Outcome read = run(*engine, prompt);
      EXPECT_EQ(read.text, cold.text);
      EXPECT_EQ(read.cached_tokens, warm.cached_tokens);
      const PrefixCacheStats stats = engine->prefix_stats();
      EXPECT_EQ(stats.n_folder_hits, 1U);
      EXPECT_EQ(stats.n_folder_hit_tokens, read.cached_tokens);
      EXPECT_EQ(stats.tree.n_hits, 2U);
      EXPECT_EQ(stats.folder.n_dropped, 0U);
      EXPECT_EQ(run(*engine, prompt).text, cold.text);  // in memory again
      EXPECT_EQ(engine->prefix_stats().n_folder_hits, 1U);
      // A prompt that goes on.
      const Outcome longer = run(*engine, prompt + " and his daughter");
      crowd_out(*engine);
      const Outcome longer_read = run(*engine, prompt + " and his daughter");
      EXPECT_EQ(longer_read.text, longer.text);
      EXPECT_GE(longer_read.cached_tokens, 128U);
    }
    EXPECT_TRUE(files().empty()) << "files are removed with the engine";
  }
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PrefixFolderEngineTest, KeysShareNoFiles) {
  const std::unique_ptr<Engine> engine = open_bundled(options());
  const Outcome cold = run(*engine, tale(3), sampled(20, "one"));
  crowd_out(*engine);
  const Outcome other = run(*engine, tale(3), sampled(20, "two"));
  EXPECT_EQ(other.cached_tokens, 0U);
  EXPECT_EQ(other.text, cold.text);
  crowd_out(*engine);
  EXPECT_GT(run(*engine, tale(3), sampled(20, "one")).cached_tokens, 0U);
}

TEST_F(PrefixFolderEngineTest, TheFolderHoldsNoMoreThanItsBound) {
  EngineOptions wanted = options();
  const std::uint64_t file_bytes = [&] {
    const std::unique_ptr<Engine> engine = open_bundled(wanted);
    return PrefixFolder::kHeaderBytes + engine->impl().kv->shape().page_bytes();
  }();
  wanted.prefix_folder_bytes = 3 * file_bytes;
  const std::unique_ptr<Engine> engine = open_bundled(wanted);
  for (int i = 0; i < 12; ++i) {
    run(*engine, tale(3, "Number " + std::to_string(i % 5) + ". "));
    EXPECT_LE(files().size(), 3U);
  }
  EXPECT_GT(engine->prefix_stats().folder.n_removed, 0U);
}

TEST_F(PrefixFolderEngineTest, BadFilesAreComputedInstead) {
  EngineOptions wanted = options();
  wanted.rows_per_pass = 40;  // a page that was read in vain is then computed in parts
  const std::unique_ptr<Engine> engine = open_bundled(wanted);
  const Outcome cold = run(*engine, tale(3));
  std::uint64_t n_errors = 0;
  for (const char* const harm : {"flip", "nan", "cut", "remove", "swap", "unreadable"}) {
    SCOPED_TRACE(harm);
    crowd_out(*engine);
    const std::vector<fs::path> all = files();
    ASSERT_GE(all.size(), 2U);
    for (const fs::path& file : all) {
      const std::string what = harm;
      if (what == "cut") fs::resize_file(file, fs::file_size(file) - 1);
      if (what == "remove") fs::remove(file);
      if (what == "nan") {
        std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekp(PrefixFolder::kHeaderBytes);
        bytes << std::string(fs::file_size(file) - PrefixFolder::kHeaderBytes, '\xFF');
      }
      if (what == "swap" && file != all[0])
        fs::copy_file(all[0], file, fs::copy_options::overwrite_existing);
      if (what != "flip" && !(what == "swap" && file == all[0])) continue;
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(1000);
      const int old = bytes.get();
      bytes.seekp(1000);
      bytes.put(static_cast<char>(old ^ 4));
    }
    if (std::string(harm) == "unreadable") ops_.plan.read_error_at = 100;
    const Outcome again = run(*engine, tale(3));
    ops_.plan = {};
    EXPECT_EQ(again.text, cold.text);
    EXPECT_EQ(again.cached_tokens, 0U);
    EXPECT_GT(engine->prefix_stats().folder.n_read_errors, n_errors);
    n_errors = engine->prefix_stats().folder.n_read_errors;
  }
  EXPECT_EQ(warnings_.size(), 1U);
}

// The first page is read, the second is damaged: what follows is computed.
TEST_F(PrefixFolderEngineTest, APromptIsReadUpToTheFirstBadFile) {
  EngineOptions wanted = options();
  const std::unique_ptr<Engine> engine = open_bundled(wanted);
  const Outcome cold = run(*engine, tale(3));
  crowd_out(*engine);
  const PrefixPath first = engine->impl().prefix_folder->path_of(
      engine->impl().prefix_folder->path_of("key"),
      std::span<const TokenId>(encode(*engine, tale(3))).first(kKvPageSlots));
  ASSERT_TRUE(engine->impl().prefix_folder->holds(first));
  // Leaves go first, so the file of the first page is newer than that of the second.
  std::vector<fs::path> all = files();
  std::sort(all.begin(), all.end());
  fs::resize_file(all[0], 1);
  const Outcome again = run(*engine, tale(3));
  EXPECT_EQ(again.text, cold.text);
  EXPECT_EQ(again.cached_tokens, kKvPageSlots);
  EXPECT_EQ(engine->prefix_stats().n_folder_hit_tokens, kKvPageSlots);
}

TEST_F(PrefixFolderEngineTest, AFullDiskChangesNoText) {
  const std::unique_ptr<Engine> engine = open_bundled(options());
  const Outcome cold = run(*engine, tale(3));
  ops_.plan.disk_bytes = 5000;
  crowd_out(*engine);
  const Outcome again = run(*engine, tale(3));
  EXPECT_EQ(again.text, cold.text);
  EXPECT_EQ(again.cached_tokens, 0U);
  EXPECT_TRUE(files().empty());
  EXPECT_GT(engine->prefix_stats().folder.n_write_errors, 0U);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_.front(), HasSubstr("No space left"));
}

// A prompt of more pages than a pass reads; the engine has room for it and a text beside it.
class LongPromptTest : public PrefixFolderEngineTest {
 protected:
  void SetUp() override {
    PrefixFolderEngineTest::SetUp();
    EngineOptions wanted = options(3);
    wanted.max_context = 1024;
    wanted.kv_positions = 1600;
    wanted.rows_per_pass = 128;
    engine_ = open_bundled(wanted);
    prompt_ = tale(12);
    const std::size_t n_tokens = encode(*engine_, prompt_).size();
    n_pages_ = static_cast<std::uint32_t>((n_tokens - 1) / kKvPageSlots);
    ASSERT_GT(n_pages_, PrefixFolder::kPagesPerPass);
    ASSERT_LT(n_tokens + 20, 1024U);
    cold_ = run(*engine_, prompt_);
    for (const char* const start : {"A fox said. ", "A king came. ", "A queen slept. "}) {
      run(*engine_, tale(12, start), sampled(20, "others"));
    }
    member_ = std::make_unique<Member>(*engine_, prompt_, sampled());
  }
  // Runs it to its end, and expects the text of the computed prompt.
  void expect_same_text() {
    Generation* const generation = member_->generation.get();
    run_to_end(*engine_, {&generation, 1});
    EXPECT_EQ(member_->text, cold_.text);
    EXPECT_TRUE(engine_->impl().prefix_tree->is_consistent());
    EXPECT_TRUE(engine_->impl().kv->is_consistent());
  }

  std::unique_ptr<Engine> engine_;
  std::string prompt_;
  std::uint32_t n_pages_ = 0;
  Outcome cold_;
  std::unique_ptr<Member> member_;
};

TEST_F(LongPromptTest, IsReadOverPassesThatOthersShare) {
  Member beside(*engine_, std::size_t{1}, 40);
  Generation* const both[] = {member_->generation.get(), beside.generation.get()};
  ASSERT_TRUE(engine_->step({&both[1], 1}).has_value());
  StepCounts counts = engine_->step(both).value();
  EXPECT_EQ(counts.n_reading, 1U);
  EXPECT_EQ(counts.prompt_rows, 0U);
  EXPECT_EQ(counts.generated_rows, 1U);
  EXPECT_EQ(member_->session->length(), PrefixFolder::kPagesPerPass * kKvPageSlots);
  counts = engine_->step(both).value();
  EXPECT_EQ(counts.n_reading, 0U);
  EXPECT_GT(counts.prompt_rows, 0U);
  EXPECT_EQ(counts.generated_rows, 1U);
  EXPECT_EQ(member_->generation->result().cached_tokens, n_pages_ * kKvPageSlots);
  run_to_end(*engine_, both);
  EXPECT_EQ(beside.text, text_alone(1));
  expect_same_text();
}

TEST_F(LongPromptTest, AStepMayReadAlone) {
  Generation* const generation = member_->generation.get();
  const StepCounts counts = engine_->step({&generation, 1}).value();
  EXPECT_EQ(counts.n_reading, 1U);
  EXPECT_EQ(counts.prompt_rows + counts.generated_rows + counts.n_finished + counts.n_waiting, 0U);
  expect_same_text();
  EXPECT_EQ(engine_->prefix_stats().n_folder_hits, 1U);
}

TEST_F(LongPromptTest, MayBeParkedWhileItIsRead) {
  Generation* const generation = member_->generation.get();
  ASSERT_TRUE(engine_->step({&generation, 1}).has_value());
  ASSERT_TRUE(generation->park(path_ + ".session").ok());
  EXPECT_EQ(engine_->step({&generation, 1}).value().n_reading, 0U);
  ASSERT_TRUE(generation->resume().ok());
  expect_same_text();
}

TEST_F(LongPromptTest, MayBeCancelledAndFreedWhileItIsRead) {
  Generation* const generation = member_->generation.get();
  ASSERT_TRUE(engine_->step({&generation, 1}).has_value());
  generation->cancel();
  ASSERT_TRUE(engine_->step({&generation, 1}).has_value());
  EXPECT_TRUE(generation->finished());
  EXPECT_EQ(generation->result().reason, StopReason::kCancelled);
  EXPECT_EQ(member_->session->length(), 0U);
  member_ = std::make_unique<Member>(*engine_, prompt_, sampled());
  Generation* const second = member_->generation.get();
  ASSERT_TRUE(engine_->step({&second, 1}).has_value());
  member_.reset();
  EXPECT_TRUE(engine_->impl().prefix_tree->is_consistent());
  EXPECT_TRUE(engine_->impl().kv->is_consistent());
  member_ = std::make_unique<Member>(*engine_, prompt_, sampled());
  expect_same_text();
}

TEST_F(LongPromptTest, TakesAPromptInsteadOfReadingIt) {
  Member twin(*engine_, prompt_, sampled());
  ASSERT_TRUE(twin.generation->admit().ok());
  Generation* const generation = member_->generation.get();
  while (member_->session->length() < encode(*engine_, prompt_).size()) {
    ASSERT_FALSE(generation->finished());
    ASSERT_TRUE(engine_->step({&generation, 1}).has_value());
  }
  EXPECT_TRUE(twin.generation->is_reading());
  EXPECT_EQ(twin.generation->take_prompt(*member_->session).value(),
            encode(*engine_, prompt_).size() - 1);
  EXPECT_FALSE(twin.generation->is_reading());
  Generation* const second = twin.generation.get();
  run_to_end(*engine_, {&second, 1});
  EXPECT_EQ(twin.text, cold_.text);
  expect_same_text();
}

TEST_F(PrefixFolderEngineTest, StepsAllocateNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  EngineOptions wanted = options(1);
  wanted.file_ops = nullptr;
  const std::unique_ptr<Engine> engine = open_bundled(wanted);
  run(*engine, tale(3));
  crowd_out(*engine);
  Member member(*engine, tale(3), sampled(100));
  member.text.reserve(4000);
  Generation* const generation = member.generation.get();
  const std::uint64_t n_written = engine->prefix_stats().folder.n_written_bytes;
  const std::uint64_t n_evicted = engine->prefix_stats().tree.n_evicted_pages;
  ASSERT_TRUE(generation->admit().ok());
  const long before = n_allocations();
  while (!generation->finished()) ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  EXPECT_EQ(n_allocations(), before);
  EXPECT_GE(generation->result().cached_tokens, 128U);
  EXPECT_GT(engine->prefix_stats().tree.n_evicted_pages, n_evicted);
  EXPECT_GT(engine->prefix_stats().folder.n_written_bytes, n_written);
}

TEST_F(PrefixFolderEngineTest, IsRefusedWhereItCannotBe) {
  const auto refusal = [](const EngineOptions& options) {
    return std::string(Engine::open(kBundled, options).error().message());
  };
  EngineOptions wanted = options();
  wanted.prefix_cache = false;
  EXPECT_THAT(refusal(wanted), HasSubstr("prefix_folder: needs the prefix cache"));
  wanted = options();
  wanted.kv_spill_path = path_ + "/spill";
  EXPECT_THAT(refusal(wanted), HasSubstr("prefix_folder with kv_spill"));
  wanted = options();
  wanted.prefix_folder_bytes = 1000;
  EXPECT_THAT(refusal(wanted), HasSubstr("prefix_folder: 1000 bytes, expected room for a page"));
  wanted = options();
  wanted.prefix_folder = path_ + "/none";
  EXPECT_THAT(refusal(wanted), HasSubstr("no folder"));
}

}  // namespace
}  // namespace qsf
