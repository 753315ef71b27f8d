// SPDX-License-Identifier: MIT
//
// Streamed models on disks that fail and with callers that leave: the engine says what is wrong and
// where, says it again, can be freed, and goes on where it can; nothing hangs and nothing leaks.

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitizer.h"
#include "engine/testing/streamed_model.h"
#include "io/testing/faulty_file.h"
#include "stream/testing/pager_reference.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::AllLogits;
using testing_support::kMB;
using testing_support::named_budget_mb;
using testing_support::Passes;
using testing_support::run_passes;
using testing_support::some_tokens;
using testing_support::StreamedModel;
using testing_support::StreamedShape;
using testing_support::Watchdog;

#ifdef QSF_WITH_SANITIZER
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr StreamedShape kShape;
constexpr std::size_t kPrompt = 12;

std::size_t n_entries(const char* folder) {
  std::size_t n = 0;
  DIR* const opened = ::opendir(folder);
  if (opened == nullptr) return 0;
  while (::readdir(opened) != nullptr) ++n;
  ::closedir(opened);
  return n;
}

// What a process has that an engine could leave behind.
struct Belongings {
  std::size_t n_threads = n_entries("/proc/self/task");
  std::size_t n_handles = n_entries("/proc/self/fd");
  std::uint64_t resident_bytes = 0;
  std::size_t heap_bytes = 0;

  Belongings() {
    ::malloc_trim(0);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    resident_bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    heap_bytes = ::mallinfo2().uordblks;
  }
};

class StreamedFaultTest : public testing::TestWithParam<ReadPath> {
 protected:
  static ReadPath path() { return GetParam(); }
  const StreamedModel& file() const { return file_; }

  EngineOptions options(std::uint64_t budget_mb = 0) {
    EngineOptions options;
    options.n_threads = 2;
    options.max_context = 64;
    options.ram_budget_bytes = budget_mb * kMB;
    options.read_path = path();
    options.file_ops = &ops_;
    return options;
  }

  // Opens the model in the smallest budget; what fails is in `ops_.plan` by then.
  std::unique_ptr<Engine> open() {
    auto engine = Engine::open(file_.path(), options(named_budget_mb(file_.path(), options())));
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    if (!engine.has_value()) return nullptr;
    EXPECT_LT((*engine)->plan().residency.resident_share, 0.5);
    return std::move(*engine);
  }

  bool has_path() {
    const File opened = File::open(file_.path()).value();
    return ReadDevice::open(opened, {.path = path()}).value().path() == path();
  }

  const Passes& expected() {
    if (expected_.prompt.empty()) {
      EngineOptions resident;
      resident.n_threads = 1;
      resident.max_context = 64;
      expected_ = run_passes(*Engine::open(file_.path(), resident).value(), kPrompt).value();
    }
    return expected_;
  }

  // The last streamed tile of a layer, which every pass needs and the smallest budget does not
  // keep.
  TileInfo tile_of(std::uint32_t layer, std::uint32_t* index) const {
    const QsfReader reader = QsfReader::open(file_.path()).value();
    *index = static_cast<std::uint32_t>(reader.layer(layer).tiles.size() - 1);
    return reader.layer(layer).tiles[*index];
  }

  // Expects passes to fail with one error, each time, whatever they want.
  static void expect_fails(Engine& engine, StatusCode code, const std::vector<std::string>& parts) {
    const std::unique_ptr<Session> session = engine.create_session().value();
    for (int pass = 0; pass < 4; ++pass) {
      AllLogits logits(kShape.n_vocab);
      const Status status = pass % 2 == 0
                                ? session->prefill(some_tokens(kPrompt, kShape.n_vocab), &logits)
                                : session->step(3, &logits);
      EXPECT_EQ(status.code(), code) << status.message();
      for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
      EXPECT_EQ(session->length(), 0U);
    }
  }

