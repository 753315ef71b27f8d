// SPDX-License-Identifier: MIT
//
// The phases of a step, on the bundled model: cancellation in each of them, several passes in
// flight, and members that are freed in a pass.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"
#include "format/qsf_reader.h"

namespace qsf {
namespace {

using namespace testing_support;

enum class CancelAt { kAdmit, kPlan, kRun, kCommit, kOwnCommit, kRetire };

class StepCancelTest : public testing::TestWithParam<CancelAt> {};

TEST_P(StepCancelTest, ACancelledMemberLeavesTheOthers) {
  const CancelAt phase = GetParam();
  const std::vector<std::string> expected = texts_alone(4);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(4));
  const Members members = make_members(*engine, 4);
  // Members 0 to 2 generate before member 3, with the prompt, joins.
  std::vector<Generation*> all = generations_of(members);
  Generation* const cancelled = all[1];
  std::size_t step = 0;
  for (; step < 3; ++step) ASSERT_TRUE(engine->step({all.data(), 3}).has_value());
  const std::string before = members[1]->text;
  if (phase == CancelAt::kRun) members[3]->on_layer = [cancelled] { cancelled->cancel(); };
  if (phase == CancelAt::kCommit) members[0]->on_text = [cancelled] { cancelled->cancel(); };
  if (phase == CancelAt::kOwnCommit) members[1]->on_text = [cancelled] { cancelled->cancel(); };
  if (phase == CancelAt::kAdmit) cancelled->cancel();
  const PassId pass = engine->begin_step(all).value();
  if (phase == CancelAt::kPlan) cancelled->cancel();
  ASSERT_TRUE(engine->end_step(pass).has_value());
  if (phase == CancelAt::kRetire) cancelled->cancel();
  run_to_end(*engine, all);
  EXPECT_EQ(cancelled->result().reason, StopReason::kCancelled);
  EXPECT_TRUE(cancelled->status().ok());
  EXPECT_EQ(members[1]->text, expected[1].substr(0, members[1]->text.size()));
  EXPECT_GE(members[1]->text.size(), before.size());
  EXPECT_LT(members[1]->text.size(), expected[1].size());
  for (const std::size_t i : {0U, 2U, 3U}) EXPECT_EQ(members[i]->text, expected[i]) << i;
  EXPECT_EQ(engine->kv_pages().n_unreserved, engine->kv_pages().n_free);
}

INSTANTIATE_TEST_SUITE_P(Phases, StepCancelTest,
                         testing::Values(CancelAt::kAdmit, CancelAt::kPlan, CancelAt::kRun,
                                         CancelAt::kCommit, CancelAt::kOwnCommit,
                                         CancelAt::kRetire));

TEST(StepPhasesTest, APassStopsWhenAllItsMembersAreCancelled) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(2));
  const Members members = make_members(*engine, 2);
  std::vector<Generation*> all = generations_of(members);
  std::size_t n_layers = 0;
  members[0]->on_layer = [&] {
    ++n_layers;
    for (Generation* const member : all) member->cancel();
  };
  const Result<StepCounts> counts = engine->step(all);
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->n_finished, 2U);
  EXPECT_LE(n_layers, 2U);
  ASSERT_GT(engine->spec().n_layers, 2U);
  for (const auto& member : members) {
    EXPECT_EQ(member->generation->result().reason, StopReason::kCancelled);
    EXPECT_EQ(member->session->n_computed(), 0U);
  }
  // Nothing is left of the cancellation.
  for (const auto& member : members) member->generation.reset();
  const std::unique_ptr<Session> session = std::move(members[0]->session);
  EXPECT_TRUE(session->generate(encode(*engine, "Once"), {.max_tokens = 3}).has_value());
}

TEST(StepPhasesTest, SeveralPassesAreInFlight) {
  const std::vector<std::string> expected = texts_alone(6);
  EngineOptions options = step_options(6);
  options.max_passes_in_flight = 3;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const Members members = make_members(*engine, 6);
  std::vector<Generation*> all = generations_of(members);
  for (std::size_t step = 0; !all_finished(all); ++step) {
    const PassId first = engine->begin_step({all.data(), 2}).value();
    const PassId second =
        engine->begin_step({all.data() + 1, 3}).value();  // the first is in flight
    const PassId third = engine->begin_step(all).value();
    EXPECT_EQ(engine->begin_step(all).error().code(), StatusCode::kInvalidArgument);
    for (Generation* const member : all) EXPECT_TRUE(member->in_flight());
    EXPECT_EQ(members[0]->session->save(temporary_path("step_phases_session")).code(),
              StatusCode::kInvalidArgument);
    const bool in_order = step % 2 == 0;
    const Result<StepCounts> a = engine->end_step(in_order ? first : third);
    const Result<StepCounts> b = engine->end_step(second);
    const Result<StepCounts> c = engine->end_step(in_order ? third : first);
    ASSERT_TRUE(a.has_value() && b.has_value() && c.has_value());
    EXPECT_EQ(b->n_in_flight, 1U);
    EXPECT_EQ((in_order ? c : a)->n_in_flight, 4U);
    EXPECT_EQ(engine->end_step(first).error().code(), StatusCode::kInvalidArgument);
  }
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i;
}

