// SPDX-License-Identifier: MIT
//
// The pages of the KV cache in steps: what is planned for many sequences, reserved at admission,
// and what members do that find no page.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_plan.h"
#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// An engine of few pages, each of 64 positions. A context is two pages.
EngineOptions few_pages(std::uint32_t n_pages, std::uint32_t n_sequences) {
  EngineOptions options = step_options(n_sequences);
  options.max_context = 128;
  options.kv_positions = n_pages * kKvPageSlots;
  return options;
}

GenerateOptions greedy(std::uint32_t max_tokens, std::uint32_t reserve_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.reserve_tokens = reserve_tokens;
  options.sampling.temperature = 0.0F;
  options.sampling.repeat_penalty = 1.3F;  // or texts repeat, and end too late to differ
  return options;
}

std::string greedy_alone(std::string_view prompt, std::uint32_t max_tokens) {
  const std::unique_ptr<Engine> engine = open_bundled(few_pages(2, 1));
  Member member(*engine, prompt, greedy(max_tokens, 0));
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  return member.text;
}

TEST(StepPagesTest, APlanHoldsAContextAndReservationsForTheOtherSequences) {
  StreamedShape shape;
  shape.n_layers = 1;
  shape.max_positions = 4096;
  const StreamedModel model("step_pages", shape);
  EngineOptions options = step_options(32);
  options.max_context = 4096;
  const auto planned = [&] { return Engine::plan_file(model.path(), options).value(); };
  const auto kv_bytes = [](const EnginePlan& plan) {
    for (const auto& region : plan.memory.regions()) {
      if (region.name == "kv_cache") return region.bytes;
    }
    return std::uint64_t{0};
  };
  const EnginePlan plan = planned();
  EXPECT_EQ(plan.n_kv_pages, (4096 + 31 * kDefaultReserve) / kKvPageSlots);
  options.n_sequences = 1;
  const EnginePlan one = planned();
  EXPECT_EQ(one.n_kv_pages, 4096 / kKvPageSlots);
  EXPECT_EQ(kv_bytes(plan) * one.n_kv_pages, kv_bytes(one) * plan.n_kv_pages);

  options.n_sequences = 32;
  options.kv_positions = 5000;
  EXPECT_EQ(planned().n_kv_pages, 79U);
  options.kv_positions = 1;  // one sequence has its context
  EXPECT_EQ(planned().n_kv_pages, 64U);
  options.kv_positions = UINT32_MAX;
  EXPECT_EQ(planned().n_kv_pages, 32U * 64U);
}

TEST(StepPagesTest, RowsOfAMemberAreDelayedAsTheRowsOfAPassDemand) {
  EXPECT_EQ(max_row_delay(1, 512), 0U);
  EXPECT_EQ(max_row_delay(32, 512), 0U);
  EXPECT_EQ(max_row_delay(32, 32), 0U);
  EXPECT_EQ(max_row_delay(33, 32), 1U);
  EXPECT_EQ(max_row_delay(2, 1), 1U);
  EXPECT_EQ(max_row_delay(33, 32, /*whole_prompts=*/true), 1U);
  EXPECT_EQ(max_row_delay(34, 32, /*whole_prompts=*/true), 3U);
  EXPECT_EQ(max_row_delay(1, 32, /*whole_prompts=*/true), 0U);
}

TEST(StepPagesTest, AGenerationIsAdmittedWithItsPagesOrNotAtAll) {
  const std::unique_ptr<Engine> engine = open_bundled(few_pages(2, 2));
  Member first(*engine, "Once", greedy(80, 0));
  Member second(*engine, "There was a king", greedy(10, 0));
  Generation* all[] = {first.generation.get(), second.generation.get()};
  ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_EQ(engine->kv_pages().n_free, 1U);
  EXPECT_EQ(engine->kv_pages().n_unreserved, 0U);
  EXPECT_EQ(all[1]->status().code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(all[1]->status().message(),
              HasSubstr("1 pages of 64 positions to be reserved, 0 of 2 are free"));
  EXPECT_EQ(second.session->length(), 0U);
  run_to_end(*engine, all);
  EXPECT_EQ(first.text, greedy_alone("Once", 80));
  // The pages are free again.
  first.generation.reset();
  first.session.reset();
  second.generation.reset();
  EXPECT_EQ(engine->kv_pages().n_unreserved, 2U);
  EXPECT_TRUE(second.session->generate(encode(*engine, "Once"), greedy(80, 0)).has_value());
}

TEST(StepPagesTest, TheReservationEndsWithItsGeneration) {
  const std::unique_ptr<Engine> engine = open_bundled(few_pages(3, 2));
  Member first(*engine, "Once", greedy(80, 0));
  Member second(*engine, "Once", greedy(80, 0));
  Generation* all[] = {first.generation.get(), second.generation.get()};
  ASSERT_TRUE(engine->step({all, 1}).has_value());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 1U);
  all[0]->cancel();
  ASSERT_TRUE(engine->step({all, 1}).has_value());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 2U);
  ASSERT_TRUE(engine->step({all + 1, 1}).has_value());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 0U);
  second.generation.reset();  // before its end
  EXPECT_EQ(engine->kv_pages().n_unreserved, 1U);
}