  const Watchdog watchdog_{240};
  FaultyFileOps ops_;

 private:
  StreamedModel file_{"fault", kShape};
  Passes expected_;
};

TEST_P(StreamedFaultTest, ATileThatCannotBeReadIsNamedByEveryPass) {
  if (path() == ReadPath::kMmap)
    GTEST_SKIP() << "errors of a mapped disk kill (SIGBUS) and cannot be planted";
  std::uint32_t index = 0;
  const TileInfo tile = tile_of(5, &index);
  ops_.plan.read_error_at = tile.file_offset + 4097;
  const std::unique_ptr<Engine> engine = open();
  ASSERT_NE(engine, nullptr);
  expect_fails(
      *engine, StatusCode::kIo,
      {file().path(), "layer 5: tile " + std::to_string(index), std::to_string(tile.file_offset)});
}

TEST_P(StreamedFaultTest, ADamagedTileIsNamedByEveryPass) {
  std::uint32_t index = 0;
  const TileInfo tile = tile_of(6, &index);
  std::FILE* const damaged = std::fopen(file().path().c_str(), "r+b");
  ASSERT_NE(damaged, nullptr);
  std::fseek(damaged, static_cast<long>(tile.file_offset + 1000), SEEK_SET);
  const int byte = std::fgetc(damaged);
  std::fseek(damaged, static_cast<long>(tile.file_offset + 1000), SEEK_SET);
  std::fputc(byte ^ 1, damaged);
  std::fclose(damaged);
  const std::unique_ptr<Engine> engine = open();
  ASSERT_NE(engine, nullptr);
  expect_fails(
      *engine, StatusCode::kCorrupt,
      {file().path(),
       "layer 6: tile " + std::to_string(index) + " at offset " + std::to_string(tile.file_offset),
       "CRC"});
}

TEST_P(StreamedFaultTest, AFileThatIsCutWhileItRunsIsAnError) {
  if (path() == ReadPath::kMmap)
    GTEST_SKIP() << "pages of a mapped file that are gone kill (SIGBUS)";
  std::uint32_t index = 0;
  const TileInfo tile = tile_of(2, &index);
  const std::unique_ptr<Engine> engine = open();
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(run_passes(*engine, kPrompt).value() == expected());
  ASSERT_EQ(::truncate(file().path().c_str(), static_cast<off_t>(tile.file_offset)), 0);
  expect_fails(*engine, StatusCode::kCorrupt, {file().path(), "truncated", "layer "});
}

TEST_P(StreamedFaultTest, ASlowDiskThatInterruptsAndReadsShortChangesNothing) {
  ops_.plan.read_delay_us = 300;
  ops_.plan.interrupt_every = 5;
  ops_.plan.max_transfer_bytes = 12288;
  const std::unique_ptr<Engine> engine = open();
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(run_passes(*engine, kPrompt).value() == expected());
  EXPECT_GT(engine->stats().read_wait_ns, 0U);
}

// A thread that cancels what another one computes, once each time that it is told to.
class Canceller {
 public:
  explicit Canceller(unsigned seed) : rng_(seed), thread_([this] { run(); }) {}
  Canceller(const Canceller&) = delete;
  Canceller& operator=(const Canceller&) = delete;
  ~Canceller() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Cancels `engine` within `most_us` from now.
  void start(Engine& engine, std::uint32_t most_us) {
    const std::lock_guard lock(mutex_);
    engine_ = &engine;
    most_us_ = most_us;
    changed_.notify_all();
  }
  // Waits until it is done.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return engine_ == nullptr; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || engine_ != nullptr; });
      if (stopping_) return;
      const std::uint32_t delay_us = rng_.below(most_us_ + 1);
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      lock.lock();
      engine_->cancel();
      engine_ = nullptr;
      changed_.notify_all();
    }
  }

  Rng rng_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Engine* engine_ = nullptr;
  std::uint32_t most_us_ = 0;
  std::thread thread_;
};

