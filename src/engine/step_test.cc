// SPDX-License-Identifier: MIT
//
// Steps of many generations on the bundled model: each generates what it does alone, however they
// come and go, and an error or a cancellation of one leaves the others as they are.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/generation.h"

namespace qsf {
namespace {

constexpr const char* kPrompts[] = {"There was a king", "The fox said to the raven that", "Once",
                                    "A poor woodcutter lived with his wife and his two children",
                                    "In the middle of the night"};

void append_text(TokenId, std::string_view text, void* user) {
  static_cast<std::string*>(user)->append(text);
}

std::unique_ptr<Engine> open_bundled(std::uint32_t n_sequences, std::uint32_t rows_per_pass = 0) {
  EngineOptions options;
  options.n_threads = 2;
  options.n_sequences = n_sequences;
  options.rows_per_pass = rows_per_pass;
  options.max_context = 256;
  return Engine::open(std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf", options).value();
}

std::vector<TokenId> encode(const Engine& engine, std::string_view text) {
  std::vector<TokenId> tokens;
  EXPECT_TRUE(engine.tokenizer()->encode(text, {}, tokens).ok());
  return tokens;
}

// A session and its generation of the i-th text.
class Member {
 public:
  Member(Engine& engine, std::size_t i, std::uint32_t max_tokens = 40) {
    options_.max_tokens = max_tokens + static_cast<std::uint32_t>(i % 7);
    options_.sampling.seed = i;
    options_.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    options_.sampling.repeat_penalty = i % 2 == 0 ? 1.0F : 1.2F;
    options_.on_token = append_text;
    options_.user = &text;
    session = engine.create_session().value();
    generation =
        Generation::create(*session, encode(engine, kPrompts[i % std::size(kPrompts)]), options_)
            .value();
  }

  std::string text;
  std::unique_ptr<Session> session;
  std::unique_ptr<Generation> generation;

 private:
  GenerateOptions options_;
};

using Members = std::vector<std::unique_ptr<Member>>;

Members make_members(Engine& engine, std::size_t n) {
  Members members;
  for (std::size_t i = 0; i < n; ++i) members.push_back(std::make_unique<Member>(engine, i));
  return members;
}

std::vector<Generation*> generations_of(const Members& members) {
  std::vector<Generation*> generations;
  for (const auto& member : members) generations.push_back(member->generation.get());
  return generations;
}

std::string alone(std::size_t i) {
  const std::unique_ptr<Engine> engine = open_bundled(1);
  Member member(*engine, i);
  Generation* const generation = member.generation.get();
  while (!generation->finished()) EXPECT_TRUE(engine->step({&generation, 1}).has_value());
  EXPECT_TRUE(generation->status().ok());
  return member.text;
}

std::vector<std::string> texts_alone(std::size_t n) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < n; ++i) texts.push_back(alone(i));
  return texts;
}

// Runs members together; member i joins before step i * stagger.
std::vector<std::string> together(std::size_t n, std::size_t stagger, std::uint32_t rows_per_pass) {
  const std::unique_ptr<Engine> engine = open_bundled(static_cast<std::uint32_t>(n), rows_per_pass);
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
        EXPECT_EQ(together(n, stagger, rows), first) << n << " by " << stagger << ", " << rows;
      }
    }
  }
}

