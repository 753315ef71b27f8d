// SPDX-License-Identifier: MIT
//
// Steps as a scheduler wants them: prompts of a pass are bounded, admission can be tried again,
// what a pass cost is counted, and many sequences share one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

std::size_t n_prompt_tokens(const Engine& engine, std::size_t i) {
  return encode(engine, member_prompt(i)).size();
}

TEST(StepBoundsTest, PromptRowsAreBoundedAndTheFirstInTheCallComeFirst) {
  const std::vector<std::string> expected = texts_alone(5);
  for (const std::uint32_t most : {1U, 3U, 8U, 1000U}) {
    const std::unique_ptr<Engine> engine = open_bundled(step_options(5));
    const Members members = make_members(*engine, 5);
    std::vector<Generation*> all = generations_of(members);
    std::swap(all[0], all[4]);
    const std::size_t order[] = {4, 1, 2, 3, 0};
    bool was_bounded = false;
    while (!all_finished(all)) {
      const Result<StepCounts> counts = engine->step(all, {.max_prompt_rows = most});
      ASSERT_TRUE(counts.has_value());
      ASSERT_LE(counts->prompt_rows, most);
      was_bounded = was_bounded || counts->prompt_rows == most;
      // A prompt has begun only when those before it are done.
      for (std::size_t i = 1; i < 5; ++i) {
        if (members[order[i]]->session->length() == 0) continue;
        ASSERT_GE(members[order[i - 1]]->session->length(), n_prompt_tokens(*engine, order[i - 1]));
      }
    }
    EXPECT_EQ(was_bounded, most < 1000);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i;
  }
}

TEST(StepBoundsTest, ABoundedPromptDelaysRowsByNoMoreThanPlanned) {
  for (const auto& [rows, most] : {std::pair(0U, 2U), {4U, 1U}, {3U, 1U}, {2U, 5U}, {1U, 1U}}) {
    const std::unique_ptr<Engine> engine = open_bundled(step_options(4, rows));
    Members members;
    for (std::size_t i = 0; i < 3; ++i) {
      members.push_back(
          std::make_unique<Member>(*engine, "Once", GenerateOptions{.max_tokens = 150}));
    }
    std::vector<Generation*> all = generations_of(members);
    const auto generates = [](const Generation* g) { return g->result().generated_tokens > 0; };
    while (!std::all_of(all.begin(), all.end(), generates)) ASSERT_TRUE(engine->step(all));
    Member newcomer(*engine, std::string(40, 'x'), {.max_tokens = 1});
    all.insert(all.begin(), newcomer.generation.get());
    std::vector<std::uint32_t> delay(3);
    while (!newcomer.generation->finished() && !all_finished(generations_of(members))) {
      std::vector<std::size_t> before;
      for (const auto& member : members) before.push_back(member->session->length());
      ASSERT_TRUE(engine->step(all, {.max_prompt_rows = most}).has_value());
      for (std::size_t i = 0; i < 3; ++i) {
        const bool had_row = members[i]->session->length() > before[i];
        delay[i] = had_row || members[i]->generation->finished() ? 0 : delay[i] + 1;
        EXPECT_LE(delay[i], engine->plan().max_row_delay) << rows << " rows, " << most;
      }
    }
    EXPECT_TRUE(newcomer.generation->finished());
  }
}

TEST(StepBoundsTest, APromptThatHasToBeOnePassIsComputedWhole) {
  EngineOptions options = step_options(2);
  options.attention = AttentionKind::kSymmetric;
  const std::vector<std::string> expected = texts_alone(2, options);
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const Members members = make_members(*engine, 2);
  const std::vector<Generation*> all = generations_of(members);
  EXPECT_EQ(engine->step(all, {.max_prompt_rows = 1})->prompt_rows, n_prompt_tokens(*engine, 0));
  while (!all_finished(all)) ASSERT_TRUE(engine->step(all, {.max_prompt_rows = 1}).has_value());
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(members[i]->text, expected[i]);
}