// Prompts and steps that are cancelled anywhere. Each time the session is as long as before, and
// the same call, made again, gives the right logits.
class CancelledEngine {
 public:
  CancelledEngine(std::unique_ptr<Engine> engine, const Passes& expected, Canceller& canceller)
      : engine_(std::move(engine)),
        session_(engine_->create_session().value()),
        expected_(expected),
        canceller_(canceller),
        tokens_(some_tokens(kPrompt, kShape.n_vocab)) {}

  // Returns whether the call was cancelled before it ended.
  bool cancel_once(std::uint32_t most_us) {
    const bool is_prompt = session_->length() == 0;
    const std::size_t before = session_->length();
    canceller_.start(*engine_, most_us);
    Status status = call(is_prompt);
    canceller_.finish();
    const bool was_cancelled = !status.ok();
    if (!was_cancelled) {  // it came too late, and ends the next call
      EXPECT_TRUE(session_->truncate(before).ok());
      status = call(is_prompt);
    }
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.message();
    EXPECT_EQ(session_->length(), before);
    status = call(is_prompt);
    EXPECT_TRUE(status.ok()) << status.message();
    if (is_prompt) {
      EXPECT_TRUE(rows_ == expected_.prompt);
    } else {
      EXPECT_TRUE(rows_.at(0) == expected_.steps[before - tokens_.size()]);
    }
    if (session_->length() == tokens_.size() + expected_.steps.size()) {
      EXPECT_TRUE(session_->truncate(0).ok());
    }
    return was_cancelled;
  }

  // Leaves with a cancellation pending and reads in flight.
  void leave() {
    engine_->cancel();
    static_cast<void>(call(session_->length() == 0));
  }