TEST(StepPagesTest, AMemberWithoutAPageWaitsAndKeepsWhatItHas) {
  const std::unique_ptr<Engine> engine = open_bundled(few_pages(3, 2));
  Member first(*engine, "Once upon a time", greedy(100, 1));
  Member second(*engine, "There was a king", greedy(100, 1));
  Generation* all[] = {first.generation.get(), second.generation.get()};
  std::size_t n_waits = 0;
  while (!all[0]->finished()) {
    const StepCounts counts = engine->step(all).value();
    if (counts.n_waiting == 0) continue;
    ++n_waits;
    EXPECT_EQ(counts.n_waiting, 1U);
    EXPECT_TRUE(all[1]->waits_for_pages);
    EXPECT_EQ(second.session->length(), kKvPageSlots);
  }
  ASSERT_GT(n_waits, 10U);
  EXPECT_FALSE(all[1]->finished());
  first.generation.reset();
  first.session.reset();
  run_to_end(*engine, {all + 1, 1});
  EXPECT_FALSE(all[1]->waits_for_pages);
  EXPECT_EQ(first.text, greedy_alone("Once upon a time", 100));
  EXPECT_EQ(second.text, greedy_alone("There was a king", 100));
}

TEST(StepPagesTest, WhereAllWaitOneIsSavedAndGoesOnLater) {
  const std::string path = temporary_path("step_pages_session");
  const std::unique_ptr<Engine> engine = open_bundled(few_pages(2, 2));
  Member first(*engine, "Once upon a time", greedy(100, 1));
  Member second(*engine, "There was a king", greedy(100, 1));
  Generation* all[] = {first.generation.get(), second.generation.get()};
  StepCounts counts;
  while (counts.n_waiting == 0) counts = engine->step(all).value();
  while (counts.n_waiting < 2) counts = engine->step(all).value();
  EXPECT_EQ(counts.prompt_rows + counts.generated_rows, 0U);
  EXPECT_EQ(engine->step(all)->n_waiting, 2U);  // and nothing changes by itself

  ASSERT_TRUE(second.session->save(path).ok());
  const std::uint32_t n_done = all[1]->result().generated_tokens;
  second.generation.reset();
  second.session.reset();
  run_to_end(*engine, {all, 1});
  EXPECT_EQ(first.text, greedy_alone("Once upon a time", 100));
  first.generation.reset();
  first.session.reset();
  const std::unique_ptr<Session> later = engine->create_session().value();
  ASSERT_TRUE(later->load(path).ok());
  GenerateOptions options = greedy(100 - n_done, 1);
  options.on_token = [](TokenId, std::string_view piece, void* user) {
    static_cast<std::string*>(user)->append(piece);
  };
  options.user = &second.text;
  ASSERT_TRUE(later->generate({}, options).has_value());
  EXPECT_EQ(second.text, greedy_alone("There was a king", 100));
}

TEST(StepPagesTest, ALoneGenerationEndsAsContextFullAndNamesThePages) {
  std::string log;
  EngineOptions options = few_pages(3, 2);
  options.log = {
      .write = [](LogLevel, std::string_view line,
                  void* user) { static_cast<std::string*>(user)->append(line).append("\n"); },
      .user = &log};
  const std::unique_ptr<Engine> engine = open_bundled(options);
  Member idle(*engine, "Once upon a time", greedy(100, 0));  // reserves two pages
  Generation* const generation = idle.generation.get();
  ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  const std::unique_ptr<Session> session = engine->create_session().value();
  const GenerateResult result =
      session->generate(encode(*engine, "There was a king"), greedy(100, 1)).value();
  EXPECT_EQ(result.reason, StopReason::kContextFull);
  EXPECT_EQ(session->length(), kKvPageSlots);
  EXPECT_NE(result.pending_token, kNoToken);
  EXPECT_THAT(log, HasSubstr("generation ends at 64 positions: the next one needs a page of the KV "
                             "cache, and 0 of 3 are free and not reserved"));
}

}  // namespace
}  // namespace qsf
