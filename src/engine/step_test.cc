// SPDX-License-Identifier: MIT
//
// Steps of many generations on the bundled model: each generates what it does alone, however they
// come and go, and an error or a cancellation of one leaves the others as they are.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using namespace testing_support;

// Runs members together; member i joins before step i * stagger.
std::vector<std::string> together(std::size_t n, std::size_t stagger, EngineOptions options) {
  options.n_sequences = static_cast<std::uint32_t>(n);
  const std::unique_ptr<Engine> engine = open_bundled(options);
  Members members;
  std::vector<Generation*> running;
  for (std::size_t step = 0; members.size() < n || !running.empty(); ++step) {
    while (members.size() < n && step >= members.size() * stagger) {
      members.push_back(std::make_unique<Member>(*engine, members.size()));
      running.push_back(members.back()->generation.get());
    }
    const Result<StepCounts> counts = engine->step(running);
    EXPECT_TRUE(counts.has_value());
    EXPECT_LE(counts->prompt_rows + counts->generated_rows, engine->impl().rows_per_pass);
    std::erase_if(running, [](const Generation* g) { return g->finished(); });
  }
  std::vector<std::string> texts;
  for (const auto& member : members) {
    EXPECT_TRUE(member->generation->status().ok());
    texts.push_back(member->text);
  }
  return texts;
}

TEST(StepTest, EveryMemberGeneratesWhatItDoesAlone) {
  const std::vector<std::string> expected = texts_alone(8);
  for (const std::size_t n : {1U, 2U, 8U}) {
    const std::vector<std::string> first(expected.begin(),
                                         expected.begin() + static_cast<std::ptrdiff_t>(n));
    for (const std::size_t stagger : {0U, 1U, 5U}) {
      for (const std::uint32_t rows : {0U, 1U, 3U, 9U}) {
        EXPECT_EQ(together(n, stagger, step_options(1, rows)), first)
            << n << " by " << stagger << ", " << rows;
      }
    }
  }
}

// Prompts whose state is a sequence's share passes as well.
TEST(StepTest, PromptsUnderSparsePoliciesShareAPass) {
  for (const bool eviction : {false, true}) {
    EngineOptions options = step_options(4);
    if (eviction) {
      options.kv_policy = {.policy = KvPolicy::kH2o, .window = 16, .sinks = 2, .heavy = 8};
    } else {
      options.attention = AttentionKind::kSparsePrefill;
      options.sparse_prefill = {.local = 2, .heavy = 3, .chunk = 8, .sinks = 1};
    }
    const std::unique_ptr<Engine> engine = open_bundled(options);
    const Members members = make_members(*engine, 4);
    std::vector<Generation*> all = generations_of(members);
    std::size_t n_prompt = 0;
    for (std::size_t i = 0; i < 4; ++i) n_prompt += encode(*engine, member_prompt(i)).size();
    EXPECT_EQ(engine->step(all)->prompt_rows, n_prompt);
    run_to_end(*engine, all);
    const std::vector<std::string> expected = texts_alone(4, options);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i << eviction;
  }
}

TEST(StepTest, ThirtyTwoMembersGenerateWhatTheyDoAlone) {
  const std::vector<std::string> expected = texts_alone(32);
  EXPECT_EQ(together(32, 0, step_options(1)), expected);
  EXPECT_EQ(together(32, 2, step_options(1, 20)), expected);
}

TEST(StepTest, MembersAreAsAloneWithAnyKvCacheAndAnyPlaceOfTheWeights) {
  std::vector<EngineOptions> variants(4, step_options(1, 16));
  variants[0].kv_policy = {.policy = KvPolicy::kWindow, .window = 24, .sinks = 4};
  variants[1].k_type = variants[1].v_type = KvType::k4Bit;
  variants[2].kv_spill_path = temporary_path("step_test_kv");
  variants[3].n_threads = 4;
  for (const EngineOptions& options : variants) {
    EXPECT_EQ(together(5, 1, options), texts_alone(5, options));
  }
  EngineOptions streamed = step_options(5, 16);
  streamed.ram_budget_bytes = smallest_budget(kBundled, streamed);
  EXPECT_EQ(together(5, 1, streamed), texts_alone(5));
}

TEST(StepTest, WeightsAreReadOnceForAllMembers) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(4));
  const Members members = make_members(*engine, 4);
  std::vector<Generation*> all = generations_of(members);
  EXPECT_GT(engine->step(all)->prompt_rows, 4U);
  const auto bytes_of_step = [&](std::size_t n) {
    const std::uint64_t before = engine->stats().operators[OperatorKind::kGateUp].bytes;
    EXPECT_EQ(engine->step({all.data(), n})->generated_rows, n);
    return engine->stats().operators[OperatorKind::kGateUp].bytes - before;
  };
  const std::uint64_t four = bytes_of_step(4);
  EXPECT_GT(four, 0U);
  EXPECT_EQ(bytes_of_step(1), four);
}

