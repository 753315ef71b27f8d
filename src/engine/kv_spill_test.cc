// SPDX-License-Identifier: MIT
//
// Engines with keys and values in a file: logits bit for bit those of engines that keep them in
// memory, at contexts, types and passes of all kinds, and a budget that only they fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temporary_path.h"
#include "engine/engine_impl.h"
#include "engine/testing/bundled_path.h"
#include "engine/testing/logits_log.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::kBundled;
using testing_support::LogitsLog;
using testing_support::random_tokens;

std::string scratch_path() {
  return testing_support::temporary_path("kv_spill");
}

EngineOptions options_of(std::uint32_t context, KvType type, std::uint32_t rows) {
  EngineOptions options;
  options.n_threads = 2;
  options.max_context = context;
  options.rows_per_pass = rows;
  options.k_type = type;
  options.v_type = type;
  options.n_sequences = 3;
  return options;
}

// A prompt, generated rows, a fork whose sides go on by turns, and a truncation; returns every
// logit.
std::vector<float> converse(Engine& engine, std::size_t n_prompt) {
  LogitsLog keep;
  auto& impl = const_cast<Engine::Impl&>(engine.impl());
  const auto run = [&](SequenceId sequence, std::size_t n, RowRole role, std::uint64_t seed) {
    const std::vector<TokenId> tokens = random_tokens(n, seed);
    const Status status = impl.append(sequence, tokens, role, n - 1, &keep);
    EXPECT_TRUE(status.ok()) << status.message();
  };
  const SequenceId first = impl.kv->create_sequence().value();
  run(first, n_prompt, RowRole::kPrompt, 1);
  for (std::uint64_t i = 0; i < 5; ++i) run(first, 1, RowRole::kGenerated, 10 + i);
  const SequenceId second = impl.kv->fork(first).value();
  for (std::uint64_t i = 0; i < 4; ++i) {
    run(second, 1, RowRole::kGenerated, 20 + i);
    run(first, 1, RowRole::kGenerated, 30 + i);
  }
  impl.kv->truncate(first, static_cast<std::uint32_t>(n_prompt / 2));
  run(first, 3, RowRole::kPrompt, 40);
  run(second, 1, RowRole::kGenerated, 41);
  run(first, 1, RowRole::kGenerated, 42);
  impl.kv->free_sequence(first);
  impl.kv->free_sequence(second);
  return keep.values;
}

TEST(KvSpillTest, LogitsAreThoseOfKeysInMemory) {
  struct Case {
    std::uint32_t context;
    std::uint32_t prompt;
    std::uint32_t rows;
  };
  for (const Case& c : {Case{64, 30, 64}, Case{300, 200, 70}, Case{1024, 990, 512}}) {
    for (const KvType type : kAllKvTypes) {
      SCOPED_TRACE(std::to_string(c.context) + " positions, type " +
                   std::to_string(static_cast<int>(type)));
      EngineOptions options = options_of(c.context, type, c.rows);
      const auto expected = converse(*Engine::open(kBundled, options).value(), c.prompt);
      options.kv_spill_path = scratch_path();
      const auto engine = Engine::open(kBundled, options);
      ASSERT_TRUE(engine.has_value()) << engine.error().message();
      EXPECT_FALSE(std::filesystem::exists(options.kv_spill_path));
      const auto got = converse(**engine, c.prompt);
      ASSERT_GT(expected.size(), 16U * 4096);
      ASSERT_EQ(got.size(), expected.size());
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
      // Each of the 19 generated rows and more reads the prompt's pages of all layers but those
      // that were still in memory.
      const EngineStats stats = (*engine)->stats();
      EXPECT_GT(stats.kv_bytes_written, 0U);
      EXPECT_GT(stats.kv_bytes_read, 10 * stats.kv_bytes_written / 16);
    }
  }
}

