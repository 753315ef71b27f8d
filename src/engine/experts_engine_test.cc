// SPDX-License-Identifier: MIT
//
// Mixtures of experts end to end: whatever experts are in memory, whatever shares a pass and
// however a text is cut, forked, saved and restored, the logits are the same to the last bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_plan.h"
#include "engine/testing/naive_model_test.h"
#include "engine/testing/random_adapter.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using testing_support::kMB;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;

constexpr std::size_t kExpertTokens = 48;
constexpr std::size_t kSteps = 6;

class ExpertsEngineTest : public NaiveModelTest {
 protected:
  void SetUp() override {
    ModelSpec spec = naive_llama(4, 128);
    spec.architecture = "granitemoe";
    spec.hidden = 128;
    spec.residual_scale = 0.7F;
    spec.n_experts = 20;
    spec.n_experts_used = 3;
    spec.expert_ffn = 224;
    spec.expert_renormalised = true;
    spec.shared_ffn = 44;
    spec.expert_layers = {1, 0, 1, 1};
    make_model(spec, kExpertTokens + kSteps);
    spec_ = spec;
  }
  EngineOptions options(std::uint64_t budget_bytes) const {
    EngineOptions options = exact_options(64);
    options.n_sequences = 3;
    options.ram_budget_bytes = budget_bytes;
    options.rows_per_pass = 32;
    return options;
  }
  // The smallest budget, as the refusal of a smaller one names it.
  std::uint64_t least_budget() const {
    return testing_support::named_budget_mb(path_, options(kMB)) * kMB;
  }
  ModelSpec spec_;
  std::unique_ptr<Session> session_of(Engine& engine) const {
    return engine.create_session().value();
  }
  void step_all(Engine& engine, const std::vector<Session*>& sessions, std::size_t token,
                std::vector<Logits>& logits) const {
    std::vector<std::vector<float>> rows(sessions.size(),
                                         std::vector<float>(testing_support::kNaiveVocab));
    std::vector<LogitsCopy> sinks(rows.begin(), rows.end());
    std::vector<SessionToken> steps(sessions.size());
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      steps[i] = {sessions[i], tokens_[token], &sinks[i]};
    }
    const Status status = engine.step_sessions(steps);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < sessions.size(); ++i) logits[i].push_back(rows[i]);
  }
};

TEST_F(ExpertsEngineTest, EveryBudgetCutAndCompanyGivesTheSameBits) {
  Logits prompt;
  Logits steps;
  {
    const auto engine = open(options(0));
    ASSERT_TRUE(engine->plan().residency.everything_resident);
    const auto session = session_of(*engine);
    prefill(*session, 0, kExpertTokens, prompt);
    for (std::size_t i = 0; i < kSteps; ++i) step(*session, kExpertTokens + i, steps);
  }
  const std::string saved = path_ + ".session";
  const std::uint64_t least = least_budget();
  std::uint32_t n_slots = 0;
  std::uint64_t n_prefetched = 0;
  for (const std::uint64_t more : {0, 5, 12}) {
    SCOPED_TRACE("budget " + std::to_string(least / kMB + more) + " MB");
    const auto engine = open(options(least + more * kMB));
    const Residency& residency = engine->plan().residency;
    ASSERT_FALSE(residency.everything_resident);
    ASSERT_GT(residency.n_expert_slots, n_slots);
    n_slots = residency.n_expert_slots;
    const auto session = session_of(*engine);
    Logits got;
    for (const auto& [first, last] : {std::pair{0, 7}, {7, 8}, {8, 41}, {41, 48}}) {
      prefill(*session, static_cast<std::size_t>(first), static_cast<std::size_t>(last), got);
    }
    EXPECT_EQ(got, prompt);
    ASSERT_TRUE(session->save(saved).ok());
    const auto fork = session->fork().value();
    const auto restored = session_of(*engine);
    ASSERT_TRUE(restored->load(saved).ok());
    std::vector<Logits> of_step(3);
    for (std::size_t i = 0; i < kSteps; ++i) {
      step_all(*engine, {session.get(), fork.get(), restored.get()}, kExpertTokens + i, of_step);
    }
    for (const Logits& logits : of_step) EXPECT_EQ(logits, steps);
    const PagerStats stats = engine->pager_stats();
    EXPECT_GT(stats.experts_missed + stats.experts_prompt_missed, 0U);
    EXPECT_GT(stats.experts_used, 0U);
    n_prefetched += stats.experts_prefetched;
  }
  EXPECT_GT(n_prefetched, 0U);
  std::filesystem::remove(saved);
}