TEST(StepTest, StreamedWeightsAreReadOnceForAllMembers) {
  EngineOptions options = step_options(4, 16);
  options.ram_budget_bytes = smallest_budget(kBundled, options);
  const std::unique_ptr<Engine> engine = open_bundled(options);
  ASSERT_FALSE(engine->plan().residency.everything_resident);
  const Members members = make_members(*engine, 4);
  std::vector<Generation*> all = generations_of(members);
  while (engine->step(all)->prompt_rows > 0) {
  }
  const std::uint64_t before = engine->stats().weight_bytes_read;
  constexpr std::uint64_t kSteps = 10;
  for (std::uint64_t i = 0; i < kSteps; ++i) EXPECT_EQ(engine->step(all)->generated_rows, 4U);
  const std::uint64_t read = engine->stats().weight_bytes_read - before;
  const std::uint64_t streamed = engine->plan().residency.streamed_bytes;
  // Read-ahead may be a ring further or less far than it was, and embedding rows are read singly.
  EXPECT_GT(read, (kSteps - 1) * streamed);
  EXPECT_LT(read, (kSteps + 2) * streamed);
}

TEST(StepTest, DecodingAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::unique_ptr<Engine> engine = open_bundled(step_options(4));
  Members members;
  for (std::size_t i = 0; i < 4; ++i) {
    members.push_back(std::make_unique<Member>(*engine, i, 100));
    members.back()->text.reserve(4096);
  }
  std::vector<Generation*> all = generations_of(members);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->step(all).has_value());
  const long before = n_allocations();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_EQ(n_allocations(), before);
}

TEST(StepTest, ErrorsOfOneLeaveTheOthers) {
  const std::vector<std::string> expected = texts_alone(3);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(6));
  const Members members = make_members(*engine, 3);
  const std::unique_ptr<Session> session = engine->create_session().value();
  const std::vector<TokenId> wrong = {1, 1U << 30};
  const GenerationPtr refused = Generation::create(*session, wrong, {}).value();
  const std::unique_ptr<Session> empty = engine->create_session().value();
  const GenerationPtr without_tokens = Generation::create(*empty, {}, {}).value();
  Member full(*engine, std::string(1200, 'x'), {.max_tokens = 10});
  std::vector<Generation*> all = generations_of(members);
  all.insert(all.begin() + 1, {refused.get(), without_tokens.get(), full.generation.get()});
  run_to_end(*engine, all);
  EXPECT_EQ(refused->status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->length(), 0U);
  EXPECT_EQ(without_tokens->status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(full.generation->status().code(), StatusCode::kOutOfBudget);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i;
}

TEST(StepTest, AFullContextOfOneLeavesTheOthers) {
  EngineOptions options = step_options(3);
  options.max_context = 64;
  const std::vector<std::string> expected = texts_alone(2, options);
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const Members members = make_members(*engine, 2);
  Member full(*engine, "Once upon a time", {.max_tokens = 1000});
  std::vector<Generation*> all = generations_of(members);
  all.insert(all.begin(), full.generation.get());
  run_to_end(*engine, all);
  const StopReason reason = full.generation->result().reason;
  EXPECT_TRUE(reason == StopReason::kContextFull || reason == StopReason::kEndOfText);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i;
}

// A pass that failed is computed again, and counts once.
TEST(StepTest, ProgressOfAPromptNeverExceedsTheWhole) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(1, 4));
  struct Progress {
    std::uint64_t done = 0;
    std::uint64_t total = 0;
    bool exceeded = false;
  } progress;
  GenerateOptions options;
  options.max_tokens = 1;
  options.user = &progress;
  options.on_prompt = [](std::uint64_t done, std::uint64_t total, void* user) {
    Progress& seen = *static_cast<Progress*>(user);
    seen.exceeded = seen.exceeded || done > total || (done == total && seen.total == 0);
    seen.done = done;
    seen.total = total;
  };
  const std::unique_ptr<Session> session = engine->create_session().value();
  const GenerationPtr generation =
      Generation::create(*session, encode(*engine, std::string(60, 'x')), options).value();
  Generation* const member = generation.get();
  for (int i = 0; i < 4; ++i) {
    engine->cancel();
    EXPECT_FALSE(engine->step({&member, 1}).has_value());
    ASSERT_TRUE(engine->step({&member, 1}).has_value());
    EXPECT_LT(progress.done, progress.total);
  }
  run_to_end(*engine, {&member, 1});
  EXPECT_FALSE(progress.exceeded);
  EXPECT_EQ(progress.done, progress.total);
}