TEST(StepPhasesTest, AFailedPassLeavesThoseInFlightBesideIt) {
  const std::vector<std::string> expected = texts_alone(4);
  EngineOptions options = step_options(4);
  options.max_passes_in_flight = 2;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const Members members = make_members(*engine, 4);
  std::vector<Generation*> all = generations_of(members);
  for (std::size_t step = 0; !all_finished(all); ++step) {
    const PassId first = engine->begin_step({all.data(), 2}).value();
    const PassId second = engine->begin_step({all.data() + 2, 2}).value();
    const bool fails = step % 4 == 1 && !all_finished({all.data(), 2});
    if (fails) engine->cancel();
    EXPECT_EQ(engine->end_step(first).has_value(), !fails);
    EXPECT_TRUE(engine->end_step(second).has_value());
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i;
}

TEST(StepPhasesTest, AFileThatIsCutLeavesEveryMemberAsItWas) {
  const std::string path = temporary_path("step_phases_cut.qsf");
  std::filesystem::copy_file(kBundled, path, std::filesystem::copy_options::overwrite_existing);
  EngineOptions options = step_options(3, 16);
  options.ram_budget_bytes = smallest_budget(path, options);
  options.read_path = ReadPath::kPread;
  const std::unique_ptr<Engine> engine = Engine::open(path, options).value();
  ASSERT_FALSE(engine->plan().residency.everything_resident);
  const Members members = make_members(*engine, 3);
  const std::vector<Generation*> all = generations_of(members);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine->step(all).has_value());
  const QsfReader reader = QsfReader::open(path).value();
  std::filesystem::resize_file(path, reader.layer(3).tiles.back().file_offset);
  std::vector<std::size_t> lengths;
  for (const auto& member : members) lengths.push_back(member->session->n_computed());
  Result<StepCounts> counts = engine->step(all);
  // What was read ahead is still right.
  for (int i = 0; i < 3 && counts.has_value(); ++i) {
    for (std::size_t m = 0; m < 3; ++m) lengths[m] = members[m]->session->n_computed();
    counts = engine->step(all);
  }
  ASSERT_FALSE(counts.has_value());
  EXPECT_EQ(counts.error().code(), StatusCode::kCorrupt);
  EXPECT_THAT(counts.error().message(), testing::HasSubstr("truncated"));
  EXPECT_EQ(engine->step(all).error().code(), StatusCode::kCorrupt);
  for (std::size_t m = 0; m < 3; ++m) {
    EXPECT_EQ(members[m]->session->n_computed(), lengths[m]);
    EXPECT_FALSE(all[m]->finished());
    all[m]->cancel();
  }
  EXPECT_EQ(engine->step(all)->n_finished, 3U);
  std::filesystem::remove(path);
}

TEST(StepPhasesTest, ErrorsOfCallbacksEndTheirMemberAlone) {
  const std::vector<std::string> expected = texts_alone(2);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(6));
  const Members members = make_members(*engine, 2);
  SamplingOptions failing_mask;
  failing_mask.on_mask = [](std::span<std::uint32_t>, void*) { return 7; };
  SamplingOptions empty_mask;
  empty_mask.on_mask = [](std::span<std::uint32_t> allowed, void*) {
    std::fill(allowed.begin(), allowed.end(), 0U);
    return 0;
  };
  SamplingOptions failing_logits;
  failing_logits.on_logits = [](std::span<float>, void*) { return 1; };
  SamplingOptions no_numbers;
  no_numbers.on_logits = [](std::span<float> logits, void*) {
    std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::quiet_NaN());
    return 0;
  };
  std::vector<Generation*> all = generations_of(members);
  Members failing;
  for (const SamplingOptions& sampling : {failing_mask, empty_mask, failing_logits, no_numbers}) {
    failing.push_back(
        std::make_unique<Member>(*engine, "Once", GenerateOptions{.sampling = sampling}));
    all.insert(all.begin() + 1, failing.back()->generation.get());
  }
  run_to_end(*engine, all);
  for (const auto& member : failing) {
    EXPECT_FALSE(member->generation->status().ok());
    EXPECT_EQ(member->text, "");
    EXPECT_EQ(member->session->n_computed(), encode(*engine, "Once").size());
  }
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i;
}

