// SPDX-License-Identifier: MIT
//
// Streamed models end to end: the same logits as a resident one to the last bit, whatever the
// budget, the path, the threads and the compression, and as few reads as promised, counted by the
// pager and by the system.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/testing/streamed_model.h"
#include "stream/testing/pager_reference.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_support::kMB;
using testing_support::kSteps;
using testing_support::named_budget_mb;
using testing_support::Passes;
using testing_support::run_passes;
using testing_support::some_tokens;
using testing_support::StreamedModel;
using testing_support::StreamedShape;
using testing_support::Watchdog;

constexpr StreamedShape kShape{
    .n_layers = 24, .hidden = 512, .ffn = 1408, .n_vocab = 1000, .tile_bytes = 256 << 10};
constexpr std::size_t kPrompt = 12;
constexpr int kPasses = 1 + kSteps;

// Bytes that the system has read from disks for this process; none where it does not say.
std::optional<std::uint64_t> disk_bytes_read() {
  std::ifstream in("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (in >> name >> value) {
    if (name == "read_bytes:") return value;
  }
  return std::nullopt;
}

// Stored bytes of the tiles that a pass with logits multiplies.
std::uint64_t pass_bytes(const QsfReader& reader) {
  std::uint64_t bytes = 0;
  for (std::size_t section = 1; section < reader.directories().size(); ++section) {
    for (const TileInfo& tile : reader.directories()[section].tiles) {
      if (tile.tensor != kOneRowTensors) bytes += tile.stored_bytes;
    }
  }
  return bytes;
}

std::uint64_t embedding_bytes(const QsfReader& reader) {
  std::uint64_t bytes = 0;
  for (const TileInfo& tile : reader.embedding().tiles) bytes += tile.stored_bytes;
  return bytes;
}

const StreamedModel& model(Compression compression) {
  static std::map<Compression, std::unique_ptr<StreamedModel>> models;
  std::unique_ptr<StreamedModel>& made = models[compression];
  if (made == nullptr) {
    StreamedShape shape = kShape;
    shape.compression = compression;
    made = std::make_unique<StreamedModel>(std::string(compression_name(compression)), shape);
  }
  return *made;
}

EngineOptions options_for(ReadPath path, unsigned n_threads, std::uint64_t budget_bytes) {
  EngineOptions options;
  options.n_threads = n_threads;
  options.max_context = 64;
  options.ram_budget_bytes = budget_bytes;
  options.read_path = path;
  return options;
}

// What a resident engine of one thread makes of the file that is stored plain.
const Passes& expected_passes() {
  static const Passes passes = [] {
    const auto engine =
        Engine::open(model(Compression::kNone).path(), options_for(ReadPath::kPread, 1, 0));
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    EXPECT_TRUE((*engine)->plan().residency.everything_resident);
    return run_passes(**engine, kPrompt).value();
  }();
  return passes;
}

// One path and one way of storing.
using Case = std::tuple<ReadPath, Compression>;

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const auto [path, compression] = info.param;
  std::string name =
      std::string(read_path_name(path)) + "_" + std::string(compression_name(compression));
  name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
  return name;
}

class StreamedEngineTest : public testing::TestWithParam<Case> {
 protected:
  ReadPath path() const { return std::get<0>(GetParam()); }
  const StreamedModel& file() const { return model(std::get<1>(GetParam())); }