// Prompts whose state is a sequence's share passes as well.
TEST(StepTest, PromptsUnderSparsePoliciesShareAPass) {
  EngineOptions options;
  options.n_threads = 2;
  options.n_sequences = 4;
  options.max_context = 256;
  for (const bool eviction : {false, true}) {
    if (eviction) {
      options.attention = AttentionKind::kStandard;
      options.kv_policy = {.policy = KvPolicy::kH2o, .window = 16, .sinks = 2, .heavy = 8};
    } else {
      options.attention = AttentionKind::kSparsePrefill;
      options.sparse_prefill = {.local = 2, .heavy = 3, .chunk = 8, .sinks = 1};
    }
    const std::unique_ptr<Engine> engine =
        Engine::open(std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf", options).value();
    const Members members = make_members(*engine, 4);
    std::vector<Generation*> all = generations_of(members);
    EXPECT_EQ(engine->step(all)->prompt_rows,
              encode(*engine, kPrompts[0]).size() + encode(*engine, kPrompts[1]).size() +
                  encode(*engine, kPrompts[2]).size() + encode(*engine, kPrompts[3]).size());
    while (engine->step(all)->n_finished < all.size()) {
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::unique_ptr<Engine> single =
          Engine::open(std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf", options).value();
      Member member(*single, i);
      Generation* const generation = member.generation.get();
      while (!generation->finished()) ASSERT_TRUE(single->step({&generation, 1}).has_value());
      EXPECT_EQ(members[i]->text, member.text) << i << " " << eviction;
    }
  }
}

TEST(StepTest, WeightsAreReadOnceForAllMembers) {
  const std::unique_ptr<Engine> engine = open_bundled(4);
  const Members members = make_members(*engine, 4);
  std::vector<Generation*> all = generations_of(members);
  EXPECT_GT(engine->step(all)->prompt_rows, 4U);
  const std::uint64_t before = engine->stats().operators[OperatorKind::kGateUp].bytes;
  EXPECT_EQ(engine->step(all)->generated_rows, 4U);
  const std::uint64_t four = engine->stats().operators[OperatorKind::kGateUp].bytes - before;
  EXPECT_EQ(engine->step({all.data(), 1})->generated_rows, 1U);
  EXPECT_EQ(engine->stats().operators[OperatorKind::kGateUp].bytes - before - four, four);
}

TEST(StepTest, CancelAndErrorsOfOneLeaveTheOthers) {
  const std::vector<std::string> expected = texts_alone(3);
  for (const std::size_t at : {0U, 1U, 2U, 20U}) {
    const std::unique_ptr<Engine> engine = open_bundled(5);
    const Members members = make_members(*engine, 4);
    std::vector<Generation*> all = generations_of(members);
    const std::unique_ptr<Session> session = engine->create_session().value();
    const std::vector<TokenId> wrong = {1, 1U << 30};
    const auto refused = Generation::create(*session, wrong, {}).value();
    all.insert(all.begin() + 1, refused.get());
    for (std::size_t step = 0; !all[0]->finished() || !all[2]->finished() || !all[3]->finished();
         ++step) {
      if (step == at) members[3]->generation->cancel();
      ASSERT_TRUE(engine->step(all).has_value());
    }
    EXPECT_EQ(refused->status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(session->length(), 0U);
    EXPECT_EQ(members[3]->generation->result().reason, StopReason::kCancelled);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(members[i]->text, expected[i]) << i << " " << at;
  }
}

TEST(StepTest, AFailedPassLeavesEveryMemberAsItWas) {
  const std::vector<std::string> expected = texts_alone(3);
  const std::unique_ptr<Engine> engine = open_bundled(3);
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

TEST(StepTest, ACallbackCannotStartAStep) {
  const std::unique_ptr<Engine> engine = open_bundled(2);
  Member other(*engine, 1);
  struct Inner {
    Engine* engine;
    Generation* member;
    Status status;
  } inner = {engine.get(), other.generation.get(), {}};
  GenerateOptions options;
  options.max_tokens = 2;
  options.user = &inner;
  options.on_token = [](TokenId, std::string_view, void* user) {
    auto& call = *static_cast<Inner*>(user);
    call.status = call.engine->step({&call.member, 1}).error();
  };
  const std::unique_ptr<Session> session = engine->create_session().value();
  ASSERT_TRUE(session->generate(encode(*engine, "Once"), options).has_value());
  EXPECT_EQ(inner.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.session->length(), 0U);
}

TEST(StepTest, WrongMembersAreRefused) {
  const std::unique_ptr<Engine> engine = open_bundled(2);
  const std::unique_ptr<Engine> other = open_bundled(1);
  EXPECT_EQ(engine->step({})->n_finished, 0U);
  Member member(*engine, 0);
  Member foreign(*other, 0);
  Generation* twice[] = {member.generation.get(), member.generation.get()};
  Generation* null[] = {nullptr};
  Generation* of_other[] = {member.generation.get(), foreign.generation.get()};
  EXPECT_EQ(engine->step(twice).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->step(null).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->step(of_other).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(member.session->length(), 0U);
}

}  // namespace
}  // namespace qsf