 private:
  Status call(bool is_prompt) {
    AllLogits logits(kShape.n_vocab);
    const Status status =
        is_prompt ? session_->prefill_rows(tokens_, logits)
                  : session_->step(static_cast<TokenId>(11 + session_->length() - tokens_.size()),
                                   &logits);
    rows_ = std::move(logits.rows);
    return status;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  const Passes& expected_;
  Canceller& canceller_;
  std::vector<TokenId> tokens_;
  std::vector<std::vector<float>> rows_;
};

TEST_P(StreamedFaultTest, RandomCancellationsLeaveNothingBehind) {
  if (!has_path()) GTEST_SKIP() << "no " << read_path_name(path()) << " on this machine";
  constexpr int kEngines = 10;
  constexpr int kCancellations = 34;  // of each engine, on each path: 1,020 in all
  const Passes& right = expected();
  int n_cancelled = 0;
  const auto run = [&](unsigned seed) {
    Canceller canceller(seed);
    const std::unique_ptr<Engine> timed = open();
    ASSERT_NE(timed, nullptr);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(run_passes(*timed, kPrompt).value() == right);
    const auto pass_us = std::chrono::duration_cast<std::chrono::microseconds>(
                             std::chrono::steady_clock::now() - begin)
                             .count() /
                         3;
    std::unique_ptr<Engine> cancelled = open();
    ASSERT_NE(cancelled, nullptr);
    CancelledEngine engine(std::move(cancelled), right, canceller);
    for (int i = 0; i < kCancellations; ++i) {
      n_cancelled += engine.cancel_once(static_cast<std::uint32_t>(pass_us)) ? 1 : 0;
    }
    engine.leave();
  };
  run(100);  // what the process takes once
  run(101);
  const Belongings before;
  for (unsigned i = 0; i < kEngines; ++i) run(i);
  const Belongings after;
  // A thread that was joined stands in the list of tasks until the system has taken it down.
  for (int i = 0; i < 500 && n_entries("/proc/self/task") > before.n_threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(n_entries("/proc/self/task"), before.n_threads);
  EXPECT_EQ(after.n_handles, before.n_handles);
  EXPECT_GT(n_cancelled, kCancellations);
  if (kSanitized) return;  // which keep what is freed
  EXPECT_LE(after.heap_bytes, before.heap_bytes + 20'000);
  EXPECT_LE(after.resident_bytes, before.resident_bytes + 1'000'000);
}

INSTANTIATE_TEST_SUITE_P(All, StreamedFaultTest,
                         testing::Values(ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap),
                         [](const auto& path) {
                           std::string name(read_path_name(path.param));
                           name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
                           return name;
                         });

// What a system may refuse is replaced, and the mode says so.
TEST(StreamedRefusalTest, WhatTheSystemRefusesIsReplacedAndSaid) {
  const Watchdog watchdog{240};
  const StreamedModel file("refused", kShape);
  EngineOptions options;
  options.n_threads = 2;
  options.max_context = 64;
  const Passes expected = run_passes(*Engine::open(file.path(), options).value(), kPrompt).value();
  const struct {
    FaultPlan plan;
    ReadPath asked;
    const char* mode;
  } kRefusals[] = {
      {{.ring_errno = ENOSYS}, ReadPath::kUring, "pread, direct"},
      {{.ring_errno = EPERM}, ReadPath::kUring, "io_uring: forbidden here"},
      {{.direct_open_errno = EINVAL}, ReadPath::kPread, "pread, through the page cache"},
      {{.direct_read_errno = EINVAL}, ReadPath::kPread, "pread, through the page cache"},
  };
  for (const auto& [plan, asked, mode] : kRefusals) {
    FaultyFileOps ops(plan);
    options.file_ops = &ops;
    options.read_path = asked;
    options.ram_budget_bytes = 0;
    options.ram_budget_bytes = named_budget_mb(file.path(), options) * kMB;
    const auto engine = Engine::open(file.path(), options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    EXPECT_THAT((*engine)->plan().reading_mode, HasSubstr(mode));
    EXPECT_TRUE(run_passes(**engine, kPrompt).value() == expected) << mode;
    EXPECT_EQ(ops.reads_with_readahead(), 0U) << mode;
  }
}

// A resident model that the page cache does not hold is read past it by two threads, and the page
// cache is filled afterwards.
TEST(ColdModelTest, IsReadPastThePageCache) {
  const Watchdog watchdog{240};
  const StreamedModel file("cold", kShape);
  EngineOptions options;
  options.n_threads = 2;
  options.max_context = 64;
  std::optional<Passes> expected;
  for (const double share : {1.0, 0.6, 0.4, 0.0}) {
    for (const bool bound : {false, true}) {
      FaultyFileOps ops({.cached_share = share});
      options.file_ops = &ops;
      options.ram_budget_bytes = bound ? 1000 * kMB : 0;
      const auto engine = Engine::open(file.path(), options);
      ASSERT_TRUE(engine.has_value()) << engine.error().message();
      const std::string& mode = (*engine)->plan().reading_mode;
      EXPECT_THAT(mode, HasSubstr("resident; "));
      if (mode.find("direct reads: ") != std::string::npos) GTEST_SKIP() << mode;
      const bool cold = share < 0.5;
      EXPECT_THAT(mode, HasSubstr(cold || bound ? ", direct, " : ", through the page cache, "));
      if (mode.find("io_uring, ") != std::string::npos) {
        EXPECT_EQ((*engine)->plan().residency.limits.n_queues, bound ? 1U : 2U);
      }
      const Passes passes = run_passes(**engine, kPrompt).value();
      if (!expected.has_value()) expected = passes;
      EXPECT_TRUE(passes == *expected) << mode;
      const std::uint64_t filled = cold && !bound ? (*engine)->file_bytes() : 0;
      for (int i = 0; i < 3000 && ops.announced_bytes() < filled; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_EQ(ops.announced_bytes(), filled) << mode;
    }
  }
}

}  // namespace
}  // namespace qsf
