// SPDX-License-Identifier: MIT
//
// Parked generations on the bundled model: each generates what it does when nobody parks it, at
// every phase and whatever the others do, and a file that is lost ends one generation alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// Of one generation of this test and process; removed by the generation itself.
std::string park_path(std::size_t i = 0) {
  return temporary_path("parking_test." + std::to_string(i));
}
bool exists(const std::string& path) {
  return std::filesystem::exists(path);
}
void overwrite(const std::string& path, std::size_t at, char with) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(with);
}

void step(Engine& engine, Generation* member) {
  ASSERT_TRUE(engine.step({&member, 1}).has_value());
}

void park_and_resume(Engine& engine, Generation& generation) {
  const std::uint32_t n_pages = engine.kv_pages().n_pages;
  const Status parked = generation.park(park_path());
  ASSERT_TRUE(parked.ok()) << parked.message();
  EXPECT_TRUE(generation.is_parked());
  EXPECT_EQ(engine.kv_pages().n_unreserved, n_pages);
  EXPECT_EQ(exists(park_path()), generation.session().length() > 0);
  const Status resumed = generation.resume();
  ASSERT_TRUE(resumed.ok()) << resumed.message();
  EXPECT_FALSE(generation.is_parked());
  EXPECT_FALSE(exists(park_path()));
}

TEST(ParkingTest, TheTextIsTheSameWhereverItWasParked) {
  for (const std::size_t i : {1U, 3U}) {
    const std::string expected = text_alone(i);
    const std::unique_ptr<Engine> engine = open_bundled(step_options(1, 4));
    bool done = false;
    for (std::size_t at = 0; !done; ++at) {
      Member member(*engine, i);
      Generation& generation = *member.generation;
      for (std::size_t n = 0; n < at && !generation.finished(); ++n) step(*engine, &generation);
      done = generation.finished();
      if (!done) park_and_resume(*engine, generation);
      while (!generation.finished()) step(*engine, &generation);
      ASSERT_TRUE(generation.status().ok());
      ASSERT_EQ(member.text, expected) << "parked after step " << at;
    }
  }
}

// The session has a text, of which the last token is not computed yet.
TEST(ParkingTest, ASessionWithATextAndAPendingTokenGoesOnAsIfNeverParked) {
  std::string expected;
  for (int at = -1; at < 12; ++at) {
    const std::unique_ptr<Engine> engine = open_bundled(step_options(1, 3));
    Member first(*engine, "Once upon a time", member_options(1, 20));
    while (!first.generation->finished()) step(*engine, first.generation.get());
    ASSERT_NE(first.generation->result().pending_token, kNoToken);
    first.generation.reset();
    std::string text;
    GenerateOptions options = member_options(2, 20);
    options.user = &text;
    options.on_token = [](TokenId, std::string_view piece, void* user) {
      static_cast<std::string*>(user)->append(piece);
    };
    for (const std::string_view prompt : {" and then the old man said", ""}) {
      std::vector<TokenId> tokens;
      ASSERT_TRUE(engine->tokenizer()->encode(prompt, {.add_bos = false}, tokens).ok());
      const GenerationPtr second = Generation::create(*first.session, tokens, options).value();
      for (int n = 0; n < at && !second->finished(); ++n) step(*engine, second.get());
      if (at >= 0 && !second->finished()) park_and_resume(*engine, *second);
      while (!second->finished()) step(*engine, second.get());
      ASSERT_TRUE(second->status().ok());
    }
    if (at < 0) expected = text;
    ASSERT_EQ(text, expected) << at;
  }
  EXPECT_GT(expected.size(), 60U);
}

// Parks and resumes members at random between steps, all to their ends.
void expect_same_texts(const EngineOptions& wanted, const std::string& what, std::uint64_t seed) {
  SCOPED_TRACE(what);
  constexpr std::size_t kMembers = 4;
  const std::vector<std::string> expected = texts_alone(kMembers, wanted);
  EngineOptions options = wanted;
  options.n_sequences = kMembers;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const Members members = make_members(*engine, kMembers);
  std::vector<Generation*> all = generations_of(members);
  Rng rng(seed);
  std::size_t n_parked = 0;
  while (!all_finished(all)) {
    for (std::size_t i = 0; i < kMembers; ++i) {
      Generation& member = *all[i];
      if (member.finished() || rng.next_f64() < 0.7) continue;
      const Status status = member.is_parked() ? member.resume() : member.park(park_path(i));
      ASSERT_TRUE(status.ok()) << status.message();
      n_parked += member.is_parked() ? 1 : 0;
    }
    const Result<StepCounts> counts =
        engine->step(all, {.max_prompt_rows = static_cast<std::uint32_t>(rng.next_f64() * 9.0)});
    ASSERT_TRUE(counts.has_value());
  }
  EXPECT_GT(n_parked, 10U);
  for (std::size_t i = 0; i < kMembers; ++i) {
    EXPECT_TRUE(all[i]->status().ok());
    EXPECT_EQ(members[i]->text, expected[i]) << i;
    EXPECT_FALSE(exists(park_path(i)));
  }
  EXPECT_TRUE(engine->impl().kv->is_consistent());
  EXPECT_EQ(engine->kv_pages().n_free, engine->kv_pages().n_unreserved);
}