TEST(StepTest, AFailedPassLeavesEveryMemberAsItWas) {
  const std::vector<std::string> expected = texts_alone(3);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(3));
  const Members members = make_members(*engine, 3);
  std::vector<Generation*> all = generations_of(members);
  for (std::size_t step = 0;; ++step) {
    if (step % 3 == 0) {
      std::vector<std::size_t> lengths;
      for (const auto& member : members) lengths.push_back(member->session->n_computed());
      engine->cancel();
      const Result<StepCounts> counts = engine->step(all);
      if (counts.has_value()) break;  // all had finished
      EXPECT_EQ(counts.error().code(), StatusCode::kCancelled);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(members[i]->session->n_computed(), lengths[i]);
    }
    ASSERT_TRUE(engine->step(all).has_value());
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(members[i]->text, expected[i]);
}

TEST(StepTest, ACallbackCannotUseItsEngine) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(3));
  Member other(*engine, 1);
  const std::unique_ptr<Session> session = engine->create_session().value();
  Member member(*engine, 0, 2);
  std::vector<Status> refused;
  member.on_text = [&] {
    Generation* inner = other.generation.get();
    const std::vector<TokenId> tokens = {1, 2, 3};
    refused = {engine->step({&inner, 1}).error(),
               session->prefill(tokens, nullptr),
               session->generate(tokens, {}).error(),
               member.session->truncate(0),
               member.session->fork().error(),
               member.session->save(temporary_path("step_test_session"))};
  };
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  ASSERT_EQ(refused.size(), 6U);
  for (const Status& status : refused) EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.session->length(), 0U);
  EXPECT_EQ(session->length(), 0U);
  EXPECT_EQ(member.text, text_alone(0).substr(0, member.text.size()));
}

TEST(StepTest, WrongMembersAreRefused) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(2));
  const std::unique_ptr<Engine> other = open_bundled(step_options(1));
  EXPECT_EQ(engine->step({})->n_finished, 0U);
  Member member(*engine, 0);
  Member foreign(*other, 0);
  Generation* twice[] = {member.generation.get(), member.generation.get()};
  Generation* null[] = {nullptr};
  Generation* of_other[] = {member.generation.get(), foreign.generation.get()};
  EXPECT_EQ(engine->step(twice).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->step(null).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->step(of_other).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Generation::create(*member.session, {}, {}).error().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(member.session->length(), 0U);
}

TEST(StepTest, ASessionIsItsGenerationsWhileThatRuns) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(1));
  Member member(*engine, 0);
  Generation* const generation = member.generation.get();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  const std::size_t length = member.session->length();
  const std::vector<TokenId> tokens = {1, 2, 3};
  EXPECT_EQ(member.session->prefill(tokens, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(member.session->step(1, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(member.session->truncate(1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(member.session->length(), length);
  run_to_end(*engine, {&generation, 1});
  EXPECT_EQ(member.text, text_alone(0));
  EXPECT_TRUE(member.session->truncate(1).ok());
}

TEST(StepTest, TwoEnginesStepAtOnce) {
  const std::vector<std::string> expected = texts_alone(3);
  std::vector<std::string> texts[2];
  {
    std::vector<std::jthread> threads;
    for (std::vector<std::string>& of_engine : texts) {
      threads.emplace_back([&of_engine] { of_engine = together(3, 1, step_options(1)); });
    }
  }
  EXPECT_EQ(texts[0], expected);
  EXPECT_EQ(texts[1], expected);
}

TEST(StepTest, APromptDelaysRowsByAsManyPassesAsPlanned) {
  for (const auto& [n, rows] : {std::pair(4U, 0U), {4U, 4U}, {4U, 3U}, {4U, 2U}, {4U, 1U}}) {
    const std::unique_ptr<Engine> engine = open_bundled(step_options(n, rows));
    Members members;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      members.push_back(
          std::make_unique<Member>(*engine, "Once", GenerateOptions{.max_tokens = 100}));
    }
    std::vector<Generation*> all = generations_of(members);
    const auto generates = [](const Generation* g) { return g->result().generated_tokens > 0; };
    while (!std::all_of(all.begin(), all.end(), generates)) {
      ASSERT_TRUE(engine->step(all).has_value());
    }
    Member newcomer(*engine, std::string(200, 'x'), {.max_tokens = 1});
    all.insert(all.begin(), newcomer.generation.get());
    std::vector<std::uint32_t> delay(n - 1);
    std::uint32_t longest = 0;
    while (!newcomer.generation->finished() && !all_finished(generations_of(members))) {
      std::vector<std::size_t> before;
      for (const auto& member : members) before.push_back(member->session->length());
      ASSERT_TRUE(engine->step(all).has_value());
      for (std::size_t i = 0; i < members.size(); ++i) {
        const bool had_row = members[i]->session->length() > before[i];
        delay[i] = had_row || members[i]->generation->finished() ? 0 : delay[i] + 1;
        longest = std::max(longest, delay[i]);
      }
    }
    EXPECT_EQ(longest, engine->plan().max_row_delay) << n << " members, " << rows << " rows";
  }
}

}  // namespace
}  // namespace qsf