TEST(KvSpillTest, SessionsTellTheSame) {
  const auto tell = [](const EngineOptions& options) {
    const std::unique_ptr<Engine> engine = Engine::open(kBundled, options).value();
    std::string text;
    std::vector<TokenId> prompt;
    EXPECT_TRUE(engine->tokenizer()->encode("There was a king and a queen", {}, prompt).ok());
    GenerateOptions generate;
    generate.max_tokens = 60;
    generate.sampling.seed = 5;
    generate.on_token = [](TokenId, std::string_view piece, void* user) {
      static_cast<std::string*>(user)->append(piece);
    };
    generate.user = &text;
    const std::unique_ptr<Session> session = engine->create_session().value();
    EXPECT_TRUE(session->generate(prompt, generate).has_value());
    EXPECT_TRUE(session->truncate(20).ok());
    EXPECT_TRUE(session->generate(prompt, generate).has_value());
    return text;
  };
  EngineOptions options = options_of(0, KvType::kF16, 0);
  const std::string expected = tell(options);
  options.kv_spill_path = scratch_path();
  EXPECT_GT(expected.size(), 100U);
  EXPECT_EQ(tell(options), expected);
}

// A pass that is given up leaves what was there.
TEST(KvSpillTest, ACancelledPassLosesNothing) {
  EngineOptions options = options_of(1024, KvType::kF16, 128);
  options.kv_spill_path = scratch_path();
  const std::unique_ptr<Engine> engine = Engine::open(kBundled, options).value();
  const std::vector<float> expected = converse(*engine, 400);
  const std::unique_ptr<Session> session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(random_tokens(200, 3), nullptr).ok());
  for (int i = 0; i < 5; ++i) {
    engine->cancel();
    EXPECT_EQ(session->prefill(random_tokens(300, 4), nullptr).code(), StatusCode::kCancelled);
    EXPECT_EQ(converse(*engine, 400), expected);
  }
}

TEST(KvSpillTest, FitsBudgetsThatKeysInMemoryDoNot) {
  EngineOptions options = options_of(1024, KvType::kF32, 64);
  options.n_sequences = 2;
  const std::unique_ptr<Engine> free = Engine::open(kBundled, options).value();
  const std::vector<float> expected = converse(*free, 900);
  const std::uint64_t all_keys = free->plan().memory.region(free->plan().regions.kv_cache).bytes;
  std::uint64_t refused = 0;
  std::uint64_t accepted = std::uint64_t{2'000'000'000};
  while (accepted - refused > 100'000) {
    options.ram_budget_bytes = refused + (accepted - refused) / 2;
    (Engine::plan_file(kBundled, options).has_value() ? accepted : refused) =
        options.ram_budget_bytes;
  }
  options.ram_budget_bytes = accepted - all_keys / 4;
  const Status status = Engine::open(kBundled, options).error();
  EXPECT_EQ(status.code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(status.message(), HasSubstr("would fit with the KV cache in a file (kv_spill)"));
  options.kv_spill_path = scratch_path();
  const auto spilled = Engine::open(kBundled, options);
  ASSERT_TRUE(spilled.has_value()) << spilled.error().message();
  const EnginePlan& plan = (*spilled)->plan();
  EXPECT_LE(plan.memory.total_bytes(), options.ram_budget_bytes);
  // Two of six layers.
  EXPECT_LE(plan.memory.region(plan.regions.kv_cache).bytes, all_keys / 3 + 4096);
  EXPECT_EQ(converse(**spilled, 900), expected);
  options.ram_budget_bytes = 3'000'000;
  options.kv_spill_path.clear();
  EXPECT_THAT(Engine::open(kBundled, options).error().message(), Not(HasSubstr("kv_spill")));
}

TEST(KvSpillTest, RefusesAFileThatExistsAndAFolderThatDoesNot) {
  EngineOptions options = options_of(64, KvType::kF16, 0);
  options.kv_spill_path = kBundled;
  const Status exists = Engine::open(kBundled, options).error();
  EXPECT_EQ(exists.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(exists.message(), HasSubstr("exists already; choose the name"));
  options.kv_spill_path = testing::TempDir() + "no/such/folder/keys";
  const Status missing = Engine::open(kBundled, options).error();
  EXPECT_EQ(missing.code(), StatusCode::kIo);
  EXPECT_THAT(missing.message(), HasSubstr("cannot be created"));
}

}  // namespace
}  // namespace qsf