TEST(ParkingTest, EveryTypeOfKeysAndValuesTellsTheSame) {
  for (const KvType type :
       {KvType::kF16, KvType::kF32, KvType::k8Bit, KvType::k4Bit, KvType::k2Bit}) {
    EngineOptions options = step_options(1, 8);
    options.k_type = options.v_type = type;
    expect_same_texts(options, std::string(kv_type_name(type)), 7);
  }
}

TEST(ParkingTest, EveryPolicyAndPlaceTellsTheSame) {
  std::vector<std::pair<std::string, EngineOptions>> variants(5, {"", step_options(1, 8)});
  variants[0].first = "window";
  variants[0].second.kv_policy = {.policy = KvPolicy::kWindow, .window = 24, .sinks = 4};
  variants[1].first = "heavy hitters";
  variants[1].second.kv_policy = {.policy = KvPolicy::kH2o, .window = 16, .sinks = 2, .heavy = 8};
  variants[2].first = "sparse prefill";
  variants[2].second.attention = AttentionKind::kSparsePrefill;
  variants[2].second.sparse_prefill = {.local = 2, .heavy = 3, .chunk = 8, .sinks = 1};
  variants[3].first = "in a file";
  variants[3].second.kv_spill_path = temporary_path("parking_test_kv");
  variants[4].first = "streamed";
  variants[4].second.n_sequences = 4;
  variants[4].second.ram_budget_bytes = smallest_budget(kBundled, variants[4].second) + 2'000'000;
  for (const auto& [name, options] : variants) expect_same_texts(options, name, 11);
}

TEST(ParkingTest, RandomInterleavingsTellTheSame) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    expect_same_texts(step_options(1, seed % 2 == 0 ? 0 : 5), std::to_string(seed), seed);
  }
}

EngineOptions four_pages(std::uint32_t n_sequences) {
  EngineOptions options = step_options(n_sequences);
  options.kv_positions = 256;
  return options;
}

TEST(ParkingTest, OneIsResumedOnceThereArePages) {
  const std::unique_ptr<Engine> engine = open_bundled(four_pages(2));
  Member first(*engine, "Once", {.max_tokens = 120});
  Member second(*engine, "There was a king", {.max_tokens = 180, .sampling = {.seed = 3}});
  for (int n = 0; n < 5; ++n) step(*engine, first.generation.get());
  const std::string before = first.text;
  ASSERT_TRUE(first.generation->park(park_path()).ok());
  ASSERT_TRUE(second.generation->admit().ok());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 1U);
  Generation* all[] = {first.generation.get(), second.generation.get()};
  for (int n = 0; n < 3; ++n) {
    const Status refused = first.generation->resume();
    EXPECT_EQ(refused.code(), StatusCode::kOutOfBudget);
    EXPECT_TRUE(first.generation->is_parked());
    EXPECT_FALSE(first.generation->finished());
    EXPECT_EQ(engine->kv_pages().n_unreserved, 1U);
    ASSERT_EQ(engine->step(all)->n_finished, 0U);
    EXPECT_EQ(first.text, before);
  }
  while (!all[1]->finished()) ASSERT_TRUE(engine->step(all).has_value());
  second.generation.reset();
  second.session.reset();
  ASSERT_TRUE(first.generation->resume().ok());
  EXPECT_EQ(engine->kv_pages().n_unreserved, 2U);
  run_to_end(*engine, {all, 1});
  Member alone(*engine, "Once", {.max_tokens = 120});
  all[1] = alone.generation.get();
  first.generation.reset();
  run_to_end(*engine, {all + 1, 1});
  EXPECT_EQ(first.text, alone.text);
}