TEST(StepPhasesTest, AMemberFreedInACallbackIsFreedAtTheEndOfItsPass) {
  const std::vector<std::string> expected = texts_alone(3);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(3));
  const Members members = make_members(*engine, 3);
  std::vector<Generation*> all = generations_of(members);
  std::string text_then;
  members[1]->on_text = [&] {
    if (members[1]->text.size() < 20 || !members[1]->generation) return;
    members[1]->generation.reset();
    text_then = members[1]->text;
  };
  while (members[1]->generation) ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_EQ(members[1]->text, text_then);
  all.erase(all.begin() + 1);
  run_to_end(*engine, all);
  EXPECT_EQ(members[0]->text, expected[0]);
  EXPECT_EQ(members[2]->text, expected[2]);
  // Its session is free for another generation.
  EXPECT_GT(members[1]->session->length(), 0U);
  EXPECT_TRUE(members[1]->session->generate({}, {.max_tokens = 3}).has_value());
}

TEST(StepPhasesTest, AMemberFreedInFlightIsFreedAtTheEndOfItsPass) {
  const std::string expected = text_alone(0);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(2));
  const Members members = make_members(*engine, 2);
  std::vector<Generation*> all = generations_of(members);
  const PassId pass = engine->begin_step(all).value();
  members[1]->generation.reset();
  EXPECT_EQ(engine->end_step(pass)->n_finished, 1U);
  EXPECT_EQ(members[1]->text, "");
  members[1]->session.reset();
  run_to_end(*engine, {all.data(), 1});
  EXPECT_EQ(members[0]->text, expected);
  EXPECT_EQ(engine->kv_pages().n_unreserved, engine->kv_pages().n_free);
}

TEST(StepPhasesTest, SessionsStepTogetherWithTheLogitsOfEachAlone) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(3, 8));
  const std::unique_ptr<Engine> alone = open_bundled(step_options(1, 8));
  const std::size_t n_vocab = engine->spec().n_vocab;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<float>> logits(3, std::vector<float>(n_vocab));
  for (std::size_t i = 0; i < 3; ++i) {
    sessions.push_back(engine->create_session().value());
    ASSERT_TRUE(sessions[i]->prefill(encode(*engine, member_prompt(i)), nullptr).ok());
  }
  for (TokenId token = 10; token < 13; ++token) {
    LogitsCopy sinks[] = {LogitsCopy(logits[0]), LogitsCopy(logits[1]), LogitsCopy(logits[2])};
    ASSERT_TRUE(engine
                    ->step_sessions({{{sessions[0].get(), token, &sinks[0]},
                                      {sessions[1].get(), token + 1, nullptr},
                                      {sessions[2].get(), token + 2, &sinks[2]}}})
                    .ok());
  }
  for (const std::size_t i : {0U, 2U}) {
    const std::unique_ptr<Session> session = alone->create_session().value();
    ASSERT_TRUE(session->prefill(encode(*engine, member_prompt(i)), nullptr).ok());
    std::vector<float> expected(n_vocab);
    LogitsCopy sink(expected);
    for (TokenId token = 10; token < 13; ++token) {
      ASSERT_TRUE(session->step(token + static_cast<TokenId>(i), &sink).ok());
    }
    EXPECT_EQ(logits[i], expected) << i;
  }
  const SessionToken twice[] = {{sessions[0].get(), 1, nullptr}, {sessions[0].get(), 1, nullptr}};
  EXPECT_EQ(engine->step_sessions(twice).code(), StatusCode::kInvalidArgument);
  const SessionToken wrong[] = {{sessions[0].get(), 1, nullptr}, {sessions[1].get(), 1U << 30}};
  const std::size_t length = sessions[0]->length();
  EXPECT_EQ(engine->step_sessions(wrong).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(alone->step_sessions({wrong, 1}).code(), StatusCode::kInvalidArgument);
  engine->cancel();
  EXPECT_EQ(engine->step_sessions({wrong, 1}).code(), StatusCode::kCancelled);
  EXPECT_EQ(sessions[0]->length(), length);
  EXPECT_TRUE(engine->step_sessions({wrong, 1}).ok());
}

TEST(StepPhasesTest, AForkGoesOnLikeItsOrigin) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(3));
  Member member(*engine, 0);
  Generation* const generation = member.generation.get();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  const std::size_t text_bytes = member.text.size();
  const std::unique_ptr<Session> fork = member.session->fork().value();
  EXPECT_EQ(fork->length(), member.session->length());
  run_to_end(*engine, {&generation, 1});
  std::string text;
  GenerateOptions options = member_options(0, 34);
  options.on_token = [](TokenId, std::string_view piece, void* user) {
    static_cast<std::string*>(user)->append(piece);
  };
  options.user = &text;
  ASSERT_TRUE(fork->generate({}, options).has_value());
  EXPECT_EQ(text, member.text.substr(text_bytes));
  EXPECT_EQ(member.text, text_alone(0));
}

}  // namespace
}  // namespace qsf