  // Opens an engine of `budget_bytes` on the path; null, with the reason, where the machine has it
  // not.
  std::unique_ptr<Engine> open(const EngineOptions& options, std::string* why_not) const {
    auto engine = Engine::open(file().path(), options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    if (!engine.has_value()) return nullptr;
    const ReadDevice& device = *(*engine)->impl().device;
    if (device.path() != path()) {
      EXPECT_EQ(path(), ReadPath::kUring) << "pread and mmap work everywhere";
      *why_not = device.fall_back();
      return nullptr;
    }
    return std::move(*engine);
  }

  const Watchdog watchdog_{240};
};

// Holds what an engine has read to what it says that it reads.
void expect_reads(const Engine& engine) {
  const Residency& r = engine.plan().residency;
  const PagerStats stats = engine.impl().pager->stats();
  EXPECT_EQ(stats.ring_restarts, 0U);
  EXPECT_GE(stats.bytes_read, kPasses * r.streamed_bytes);
  // What does not stay is read each time; tiles of one size may compress to several.
  const auto all_bytes = static_cast<double>(pass_bytes(*engine.impl().reader));
  EXPECT_GE(static_cast<double>(r.streamed_bytes), 0.95 * (1 - r.resident_share) * all_bytes);
  if (r.everything_resident) {
    EXPECT_EQ(stats.ring_wraps, 0U);
  } else {
    EXPECT_GT(r.streamed_bytes, r.ring_bytes / 2);
    EXPECT_GT(stats.ring_wraps, 0U);
  }
}

TEST_P(StreamedEngineTest, EveryBudgetAndThreadGivesTheLogitsOfAResidentModel) {
  const Passes& expected = expected_passes();  // before anything is counted
  std::string why_not;
  std::vector<double> shares;
  for (const unsigned n_threads : {1U, 2U}) {
    const std::uint64_t least_mb =
        named_budget_mb(file().path(), options_for(path(), n_threads, 0));
    for (const std::uint64_t more_mb : {0U, 8U, 20U, 30U, 200U}) {
      const std::optional<std::uint64_t> before = disk_bytes_read();
      std::unique_ptr<Engine> engine =
          open(options_for(path(), n_threads, (least_mb + more_mb) * kMB), &why_not);
      if (!why_not.empty()) GTEST_SKIP() << why_not;
      ASSERT_NE(engine, nullptr) << least_mb << " and " << more_mb << " MB";
      const bool is_direct = engine->impl().device->is_direct();
      EXPECT_EQ(is_direct, path() != ReadPath::kMmap) << engine->plan().reading_mode;
      const Passes passes = run_passes(*engine, kPrompt).value();
      EXPECT_TRUE(passes == expected) << least_mb << " and " << more_mb << " MB";
      expect_reads(*engine);
      EXPECT_LE(engine->plan().memory.total_bytes(), (least_mb + more_mb) * kMB);
      shares.push_back(engine->plan().residency.resident_share);

      const std::uint64_t counted = engine->impl().pager->stats().bytes_read;
      const std::uint64_t ahead = engine->plan().residency.ring_bytes;
      engine.reset();  // no read is in flight any more
      const std::optional<std::uint64_t> after = disk_bytes_read();
      if (is_direct && before.has_value() && after.has_value()) {
        EXPECT_GE(*after - *before, counted);
        EXPECT_LE(*after - *before, counted + ahead + kMB);  // and what is not weights
      }
    }
  }
  ASSERT_EQ(shares.size(), 10U);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.begin() + 5));
  EXPECT_LT(shares[0], 0.05);
  EXPECT_GT(shares[3], 0.1);
  EXPECT_LT(shares[3], 0.95);
  EXPECT_EQ(shares[4], 1.0);
}

// The named budget leaves a quarter of a MB for what a process may have grown by.
TEST_P(StreamedEngineTest, TheNamedBudgetWorksAndTwoMegabytesLessAreRefused) {
  const std::uint64_t least_mb = named_budget_mb(file().path(), options_for(path(), 2, 0));
  const auto refused = Engine::open(file().path(), options_for(path(), 2, (least_mb - 2) * kMB));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(refused.error().message(), HasSubstr("needs "));
  const auto engine = Engine::open(file().path(), options_for(path(), 2, least_mb * kMB));
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  EXPECT_TRUE(run_passes(**engine, kPrompt).value() == expected_passes());
}

// A model of five times the budget and more, large enough for its disk to be asked how it wants to
// be read.
TEST(StreamedDeepModelTest, AFifthOfTheModelGivesTheSameLogits) {
  const Watchdog watchdog{240};
  StreamedShape shape = kShape;
  shape.n_layers = 120;
  shape.tile_bytes = 1 << 20;
  const StreamedModel file("deep", shape);
  EngineOptions resident = options_for(ReadPath::kPread, 2, 0);
  const Passes expected = run_passes(*Engine::open(file.path(), resident).value(), kPrompt).value();
  std::string missing;
  for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap}) {
    EngineOptions options = options_for(path, 2, 0);
    options.ram_budget_bytes = named_budget_mb(file.path(), options) * kMB;
    const auto engine = Engine::open(file.path(), options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    const ReadDevice& device = *(*engine)->impl().device;
    if (device.path() != path) missing.append(device.fall_back());
    const Residency& r = (*engine)->plan().residency;
    EXPECT_TRUE(run_passes(**engine, kPrompt).value() == expected) << read_path_name(path);
    expect_reads(**engine);
    EXPECT_LT(r.resident_share, 0.05);
    EXPECT_GT(r.stored_bytes, 5 * options.ram_budget_bytes);
  }
  if (!missing.empty()) GTEST_SKIP() << "not by every path: " << missing;
}

INSTANTIATE_TEST_SUITE_P(
    All, StreamedEngineTest,
    testing::Combine(testing::Values(ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap),
                     testing::Values(Compression::kNone, Compression::kLz4, Compression::kZstd)),
    case_name);