TEST(ParkingTest, AFailedWriteLeavesItRunning) {
  const std::string expected = text_alone(1);
  FaultyFileOps disk;
  EngineOptions options = step_options(1);
  options.file_ops = &disk;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  Member member(*engine, 1);
  Generation& generation = *member.generation;
  for (int n = 0; n < 6; ++n) step(*engine, &generation);
  const KvPageCounts before = engine->kv_pages();
  std::vector<FaultPlan> faults(6);
  faults[0].disk_bytes = 100;
  faults[1].disk_bytes = 20'000;
  faults[2].write_error_at = 5000;
  faults[3].sync_errno = EIO;
  faults[4].create_errno = faults[4].create_unnamed_errno = EACCES;
  faults[5].give_name_errno = EIO;
  for (const FaultPlan& fault : faults) {
    disk.plan = fault;
    const Status status = generation.park(park_path());
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(park_path()));
    EXPECT_FALSE(generation.is_parked());
    EXPECT_FALSE(exists(park_path()));
    EXPECT_EQ(engine->kv_pages().n_unreserved, before.n_unreserved);
    disk.plan = {};
    step(*engine, &generation);
  }
  while (!generation.finished()) step(*engine, &generation);
  EXPECT_EQ(member.text, expected);
}

enum class Damage { kByte, kCut, kMissing, kOther, kUnreadable };

class ParkingDamageTest : public testing::TestWithParam<Damage> {};

TEST_P(ParkingDamageTest, ADamagedFileEndsItsGenerationAlone) {
  const std::vector<std::string> expected = texts_alone(3);
  FaultyFileOps disk;
  EngineOptions options = step_options(3);
  options.file_ops = &disk;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const Members members = make_members(*engine, 3);
  std::vector<Generation*> all = generations_of(members);
  for (int n = 0; n < 6; ++n) ASSERT_TRUE(engine->step(all).has_value());
  ASSERT_TRUE(all[1]->park(park_path(1)).ok());
  ASSERT_TRUE(all[2]->park(park_path(2)).ok());
  for (int n = 0; n < 4; ++n) ASSERT_TRUE(engine->step(all).has_value());
  const auto bytes = static_cast<std::size_t>(std::filesystem::file_size(park_path(1)));
  switch (GetParam()) {
    case Damage::kByte: overwrite(park_path(1), bytes / 2, 'x'); break;
    case Damage::kCut: std::filesystem::resize_file(park_path(1), bytes - 7); break;
    case Damage::kMissing: std::filesystem::remove(park_path(1)); break;
    case Damage::kOther:
      std::filesystem::copy_file(park_path(2), park_path(1),
                                 std::filesystem::copy_options::overwrite_existing);
      break;
    case Damage::kUnreadable: disk.plan.read_error_at = bytes / 2; break;
  }
  const std::uint32_t unreserved = engine->kv_pages().n_unreserved;
  const Status status = all[1]->resume();
  disk.plan = {};
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(park_path(1)));
  EXPECT_TRUE(all[1]->finished());
  EXPECT_EQ(all[1]->status().message(), status.message());
  EXPECT_EQ(members[1]->text, expected[1].substr(0, members[1]->text.size()));
  EXPECT_EQ(members[1]->session->length(), 0U);
  EXPECT_EQ(engine->kv_pages().n_unreserved, unreserved);
  EXPECT_FALSE(exists(park_path(1)));
  ASSERT_TRUE(all[2]->resume().ok());
  run_to_end(*engine, all);
  EXPECT_EQ(members[0]->text, expected[0]);
  EXPECT_EQ(members[2]->text, expected[2]);
  // The session is as good as new.
  members[1]->generation.reset();
  Session& session = *members[1]->session;
  std::string text;
  GenerateOptions again = member_options(1, 40);
  again.user = &text;
  again.on_token = [](TokenId, std::string_view piece, void* user) {
    static_cast<std::string*>(user)->append(piece);
  };
  ASSERT_TRUE(session.generate(encode(*engine, member_prompt(1)), again).has_value());
  EXPECT_EQ(text, expected[1]);
}

INSTANTIATE_TEST_SUITE_P(Files, ParkingDamageTest,
                         testing::Values(Damage::kByte, Damage::kCut, Damage::kMissing,
                                         Damage::kOther, Damage::kUnreadable));

