// SPDX-License-Identifier: MIT
//
// Engines that keep a window of keys and values: logits bit for bit those of a full cache whose
// rows are told to see no more, at passes, threads, types and places of all kinds; and sessions at
// the edges of what is kept.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
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
using testing_support::kBundled;
using testing_support::LogitsLog;
using testing_support::random_tokens;

// Trained for 1,024 positions.
constexpr std::uint32_t kWindowedTrained = 1024;

EngineOptions options_of(std::uint32_t window, std::uint32_t sinks, std::uint32_t rows) {
  EngineOptions options;
  options.n_threads = 2;
  options.rows_per_pass = rows;
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = window, .sinks = sinks};
  return options;
}

std::unique_ptr<Engine> open(const EngineOptions& options) {
  auto engine = Engine::open(kBundled, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(engine).value();
}

constexpr std::size_t kCall = 150;  // tokens of a prompt that come at once

// The logits after every 150th token of a prompt and after each of some generated rows.
std::vector<float> logits_of(const EngineOptions& options, std::span<const TokenId> tokens,
                             std::size_t n_generated) {
  const std::unique_ptr<Engine> engine = open(options);
  const std::unique_ptr<Session> session = engine->create_session().value();
  LogitsLog keep;
  const std::span<const TokenId> prompt = tokens.first(tokens.size() - n_generated);
  for (std::size_t at = 0; at < prompt.size(); at += kCall) {
    const std::size_t n = std::min(kCall, prompt.size() - at);
    EXPECT_TRUE(session->prefill(prompt.subspan(at, n), &keep).ok());
  }
  for (const TokenId token : tokens.last(n_generated)) {
    EXPECT_TRUE(session->step(token, &keep).ok());
  }
  return keep.values;
}

// The same of an engine that keeps everything and whose rows are told what they see.
std::vector<float> masked_logits(EngineOptions options, std::span<const TokenId> tokens,
                                 std::size_t n_generated) {
  const KvPolicyOptions policy = std::exchange(options.kv_policy, {});
  options.max_context = kWindowedTrained;
  options.rows_per_pass = kCall;
  const std::unique_ptr<Engine> engine = open(options);
  auto& impl = const_cast<Engine::Impl&>(engine->impl());
  const SequenceId sequence = impl.kv->create_sequence().value();
  const std::size_t n_prompt = tokens.size() - n_generated;
  LogitsLog keep;
  for (std::size_t at = 0; at < tokens.size();) {
    const bool prompt = at < n_prompt;
    const std::size_t n = prompt ? std::min(kCall, n_prompt - at) : 1;
    EXPECT_TRUE(impl.kv->append(sequence, static_cast<std::uint32_t>(n)).has_value());
    std::vector<Row> rows;
    for (std::size_t i = 0; i < n; ++i) {
      const auto slot = static_cast<std::uint32_t>(at + i);
      const std::uint32_t first = slot + 1 > policy.window ? slot + 1 - policy.window : 0;
      rows.push_back({.sequence = sequence,
                      .token = tokens[at + i],
                      .position = static_cast<std::int32_t>(slot),
                      .kv_slot = slot,
                      .role = prompt ? RowRole::kPrompt : RowRole::kGenerated,
                      .visible = {.prefix = slot + 1,
                                  .ancestors = 0,
                                  .sinks = std::min(policy.sinks, slot + 1),
                                  .first = first},
                      .adapter = 0,
                      .wants_output = i + 1 == n});
    }
    EXPECT_TRUE(impl.decoder->run({.rows = rows, .kv = &*impl.kv, .sink = &keep}).ok());
    at += n;
  }
  return keep.values;
}

TEST(KvWindowTest, LogitsAreThoseOfAFullCacheWhoseRowsSeeNoMore) {
  struct Case {
    std::uint32_t window;
    std::uint32_t sinks;
    std::uint32_t rows;
    KvType type;
  };
  const std::vector<TokenId> tokens = random_tokens(700);
  for (const Case& c :
       {Case{1, 0, 64, KvType::kF16}, Case{30, 4, 64, KvType::kF32}, Case{64, 0, 64, KvType::k8Bit},
        Case{100, 4, 64, KvType::k4Bit}, Case{600, 70, 64, KvType::kF16}}) {
    SCOPED_TRACE("window " + std::to_string(c.window));
    EngineOptions options = options_of(c.window, c.sinks, c.rows);
    options.k_type = c.type;
    options.v_type = c.type;
    const std::vector<float> got = logits_of(options, tokens, 20);
    ASSERT_GT(got.size(), std::size_t{24} * 4096);
    EXPECT_EQ(got, masked_logits(options, tokens, 20));
  }
}

TEST(KvWindowTest, AWindowOfTheContextIsTheFullPolicy) {
  const std::vector<TokenId> tokens = random_tokens(kWindowedTrained);
  EngineOptions full;
  full.n_threads = 2;
  const std::vector<float> expected = logits_of(full, tokens, 20);
  EXPECT_EQ(logits_of(options_of(kWindowedTrained, 4, 0), tokens, 20), expected);
  EXPECT_EQ(logits_of(options_of(1'000'000, 4'000'000, 0), tokens, 20), expected);
  EXPECT_NE(logits_of(options_of(kWindowedTrained / 2, 4, 0), tokens, 20), expected);
}

TEST(KvWindowTest, BitsDependNeitherOnPassesNorThreadsNorAFile) {
  const std::vector<TokenId> tokens = random_tokens(900);
  EngineOptions options = options_of(100, 4, 512);
  const std::vector<float> expected = logits_of(options, tokens, 10);
  for (const std::uint32_t rows : {1U, 7U, 50U}) {
    EXPECT_EQ(logits_of(options_of(100, 4, rows), tokens, 10), expected) << rows;
  }
  options.n_threads = 5;
  EXPECT_EQ(logits_of(options, tokens, 10), expected);
  options.rows_per_pass = 13;
  options.kv_spill_path = testing_support::temporary_path("kv_window_spill");
  EXPECT_EQ(logits_of(options, tokens, 10), expected);
}

// 1,000 tokens through a cache of 192 slots.
TEST(KvWindowTest, APromptManyTimesTheCacheTakesNoMoreMemory) {
  const EngineOptions options = options_of(40, 4, 20);
  const std::unique_ptr<Engine> engine = open(options);
  const KvCache& kv = *engine->impl().kv;
  EXPECT_EQ(engine->max_context(), kWindowedTrained);
  EXPECT_EQ(kv.limits().n_pages, 3U);
  const std::unique_ptr<Session> session = engine->create_session().value();
  const std::vector<TokenId> tokens = random_tokens(1000);
  LogitsLog keep;
  ASSERT_TRUE(session->prefill(tokens, &keep).ok());
  EXPECT_EQ(session->length(), 1000U);
  EXPECT_TRUE(kv.holds(0, 0, 4));
  EXPECT_TRUE(kv.holds(0, 1000 - 60, 1000));
  EXPECT_FALSE(kv.holds(0, 64, 65));
  EXPECT_TRUE(std::all_of(keep.values.begin(), keep.values.end(),
                          [](float logit) { return std::isfinite(logit); }));
  const auto kv_bytes = [&](std::uint32_t context) {
    EngineOptions longer = options;
    longer.max_context = context;
    const EnginePlan plan = Engine::plan_file(kBundled, longer).value();
    return plan.memory.region(plan.regions.kv_cache).bytes +
           plan.memory.region(plan.regions.kv_tables).bytes;
  };
  EXPECT_EQ(kv_bytes(300), kv_bytes(kWindowedTrained));
}

TEST(KvWindowTest, TextEndsAtTheTrainedContext) {
  const std::unique_ptr<Engine> engine = open(options_of(64, 4, 100));
  const std::unique_ptr<Session> session = engine->create_session().value();
  GenerateOptions generate;
  generate.max_tokens = 500;
  generate.sampling.temperature = 0.0F;
  generate.sampling.logit_bias = {{300, 1e6F}};
  const GenerateResult result = session->generate(random_tokens(1000), generate).value();
  EXPECT_EQ(result.reason, StopReason::kContextFull);
  EXPECT_EQ(session->length(), kWindowedTrained);
  const Status status = session->step(300, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(status.message(), HasSubstr("1024 positions"));
}

// What was taken does not come back; what the next row sees is enough to go on.
TEST(KvWindowTest, SessionsAreCutToWhatIsHeld) {
  const std::unique_ptr<Engine> engine = open(options_of(100, 4, 50));
  const std::unique_ptr<Session> session = engine->create_session().value();
  const std::vector<TokenId> tokens = random_tokens(800);
  const auto tail = [&](std::size_t from) {
    LogitsLog keep;
    EXPECT_TRUE(session->prefill(std::span(tokens).subspan(from), &keep).ok());
    return keep.values;
  };
  const std::vector<float> expected = tail(0);
  EXPECT_EQ(session->longest_kept(790), 790U);
  ASSERT_TRUE(session->truncate(790).ok());
  EXPECT_EQ(tail(790), expected);

  const Status status = session->truncate(500);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("cannot keep 500 tokens of 800"));
  EXPECT_THAT(status.message(), HasSubstr("evicted"));
  EXPECT_EQ(session->length(), 800U);
  // The page of the sinks is kept whole.
  ASSERT_EQ(session->longest_kept(500), kKvPageSlots);
  ASSERT_TRUE(session->truncate(kKvPageSlots).ok());
  EXPECT_EQ(tail(kKvPageSlots), expected);
  ASSERT_TRUE(session->truncate(0).ok());
  EXPECT_EQ(tail(0), expected);
}

TEST(KvWindowTest, TellsWhichPositionsAreVisible) {
  const std::unique_ptr<Engine> engine = open(options_of(6, 2, 50));
  const std::unique_ptr<Session> session = engine->create_session().value();
  std::vector<std::uint32_t> visible = {1000};
  ASSERT_TRUE(session->visible_positions(0, 0, visible).ok());
  EXPECT_TRUE(visible.empty());
  ASSERT_TRUE(session->prefill(random_tokens(5), nullptr).ok());
  ASSERT_TRUE(session->visible_positions(0, 0, visible).ok());
  EXPECT_THAT(visible, testing::ElementsAre(0, 1, 2, 3, 4));
  ASSERT_TRUE(session->prefill(random_tokens(200), nullptr).ok());
  // The window counts the row itself.
  ASSERT_TRUE(session->visible_positions(5, 1, visible).ok());
  EXPECT_THAT(visible, testing::ElementsAre(0, 1, 200, 201, 202, 203, 204));
}

TEST(KvWindowTest, ACancelledPromptKeepsWhatItCannotTakeBack) {
  const std::unique_ptr<Engine> engine = open(options_of(100, 4, 50));
  const std::unique_ptr<Session> session = engine->create_session().value();
  const std::vector<TokenId> tokens = random_tokens(900);
  const std::span<const TokenId> all = tokens;
  LogitsLog whole;
  ASSERT_TRUE(session->prefill(all, &whole).ok());
  ASSERT_TRUE(session->truncate(0).ok());
  ASSERT_TRUE(session->prefill(all.first(300), nullptr).ok());

  struct Half {
    Engine* engine;
    static void cancel(std::uint64_t done, std::uint64_t total, void* user) {
      if (2 * done > total) static_cast<Half*>(user)->engine->cancel();
    }
  } half{engine.get()};
  GenerateOptions generate;
  generate.max_tokens = 1;
  generate.on_prompt = Half::cancel;
  generate.user = &half;
  const GenerateResult result = session->generate(all.subspan(300), generate).value();
  EXPECT_EQ(result.reason, StopReason::kCancelled);
  const std::size_t length = session->length();
  EXPECT_EQ(length, 600U);  // the pass of token 600 was cancelled
  EXPECT_TRUE(std::equal(session->tokens().begin(), session->tokens().end(), tokens.begin()));
  LogitsLog rest;
  ASSERT_TRUE(session->prefill(all.subspan(length), &rest).ok());
  EXPECT_EQ(rest.values, whole.values);

  // One pass can be taken back: its window is still there.
  engine->cancel();
  EXPECT_EQ(session->prefill(all.first(50), nullptr).code(), StatusCode::kCancelled);
  EXPECT_EQ(session->length(), 900U);
}

TEST(KvWindowTest, ForksShareAndPart) {
  EngineOptions options = options_of(100, 4, 50);
  options.n_sequences = 2;
  const std::unique_ptr<Engine> engine = open(options);
  auto& impl = const_cast<Engine::Impl&>(engine->impl());
  const std::vector<TokenId> tokens = random_tokens(500);
  const auto run = [&](SequenceId sequence, std::size_t from, std::size_t n) {
    LogitsLog keep;
    const std::span<const TokenId> part = std::span(tokens).subspan(from, n);
    EXPECT_TRUE(impl.append(sequence, part, RowRole::kPrompt, n - 1, &keep).ok());
    return keep.values;
  };
  const SequenceId first = impl.kv->create_sequence().value();
  run(first, 0, 300);
  const SequenceId second = impl.kv->fork(first).value();
  std::vector<float> of_first;
  std::vector<float> of_second;
  for (std::size_t at = 300; at < 500; at += 10) {
    of_first = run(first, at, 10);
    of_second = run(second, at, 10);
  }
  EXPECT_EQ(of_first, of_second);
  impl.kv->free_sequence(second);
  impl.kv->free_sequence(first);
  EXPECT_EQ(impl.kv->n_free_pages(), impl.kv->limits().n_pages);
  EXPECT_EQ(run(impl.kv->create_sequence().value(), 0, 500), of_first);
}

TEST(KvWindowTest, RefusesPoliciesThatCannotBeKept) {
  EngineOptions options = options_of(0, 4, 0);
  const Status none = Engine::open(kBundled, options).error();
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("window of 0"));
}

}  // namespace
}  // namespace qsf