TEST(StepBoundsTest, WhatAPassCostIsCounted) {
  EngineOptions options = step_options(2, 16);
  const std::unique_ptr<Engine> resident = open_bundled(options);
  const std::unique_ptr<Session> session = resident->create_session().value();
  Member member(*resident, 0);
  Generation* generation = member.generation.get();
  const StepCounts counts = resident->step({&generation, 1}).value();
  EXPECT_GT(counts.pass_ns, 0U);
  EXPECT_EQ(counts.weight_bytes_read, 0U);
  EXPECT_EQ(resident->step({})->pass_ns, 0U);

  options.ram_budget_bytes = smallest_budget(kBundled, options);
  const std::unique_ptr<Engine> streamed = open_bundled(options);
  Member other(*streamed, 0);
  generation = other.generation.get();
  ASSERT_TRUE(streamed->step({&generation, 1}).has_value());
  const StepCounts second = streamed->step({&generation, 1}).value();
  EXPECT_GT(second.weight_bytes_read, 0U);
  // Tiles are read ahead, also between passes: others than those of this pass may be in between.
  EXPECT_LE(second.weight_bytes_read, streamed->stats().weight_bytes_read);
  EXPECT_LE(second.read_wait_ns, second.pass_ns);
}

TEST(StepBoundsTest, AdmissionCanBeTriedAgain) {
  EngineOptions options = step_options(3);
  options.kv_positions = 256;  // four pages, a context
  const std::unique_ptr<Engine> engine = open_bundled(options);
  Member first(*engine, "Once", {.max_tokens = 150});
  Member second(*engine, "There was a king", {.max_tokens = 100, .sampling = {.seed = 3}});
  ASSERT_TRUE(first.generation->admit().ok());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 1U);
  EXPECT_EQ(engine->kv_pages().n_free, 4U);
  ASSERT_TRUE(first.generation->admit().ok());
  for (int i = 0; i < 3; ++i) {
    const Status refused = second.generation->admit();
    EXPECT_EQ(refused.code(), StatusCode::kOutOfBudget);
    EXPECT_THAT(refused.message(), HasSubstr("2 pages of 64 positions to be reserved, 1 of 4"));
    EXPECT_FALSE(second.generation->finished());
    EXPECT_EQ(engine->kv_pages().n_unreserved, 1U);
  }
  Generation* one = first.generation.get();
  ASSERT_TRUE(engine->step({&one, 1}).has_value());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 1U) << "not reserved twice";
  first.generation->cancel();
  ASSERT_TRUE(engine->step({&one, 1}).has_value());
  first.session->cancel();
  first.generation.reset();
  first.session.reset();
  ASSERT_TRUE(second.generation->admit().ok());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 2U);
  one = second.generation.get();
  run_to_end(*engine, {&one, 1});
  Member alone(*engine, "There was a king", {.max_tokens = 100, .sampling = {.seed = 3}});
  one = alone.generation.get();
  run_to_end(*engine, {&one, 1});
  EXPECT_EQ(second.text, alone.text);
  EXPECT_FALSE(second.text.empty());
}

TEST(StepBoundsTest, AdmissionThatCanNeverBeEndsTheGeneration) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(1));
  const std::unique_ptr<Session> session = engine->create_session().value();
  const std::vector<std::vector<TokenId>> prompts = {
      std::vector<TokenId>(257, 5), {1, 1'000'000}, {}};
  for (const std::vector<TokenId>& prompt : prompts) {
    const GenerationPtr generation = Generation::create(*session, prompt, {}).value();
    const Status status = generation->admit();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(generation->finished());
    EXPECT_EQ(generation->status().message(), status.message());
    EXPECT_EQ(generation->admit().message(), status.message());
    EXPECT_EQ(engine->kv_pages().n_unreserved, engine->kv_pages().n_pages);
  }
}

TEST(StepBoundsTest, TwoHundredAndFiftySixSequencesShareAPass) {
  const std::vector<std::string> expected = texts_alone(4);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(256));
  Members members;
  for (std::size_t i = 0; i < 256; ++i) members.push_back(std::make_unique<Member>(*engine, i % 4));
  EXPECT_FALSE(engine->create_session().has_value());
  const std::vector<Generation*> all = generations_of(members);
  std::size_t most_rows = 0;
  while (!all_finished(all)) {
    const Result<StepCounts> counts = engine->step(all);
    ASSERT_TRUE(counts.has_value());
    most_rows = std::max(most_rows, counts->generated_rows);
  }
  EXPECT_GT(most_rows, 200U);
  for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(members[i]->text, expected[i % 4]) << i;
}

}  // namespace
}  // namespace qsf