TEST(ParkingTest, OneThatEndsWhileParkedRemovesItsFileAndLeavesItsSessionEmpty) {
  const std::unique_ptr<Engine> engine = open_bundled(step_options(1));
  for (const std::size_t n_steps : {1U, 6U}) {
    for (const bool freed : {true, false}) {
      Member member(*engine, 1);
      Generation* generation = member.generation.get();
      for (std::size_t n = 0; n < n_steps; ++n) step(*engine, generation);
      ASSERT_TRUE(generation->park(park_path()).ok());
      ASSERT_TRUE(exists(park_path()));
      if (!freed) {
        generation->cancel();
        EXPECT_EQ(engine->step({&generation, 1})->n_finished, 1U);
        EXPECT_EQ(generation->result().reason, StopReason::kCancelled);
        EXPECT_TRUE(generation->status().ok());
        EXPECT_EQ(generation->result().pending_token, kNoToken);
      }
      member.generation.reset();
      EXPECT_FALSE(exists(park_path()));
      EXPECT_EQ(member.session->length(), 0U);
      EXPECT_EQ(engine->kv_pages().n_unreserved, engine->kv_pages().n_pages);
      EXPECT_TRUE(member.session->generate(encode(*engine, "Once"), {.max_tokens = 3}).has_value());
    }
  }
}

TEST(ParkingTest, ACancelledEngineParksAndResumesNothing) {
  const std::string expected = text_alone(1);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(1));
  Member member(*engine, 1);
  Generation& generation = *member.generation;
  for (int n = 0; n < 5; ++n) step(*engine, &generation);
  const std::uint32_t unreserved = engine->kv_pages().n_unreserved;
  engine->cancel();
  EXPECT_EQ(generation.park(park_path()).code(), StatusCode::kCancelled);
  EXPECT_FALSE(generation.is_parked());
  EXPECT_EQ(engine->kv_pages().n_unreserved, unreserved);
  ASSERT_TRUE(generation.park(park_path()).ok());
  engine->cancel();
  EXPECT_EQ(generation.resume().code(), StatusCode::kCancelled);
  EXPECT_TRUE(generation.is_parked());
  EXPECT_FALSE(generation.finished());
  EXPECT_EQ(engine->kv_pages().n_unreserved, engine->kv_pages().n_pages);
  ASSERT_TRUE(generation.resume().ok());
  while (!generation.finished()) step(*engine, &generation);
  EXPECT_EQ(member.text, expected);
}

TEST(ParkingTest, WhatAParkedSessionHasNotIsRefused) {
  const std::string expected = text_alone(1);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(2));
  Member member(*engine, 1);
  Generation& generation = *member.generation;
  EXPECT_EQ(generation.resume().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(generation.park(park_path()).ok());
  EXPECT_EQ(generation.admit().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(generation.resume().ok());
  for (int n = 0; n < 5; ++n) step(*engine, &generation);
  ASSERT_TRUE(generation.park(park_path()).ok());
  EXPECT_EQ(generation.park(park_path(1)).code(), StatusCode::kInvalidArgument);
  Session& session = *member.session;
  std::vector<std::uint32_t> positions;
  const std::vector<TokenId> tokens = {1, 2, 3};
  const Status refused[] = {session.save(park_path(1)),
                            session.fork().error(),
                            session.visible_positions(0, 0, positions),
                            session.truncate(0),
                            session.step(1, nullptr),
                            session.prefill(tokens, nullptr),
                            session.generate(tokens, {}).error()};
  for (const Status& status : refused) EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_GT(session.length(), 0U);
  EXPECT_EQ(session.n_computed(), 0U);
  ASSERT_TRUE(generation.resume().ok());
  while (!generation.finished()) step(*engine, &generation);
  EXPECT_EQ(member.text, expected);
  EXPECT_EQ(generation.park(park_path()).code(), StatusCode::kInvalidArgument);
}

// A fork keeps the pages that the two share.
TEST(ParkingTest, AForkGoesOnWhileItsOriginIsParked) {
  const std::string expected = text_alone(1);
  const std::unique_ptr<Engine> engine = open_bundled(step_options(2));
  Member member(*engine, 1);
  Generation& generation = *member.generation;
  for (int n = 0; n < 5; ++n) step(*engine, &generation);
  const std::unique_ptr<Session> fork = member.session->fork().value();
  ASSERT_TRUE(generation.park(park_path()).ok());
  ASSERT_TRUE(fork->generate(encode(*engine, "Once"), {.max_tokens = 9}).has_value());
  ASSERT_TRUE(generation.resume().ok());
  while (!generation.finished()) step(*engine, &generation);
  EXPECT_EQ(member.text, expected);
}

}  // namespace
}  // namespace qsf