class StreamedPromptTest : public testing::Test {
 protected:
  // Returns what the prompt of 512 tokens reads, and what the plan says that a pass reads.
  struct Reads {
    std::uint64_t prompt_bytes = 0;
    std::uint64_t row_bytes = 0;  // of these at most: rows of the embedding
    std::uint64_t passes = 0;     // as the engine counts them
    Residency residency;
  };
  static Reads read_prompt(std::uint32_t rows_per_pass, EngineOptions options = {}) {
    const std::string& path = model(Compression::kNone).path();
    options.n_threads = 2;
    options.max_context = 520;
    options.rows_per_pass = rows_per_pass;
    // The first budget whose activations leave the rows as they are asked for.
    std::unique_ptr<Engine> engine;
    std::uint64_t budget_mb = named_budget_mb(path, options);
    for (; engine == nullptr || engine->plan().rows_per_pass < rows_per_pass; ++budget_mb) {
      engine.reset();
      options.ram_budget_bytes = budget_mb * kMB;
      engine = Engine::open(path, options).value();
    }
    EXPECT_FALSE(engine->plan().residency.everything_resident);
    const std::unique_ptr<Session> session = engine->create_session().value();
    const PagerStats before = engine->impl().pager->stats();
    testing_support::AllLogits logits(kShape.n_vocab);
    EXPECT_TRUE(session->prefill(some_tokens(512, kShape.n_vocab), &logits).ok());
    const PagerStats after = engine->impl().pager->stats();
    EXPECT_EQ(logits.rows.size(), 1U);
    constexpr std::uint64_t kGroupRead = 12288;  // 16 rows of 512 columns, from page to page
    return {.prompt_bytes = after.bytes_read - before.bytes_read,
            .row_bytes = embedding_bytes(*engine->impl().reader) +
                         (after.rows_read - before.rows_read) * kGroupRead,
            .passes = engine->stats().prompt_passes,
            .residency = engine->plan().residency};
  }

  const Watchdog watchdog_{240};
};

// A budget that has room for the activations of the prompt: the weights come from the disk once.
TEST_F(StreamedPromptTest, APromptOf512TokensReadsTheWeightsOnce) {
  const Reads once = read_prompt(512);
  // What was read ahead before the prompt is not read in it, but after it for the next pass.
  EXPECT_EQ(once.passes, 1U);
  EXPECT_LE(once.prompt_bytes,
            once.residency.streamed_bytes + once.residency.ring_bytes + once.row_bytes);
  EXPECT_GE(once.prompt_bytes + once.residency.ring_bytes, once.residency.streamed_bytes);
  EXPECT_LT(2 * once.residency.ring_bytes + once.row_bytes, once.residency.streamed_bytes)
      << "a second read would not be seen";
}

TEST_F(StreamedPromptTest, AQuarterOfTheRowsReadsFourTimesAsMuch) {
  const Reads four = read_prompt(128);
  EXPECT_EQ(four.passes, 4U);
  EXPECT_LE(four.prompt_bytes,
            4 * four.residency.streamed_bytes + four.residency.ring_bytes + four.row_bytes);
  EXPECT_GT(four.prompt_bytes, 3 * four.residency.streamed_bytes);
}

// Chunks, and blocks of heavy hitters, follow one another inside a layer, so many of them read no
// more than one.
TEST_F(StreamedPromptTest, ChunksWindowsAndHeavyHittersReadTheWeightsOnceAPass) {
  EngineOptions chunks;
  chunks.attention = AttentionKind::kSparsePrefill;
  chunks.sparse_prefill = {.local = 8, .heavy = 8, .chunk = 32, .sinks = 2};
  EngineOptions window;
  window.kv_policy = {.policy = KvPolicy::kWindow, .window = 32, .sinks = 2};
  EngineOptions heavy;
  heavy.kv_policy = {.policy = KvPolicy::kH2o, .window = 32, .sinks = 2, .heavy = 16};
  for (const EngineOptions& options : {chunks, window, heavy}) {
    for (const std::uint32_t rows_per_pass : {512U, 200U}) {
      const Reads reads = read_prompt(rows_per_pass, options);
      const std::uint64_t expected = (512 + rows_per_pass - 1) / rows_per_pass;
      EXPECT_EQ(reads.passes, expected);
      const std::uint64_t ring = reads.residency.ring_bytes;
      EXPECT_LE(reads.prompt_bytes,
                expected * reads.residency.streamed_bytes + ring + reads.row_bytes);
      EXPECT_GE(reads.prompt_bytes + ring, expected * reads.residency.streamed_bytes);
    }
  }
}

}  // namespace
}  // namespace qsf