// Fewer experts than the model's give what a model with so many gives, also from a small memory.
// Rows of an expert are numbered apart from those of the pass.
TEST_F(ExpertsEngineTest, RowsOfAnExpertHaveTheirOwnAdapters) {
  EngineOptions opened = options(0);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::string name = "experts" + std::to_string(i);
    opened.adapters.push_back({testing_support::write_random_adapter(path_, name, i), name});
  }
  const std::unique_ptr<Engine> engine = Engine::open(path_, opened).value();
  const auto sessions_with = [&](const std::vector<std::uint16_t>& adapters) {
    std::vector<std::unique_ptr<Session>> sessions;
    for (const std::uint16_t adapter : adapters) {
      sessions.push_back(session_of(*engine));
      EXPECT_TRUE(sessions.back()->set_adapter({adapter, 1.0F}).ok());
      EXPECT_TRUE(sessions.back()->prefill(std::span(tokens_).first(kExpertTokens), nullptr).ok());
    }
    return sessions;
  };
  const auto logits_of = [&](const std::vector<std::unique_ptr<Session>>& sessions) {
    std::vector<Session*> all;
    for (const auto& session : sessions) all.push_back(session.get());
    std::vector<Logits> logits(all.size());
    for (std::size_t step = 0; step < kSteps; ++step) {
      step_all(*engine, all, kExpertTokens + step, logits);
    }
    return logits;
  };
  const std::vector<Logits> together = logits_of(sessions_with({0, 1, 2}));
  for (std::uint16_t adapter = 0; adapter < 3; ++adapter) {
    EXPECT_EQ(logits_of(sessions_with({adapter}))[0], together[adapter]) << adapter;
  }
  EXPECT_NE(together[1], together[0]);
  EXPECT_NE(together[1], together[2]);
}

TEST_F(ExpertsEngineTest, RowsTakeFewerExperts) {
  EngineOptions fewer = options(0);
  fewer.experts_used = 3;
  const auto logits_with = [&](const EngineOptions& with) {
    const auto engine = open(with);
    const auto session = session_of(*engine);
    Logits logits;
    prefill(*session, 0, kExpertTokens, logits);
    for (std::size_t i = 0; i < kSteps; ++i) step(*session, kExpertTokens + i, logits);
    return logits;
  };
  const Logits all = logits_with(options(0));
  EXPECT_EQ(logits_with(fewer), all);
  fewer.experts_used = 2;
  const Logits two = logits_with(fewer);
  EXPECT_NE(two, all);
  EXPECT_EQ(Engine::plan_file(path_, fewer)->residency.expert_pass_bytes * 3,
            Engine::plan_file(path_, options(0))->residency.expert_pass_bytes * 2);
  fewer.ram_budget_bytes = least_budget() + 5 * kMB;
  EXPECT_EQ(logits_with(fewer), two);
  // Keys and values of other numbers of experts are those of another model.
  const std::string saved = path_ + ".fewer";
  {
    const auto engine = open(fewer);
    const auto session = session_of(*engine);
    Logits logits;
    prefill(*session, 0, kExpertTokens, logits);
    ASSERT_TRUE(session->save(saved).ok());
  }
  EXPECT_EQ(session_of(*open(options(0)))->load(saved).code(), StatusCode::kInvalidArgument);
  std::filesystem::remove(saved);
  fewer.experts_used = 4;
  const auto refused = Engine::open(path_, fewer);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("4 experts a row: expected 1 to 3"));
  ModelSpec spec = spec_;
  spec.n_experts_used = 2;
  make_model(spec, kExpertTokens + kSteps);
  EXPECT_EQ(logits_with(options(0)), two);
}

