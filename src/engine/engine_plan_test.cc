// SPDX-License-Identifier: MIT
//
// Plans of the bundled model for made-up machines, and engines that keep to them.

#include "engine/engine_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/testing/bundled_path.h"
#include "engine/testing/streamed_model.h"
#include "ops/make_backend.h"
#include "platform/memory.h"
#include "platform/threads.h"

namespace qsf {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing_support::kBundled;
using testing_support::kMB;

class EnginePlanTest : public testing::Test {
 protected:
  void SetUp() override {
    threads_ = ThreadPool::create(2).value();
    backend_ = make_cpu_backend(*threads_, /*exact=*/false).value();
    machine_.limits = {64'000 * kMB, 60'000 * kMB};
    machine_.program = {.file_bytes = 9 * kMB, .anonymous_bytes = kMB, .stack_bytes = 40'000};
    machine_.n_cpus = 2;
  }

  Result<EnginePlan> plan(std::uint64_t budget_bytes) const {
    EngineOptions options = options_;
    options.ram_budget_bytes = budget_bytes;
    return plan_engine({.reader = reader_,
                        .backend = *backend_,
                        .options = options,
                        .n_threads = 2,
                        .tokenizer_index_bytes = 40'000,
                        .machine = machine_,
                        .reading = reading_});
  }

  QsfReader reader_ = QsfReader::open(kBundled).value();
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Backend> backend_;
  MachineFacts machine_;
  ReadingFacts reading_;
  EngineOptions options_;
};

TEST_F(EnginePlanTest, WithoutABudgetTheMachineBoundsAModelThatIsResident) {
  const EnginePlan got = plan(0).value();
  EXPECT_FALSE(got.budget_named);
  EXPECT_EQ(got.budget_bytes, default_budget_bytes(machine_.limits, kMB + 40'000));
  EXPECT_TRUE(got.residency.everything_resident);
  EXPECT_EQ(got.rows_per_pass, 512U);
  EXPECT_EQ(got.max_context, 1024U);
  EXPECT_THAT(got.steps, IsEmpty());
  machine_.limits = {64'000 * kMB, 15 * kMB};  // a machine that is full
  EXPECT_THAT(plan(0).error().message(), HasSubstr("no budget was named"));
  machine_.limits = {};  // a system that tells nothing
  EXPECT_EQ(plan(0).value().budget_bytes, kNoMemoryLimit);
}

// What keys and values take under a window depends on the window and the rows of a pass alone.
TEST_F(EnginePlanTest, AWindowOfKeysIsTheSameForEveryContext) {
  options_.kv_policy = {.policy = KvPolicy::kWindow, .window = 100, .sinks = 4};
  options_.rows_per_pass = 64;
  const auto kv_bytes = [&](std::uint32_t context) {
    options_.max_context = context;
    const EnginePlan got = plan(0).value();
    return got.memory.region(got.regions.kv_cache).bytes +
           got.memory.region(got.regions.kv_tables).bytes;
  };
  EXPECT_EQ(kv_bytes(400), kv_bytes(1024));
  EXPECT_EQ(kv_bytes(0), kv_bytes(1024));
  const std::uint64_t window_bytes = kv_bytes(1024);
  options_.rows_per_pass = 256;
  EXPECT_GT(kv_bytes(1024), window_bytes);
  options_.rows_per_pass = 64;
  options_.kv_policy = {};
  EXPECT_GT(kv_bytes(1024), window_bytes);
}

TEST_F(EnginePlanTest, KeepsEveryBudgetWithAWindow) {
  options_.kv_policy = {.policy = KvPolicy::kWindow, .window = 500, .sinks = 4};
  options_.k_type = KvType::kF32;
  options_.v_type = KvType::kF32;
  for (const bool reindex : {false, true}) {
    options_.kv_policy.rope_reindex = reindex;
    int n_fewer_rows = 0;
    int n_shorter = 0;
    for (std::uint64_t budget = 12 * kMB; budget < 60 * kMB; budget += 91'000) {
      const Result<EnginePlan> got = plan(budget);
      if (!got.has_value()) {
        EXPECT_EQ(got.error().code(), StatusCode::kOutOfBudget) << got.error().message();
        continue;
      }
      EXPECT_LE(got->memory.total_bytes(), budget);
      if (got->rows_per_pass < 512) ++n_fewer_rows;
      if (got->max_context < (reindex ? 65536U : 1024U)) ++n_shorter;
    }
    EXPECT_GT(n_fewer_rows, 10);
    EXPECT_EQ(n_shorter > 10, reindex) << n_shorter;  // tokens of a long text take memory too
  }
}

// Every budget from one that is too small to one that is too large: kept to the byte, or refused.
TEST_F(EnginePlanTest, KeepsEveryBudget) {
  bool fitted = false;
  int n_streamed = 0;
  for (std::uint64_t budget = 12 * kMB; budget < 60 * kMB; budget += 37'000) {
    const Result<EnginePlan> got = plan(budget);
    if (!got.has_value()) {
      EXPECT_EQ(got.error().code(), StatusCode::kOutOfBudget) << got.error().message();
      EXPECT_FALSE(fitted) << "a smaller budget worked: " << got.error().message();
      continue;
    }
    fitted = true;
    EXPECT_LE(got->memory.total_bytes(), budget);
    EXPECT_EQ(got->max_context, 1024U);
    if (got->residency.everything_resident) continue;
    ++n_streamed;
    EXPECT_GT(got->residency.streamed_bytes, 0U);
    EXPECT_THAT(got->steps, Contains(HasSubstr("stay in memory; each pass reads")));
    EXPECT_GT(got->memory.total_bytes() + 200'000, budget) << "memory is left";
  }
  EXPECT_TRUE(plan(60 * kMB).value().residency.everything_resident);
  EXPECT_GT(n_streamed, 10);
}

// Where readers have staging memory too, and where nobody named a context.
TEST_F(EnginePlanTest, KeepsEveryBudgetWithManyReadersAndSequences) {
  reading_ = {.n_queues = 8, .ring_bytes = 1'500'000, .mapped = false};
  options_.n_sequences = 3;
  options_.max_context = 200;
  options_.rows_per_pass = 1000;
  for (std::uint64_t budget = 14 * kMB; budget < 50 * kMB; budget += 91'000) {
    const Result<EnginePlan> got = plan(budget);
    if (got.has_value()) {
      EXPECT_LE(got->memory.total_bytes(), budget);
      EXPECT_LE(got->rows_per_pass, 200U);
    } else {
      EXPECT_EQ(got.error().code(), StatusCode::kOutOfBudget) << got.error().message();
    }
  }
}

TEST_F(EnginePlanTest, TheBudgetThatARefusalNamesWorksAndTwoLessDoNot) {
  for (const std::uint32_t context : {0U, 64U, 1024U}) {
    options_.max_context = context;
    const std::string message = plan(5 * kMB).error().message();
    const std::size_t at = message.find("needs ");
    ASSERT_NE(at, message.npos) << message;
    const std::uint64_t named = std::strtoull(message.c_str() + at + 6, nullptr, 10);
    EXPECT_TRUE(plan(named * kMB).has_value()) << message;
    EXPECT_FALSE(plan((named - 2) * kMB).has_value()) << message;
  }
}

TEST_F(EnginePlanTest, RegionsCountWhatIsNotTheArena) {
  const EnginePlan got = plan(60 * kMB).value();
  EXPECT_EQ(got.memory.find("program")->bytes, 9 * kMB);
  EXPECT_EQ(got.memory.find("thread_stacks")->bytes, 2 * thread_stack_bytes());
  EXPECT_GE(got.memory.find("kernel")->bytes, 2U * 262'144);
  EXPECT_EQ(got.memory.find("process")->bytes + reader_.heap_bytes(), kMB + 262'144);
  EXPECT_GE(got.memory.find("page_tables")->bytes, got.memory.arena_bytes() / 512);
  for (const char* name : {"program", "process", "thread_stacks", "kernel", "heap"}) {
    EXPECT_TRUE(got.memory.find(name)->external) << name;
  }
  // Tiles begin at pages: their region is the first of an arena that does.
  EXPECT_EQ(got.regions.weights.index, 4U);
  EXPECT_EQ(got.memory.region(got.regions.weights).name, "weights");
}

TEST_F(EnginePlanTest, ABudgetBeyondTheMachineIsCutDown) {
  machine_.limits = {100 * kMB, 90 * kMB};
  const EnginePlan got = plan(5000 * kMB).value();
  EXPECT_EQ(got.budget_bytes, 100 * kMB);
  EXPECT_THAT(got.steps, Contains(HasSubstr("5000 MB requested, but the limit is 100 MB")));
  machine_.limits = {100 * kMB, 20 * kMB};
  EXPECT_THAT(plan(60 * kMB).value().steps, Contains(HasSubstr("only 20 MB are free")));
  machine_.limits = {50 * kMB, 49 * kMB};  // as in a container of that size: what is used is ours
  EXPECT_THAT(plan(50 * kMB).value().steps, Not(Contains(HasSubstr("are free"))));
}

TEST_F(EnginePlanTest, PredictsByTheSlowerOfDiskAndMemory) {
  EnginePlan made = plan(60 * kMB).value();
  EXPECT_EQ(predicted_tokens_per_second(made), 0.0);
  made.residency.pass_bytes = 2000 * kMB;
  made.memory_bytes_per_second = 20e9;
  EXPECT_DOUBLE_EQ(predicted_tokens_per_second(made), 10.0);
  made.residency.streamed_bytes = 1000 * kMB;
  EXPECT_EQ(predicted_tokens_per_second(made), 0.0);  // and the disk is not known
  made.disk_bytes_per_second = 2e9;
  EXPECT_DOUBLE_EQ(predicted_tokens_per_second(made), 2.0);
  made.memory_bytes_per_second = 0.0;
  EXPECT_EQ(predicted_tokens_per_second(made), 0.0);  // nor is the memory now
  made.memory_bytes_per_second = 20e9;
  made.disk_bytes_per_second = 200e9;
  EXPECT_DOUBLE_EQ(predicted_tokens_per_second(made), 10.0);
  // Of a token's experts those are read that are not in memory.
  made.residency.expert_pass_bytes = 4000 * kMB;
  made.residency.expert_hits = 0.25;
  made.disk_bytes_per_second = 2e9;
  EXPECT_DOUBLE_EQ(predicted_tokens_per_second(made), 0.5);
}

// Engines at work within budgets of this process: the smallest and a few more, each the same text.
class BudgetedEngineTest : public testing::Test {
 protected:
  static EngineOptions options(std::uint64_t budget_bytes) {
    EngineOptions options;
    options.n_threads = 2;
    options.ram_budget_bytes = budget_bytes;
    return options;
  }

  // Returns the smallest budget that a plan of this process accepts, give or take 50 KB.
  static std::uint64_t least_budget() {
    std::uint64_t refused = 0;
    std::uint64_t accepted = 2000 * kMB;
    while (accepted - refused > 50'000) {
      const std::uint64_t middle = refused + (accepted - refused) / 2;
      (Engine::plan_file(kBundled, options(middle)).has_value() ? accepted : refused) = middle;
    }
    return accepted;
  }

  static std::string tell(Engine& engine) {
    std::string text;
    std::vector<TokenId> prompt;
    EXPECT_TRUE(engine.tokenizer()->encode("There was a king and a queen", {}, prompt).ok());
    GenerateOptions generate;
    generate.max_tokens = 100;
    generate.sampling.seed = 5;
    generate.on_token = [](TokenId, std::string_view piece, void* user) {
      static_cast<std::string*>(user)->append(piece);
    };
    generate.user = &text;
    const std::unique_ptr<Session> session = engine.create_session().value();
    EXPECT_TRUE(session->generate(prompt, generate).has_value());
    return text;
  }
};

TEST_F(BudgetedEngineTest, EveryBudgetTellsTheSame) {
  const std::string expected = tell(*Engine::open(kBundled, options(0)).value());
  EXPECT_GT(expected.size(), 100U);
  const std::uint64_t least = least_budget() + 200'000;  // the heap of this process has grown since
  bool streamed = false;
  for (const std::uint64_t more : {0U, 400'000U, 1'000'000U, 2'000'000U, 5'000'000U}) {
    for (const bool preload : {false, true}) {
      EngineOptions bound = options(least + more);
      bound.preload = preload;
      const auto engine = Engine::open(kBundled, bound);
      ASSERT_TRUE(engine.has_value()) << engine.error().message();
      EXPECT_EQ(tell(**engine), expected) << more;
      const EnginePlan& plan = (*engine)->plan();
      EXPECT_LE(plan.memory.total_bytes(), least + more);
      const EngineStats stats = (*engine)->stats();
      if (!plan.residency.everything_resident) {
        streamed = true;
        EXPECT_THAT(plan.reading_mode, StartsWith("streamed; "));
        EXPECT_GT(stats.weight_bytes_read, 50 * plan.residency.streamed_bytes);
      } else {
        EXPECT_THAT(plan.reading_mode, StartsWith("resident; "));
      }
    }
  }
  EXPECT_TRUE(streamed) << "no budget was small enough";
}

// A control group's limit that falls while the engine runs: weights go, the text stays.
TEST_F(BudgetedEngineTest, ALimitThatFallsTakesWeightsAway) {
  const std::string root = (std::filesystem::temp_directory_path() /
                            ("qsf_engine_plan_test." + std::to_string(::getpid())))
                               .string();
  std::filesystem::create_directories(root + "/proc/self");
  std::filesystem::create_directories(root + "/sys/fs/cgroup/box");
  std::ofstream(root + "/proc/self/cgroup") << "0::/box\n";
  std::ofstream(root + "/sys/fs/cgroup/box/memory.max") << "max\n";
  std::vector<std::string> warnings;
  EngineOptions unbound = options(0);
  unbound.log.write = [](LogLevel level, std::string_view line, void* user) {
    if (level != LogLevel::kWarning) return;
    static_cast<std::vector<std::string>*>(user)->emplace_back(line);
  };
  unbound.log.user = &warnings;
  const std::unique_ptr<Engine> engine = Engine::open(kBundled, unbound).value();
  const std::uint64_t planned = engine->plan().memory.total_bytes();
  const_cast<Engine::Impl&>(engine->impl()).watch.emplace(planned, root);
  const std::string expected = tell(*engine);
  const std::uint64_t read_before = engine->stats().weight_bytes_read;
  EXPECT_THAT(warnings, IsEmpty());
  std::ofstream(root + "/sys/fs/cgroup/box/memory.max") << planned - 1'000'000 << "\n";
  std::this_thread::sleep_for(std::chrono::milliseconds(110));  // it is looked at every 100 ms
  EXPECT_EQ(tell(*engine), expected);
  EXPECT_THAT(warnings,
              Contains(HasSubstr("the memory limit fell to 1.0 MB below what is planned")));
  EXPECT_GT(engine->stats().weight_bytes_read, read_before + 50 * 1'000'000);
  EXPECT_EQ(warnings.size(), 1U);
  std::filesystem::remove_all(root);
}

TEST_F(BudgetedEngineTest, TooSmallABudgetIsRefusedBeforeAnyWeightIsRead) {
  const Status status = Engine::open(kBundled, options(3 * kMB)).error();
  EXPECT_EQ(status.code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(status.message(), HasSubstr("tales-5M-4bit.qsf: a budget of 3 MB is too small"));
}

TEST_F(BudgetedEngineTest, WithoutPreloadOpeningReadsNoMoreThanItMust) {
  EngineOptions lazy = options(0);
  lazy.preload = false;
  const std::unique_ptr<Engine> engine = Engine::open(kBundled, lazy).value();
  const std::string text = tell(*engine);
  EXPECT_EQ(text, tell(*Engine::open(kBundled, options(0)).value()));
}

TEST_F(EnginePlanTest, MemoryOfTheCallerIsPartOfThePlan) {
  const EnginePlan none = plan(0).value();
  options_.caller_memory = {{"connections", "1,000 of them", 3 * kMB}, {"queues", "", 2 * kMB}};
  const EnginePlan with = plan(0).value();
  EXPECT_EQ(with.memory.total_bytes(), none.memory.total_bytes() + 5 * kMB);
  ASSERT_NE(with.memory.find("connections"), nullptr);
  EXPECT_EQ(with.memory.find("connections")->bytes, 3 * kMB);
  EXPECT_EQ(with.memory.find("connections")->reason, "1,000 of them");
  EXPECT_EQ(with.memory.arena_bytes(), none.memory.arena_bytes());
  // In a budget the engine gets less.
  const std::uint64_t budget = none.memory.total_bytes() + kMB;
  const EnginePlan squeezed = plan(budget).value();
  EXPECT_LE(squeezed.memory.total_bytes(), budget);
  EXPECT_LT(squeezed.memory.arena_bytes(), none.memory.arena_bytes());
  options_.caller_memory[0].bytes = budget;
  EXPECT_THAT(plan(budget).error().message(), HasSubstr("too small"));
}

TEST_F(EnginePlanTest, AbsurdMemoryOfTheCallerIsRefused) {
  const ModelSpec& spec = reader_.spec();
  const std::uint64_t most = std::uint64_t{1} << 50;
  options_.caller_memory = {{"a", "", most / 2}, {"b", "", most / 2}};
  EXPECT_TRUE(check_options(options_, spec).ok());
  options_.caller_memory[1].bytes += 1;
  EXPECT_THAT(check_options(options_, spec).message(), HasSubstr("b has 562949953421313 bytes"));
  options_.caller_memory[1].bytes = UINT64_MAX;
  EXPECT_EQ(check_options(options_, spec).code(), StatusCode::kInvalidArgument);
  options_.caller_memory = {{"", "no name", 5}};
  EXPECT_THAT(check_options(options_, spec).message(), HasSubstr("has no name"));
  options_.caller_memory.assign(65, {"many", "", 1});
  EXPECT_THAT(check_options(options_, spec).message(), HasSubstr("65 regions"));
}

// Rows, states and a page of paths for drafts; the same plan without.
TEST_F(EnginePlanTest, DraftedRowsArePlanned) {
  const ModelSpec& spec = reader_.spec();
  options_.n_sequences = 3;
  const PassLimits none = pass_limits(spec, options_, 512, 256);
  EXPECT_EQ(none.max_decode_rows, 3U);
  EXPECT_FALSE(none.drafts.has_value());
  options_.max_drafts = 15;
  const PassLimits some = pass_limits(spec, options_, 512, 256);
  EXPECT_EQ(some.max_decode_rows, 18U);
  EXPECT_EQ(some.drafts->max_drafts, 15U);
  EXPECT_GT(backend_->scratch_bytes(some), backend_->scratch_bytes(none));
  EXPECT_EQ(pass_limits(spec, options_, 512, 10).max_decode_rows, 10U);
  EXPECT_TRUE(check_options(options_, spec).ok());
  options_.max_drafts = 65;
  EXPECT_THAT(check_options(options_, spec).message(), HasSubstr("65 rows, expected at most 64"));
  options_.max_drafts = 1;
  options_.kv_policy.policy = KvPolicy::kH2o;
  EXPECT_THAT(check_options(options_, spec).message(), HasSubstr("kv policy h2o chooses"));
  options_.kv_policy = {};
  options_.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(check_options(options_, spec).message(), HasSubstr("attention h2o chooses"));
}

}  // namespace
}  // namespace qsf