// Only where experts are missing, only of generated tokens, and fewer are missed.
TEST_F(ExpertsEngineTest, ExpertsInMemoryTakeThePlaceOfMissingOnes) {
  const auto run = [&](std::uint64_t budget, float margin, std::uint64_t& n_missed) {
    EngineOptions with = options(budget);
    with.expert_preference = margin;
    const auto engine = open(with);
    const auto session = session_of(*engine);
    Logits logits;
    prefill(*session, 0, kExpertTokens, logits);
    for (std::size_t i = 0; i < kSteps; ++i) step(*session, kExpertTokens + i, logits);
    n_missed = engine->pager_stats().experts_missed;
    return logits;
  };
  std::uint64_t n_missed = 0;
  std::uint64_t n_missed_within = 0;
  const Logits all = run(0, 0.0F, n_missed);
  EXPECT_EQ(run(0, 1e6F, n_missed), all);
  const std::uint64_t small = least_budget() + 5 * kMB;
  EXPECT_EQ(run(small, 0.0F, n_missed), all);
  const Logits within = run(small, 1e6F, n_missed_within);
  EXPECT_NE(within, all);
  EXPECT_LT(n_missed_within, n_missed);
  ASSERT_EQ(within.size(), all.size());
  EXPECT_TRUE(std::equal(all.begin(), all.end() - kSteps, within.begin()));
  EngineOptions refused = options(0);
  refused.expert_preference = -1.0F;
  EXPECT_EQ(Engine::open(path_, refused).error().code(), StatusCode::kInvalidArgument);
}

TEST_F(ExpertsEngineTest, NumbersOfExpertsThatCannotBeAreRefused) {
  ModelSpec spec = spec_;
  spec.architecture = "phimoe";
  spec.residual_scale = 1.0F;
  spec.shared_ffn = 0;
  spec.expert_layers.clear();
  spec.n_experts_used = 2;
  spec.expert_renormalised = false;
  spec.expert_scoring = ExpertScoring::kSparsemixer;
  spec.expert_margin = 0.01F;
  make_model(spec, kExpertTokens);
  EngineOptions one = options(0);
  one.experts_used = 1;
  const auto together = Engine::open(path_, one);
  ASSERT_FALSE(together.has_value());
  EXPECT_EQ(together.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(together.error().message(), testing::HasSubstr("chooses 2 together"));
  make_model(naive_llama(2, 64), kExpertTokens);
  const auto none = Engine::open(path_, one);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.error().message(), testing::HasSubstr("the model has none"));
}

TEST_F(ExpertsEngineTest, ThePlanCountsExperts) {
  const auto whole = Engine::plan_file(path_, options(0)).value();
  EXPECT_EQ(whole.residency.n_experts, 60U);  // one layer of four is dense
  const auto least = Engine::plan_file(path_, options(least_budget())).value();
  EXPECT_LE(least.memory.total_bytes(), least.budget_bytes);
  EXPECT_GE(least.residency.n_expert_slots, 3U);
  // Three experts of 20 in three layers, 3 * 128 * 224 weights of 4 bytes each.
  EXPECT_NEAR(static_cast<double>(least.residency.expert_pass_bytes), 9 * 3 * 128 * 224 * 4.0,
              9 * 3 * 4096.0);
  EXPECT_THAT(least.steps,
              testing::Contains(testing::HasSubstr("stay in memory; each pass reads")));
  EXPECT_DOUBLE_EQ(least.residency.expert_hits, least.residency.n_expert_slots / 60.0);
}

TEST_F(ExpertsEngineTest, ThePlanExpectsTheHitsOfTheCalibration) {
  const EngineOptions small = options(least_budget());
  const auto without = Engine::plan_file(path_, small).value();
  EXPECT_THAT(without.steps,
              testing::Contains(testing::HasSubstr("if any choice is as likely as any other")));
  ModelSpec spec = spec_;
  spec.expert_hits.assign(16, 0.75F);
  make_model(spec, kExpertTokens + kSteps);
  const auto calibrated = Engine::plan_file(path_, small).value();
  EXPECT_EQ(calibrated.residency.n_expert_slots, without.residency.n_expert_slots);
  EXPECT_EQ(calibrated.residency.expert_hits, 0.75);
  EXPECT_EQ(calibrated.residency.expert_read_bytes(), calibrated.residency.expert_pass_bytes / 4);
  EXPECT_THAT(calibrated.steps,
              testing::Contains(testing::HasSubstr("experts: 75 % of a token's are expected in "
                                                   "memory, as on the text of the calibration")));
  EXPECT_EQ(Engine::plan_file(path_, options(0)).value().residency.expert_read_bytes(), 0U);
  EngineOptions fewer = small;
  fewer.experts_used = 2;  // the calibration's tokens took three
  EXPECT_THAT(Engine::plan_file(path_, fewer).value().steps,
              testing::Contains(testing::HasSubstr("if any choice is as likely as any other")));
}

}  // namespace
}  // namespace qsf
