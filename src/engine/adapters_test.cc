// SPDX-License-Identifier: MIT
//
// Adapters of sessions: each text is the one that its adapter gives alone, whatever shares the
// pass, the cache and the memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/engine_plan.h"
#include "engine/pass_message.h"
#include "engine/testing/logits_log.h"
#include "engine/testing/random_adapter.h"
#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

constexpr std::size_t kAdapters = 8;

const std::vector<AdapterFile>& adapter_files() {
  static const std::vector<AdapterFile> files = [] {
    std::vector<AdapterFile> written;
    for (std::size_t i = 0; i < kAdapters; ++i) {
      const std::string name = "adapter" + std::to_string(i);
      written.push_back({write_random_adapter(kBundled, name, i), ""});
    }
    return written;
  }();
  return files;
}

EngineOptions adapted_options(std::uint32_t n_sequences, std::uint32_t rows_per_pass = 0) {
  EngineOptions options = step_options(n_sequences, rows_per_pass);
  options.adapters = adapter_files();
  return options;
}

// The adapter of the i-th text: none for the first.
AdapterUse use_of(std::size_t i) {
  return {static_cast<std::uint16_t>(i % (kAdapters + 1)), i % 2 == 0 ? 1.0F : 0.75F};
}

// As Member, with an adapter.
struct AdaptedMember {
  AdaptedMember(Engine& engine, AdapterUse use, std::size_t i,
                std::optional<std::string> prefix_key = std::nullopt) {
    GenerateOptions options = member_options(i, 30);
    options.prefix_key = std::move(prefix_key);
    options.on_token = [](TokenId, std::string_view piece, void* user) {
      static_cast<AdaptedMember*>(user)->text.append(piece);
    };
    options.user = this;
    session = engine.create_session().value();
    EXPECT_TRUE(session->set_adapter(use).ok());
    generation = Generation::create(*session, encode(engine, member_prompt(i)), options).value();
  }
  AdaptedMember(const AdaptedMember&) = delete;
  AdaptedMember& operator=(const AdaptedMember&) = delete;

  std::string text;
  std::unique_ptr<Session> session;
  GenerationPtr generation;
};

// What a text is where nothing else is computed.
std::string adapted_text(AdapterUse use, std::size_t i, const EngineOptions& options) {
  const std::unique_ptr<Engine> engine = open_bundled(options);
  AdaptedMember member(*engine, use, i);
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  EXPECT_TRUE(generation->status().ok()) << generation->status().message();
  return member.text;
}

std::vector<float> adapted_logits(Engine& engine, AdapterUse use, std::span<const TokenId> tokens) {
  const std::unique_ptr<Session> session = engine.create_session().value();
  EXPECT_TRUE(session->set_adapter(use).ok());
  LogitsLog log;
  EXPECT_TRUE(session->prefill(tokens.first(tokens.size() - 2), &log).ok());
  EXPECT_TRUE(session->step(tokens[tokens.size() - 2], &log).ok());
  EXPECT_TRUE(session->step(tokens.back(), &log).ok());
  return log.values;
}

// Keeps the logits of row 0.
class FirstRow final : public LogitsSink {
 public:
  void consume(std::uint32_t row, std::uint32_t, std::span<const float> logits) noexcept override {
    if (row == 0) values.insert(values.end(), logits.begin(), logits.end());
  }
  std::vector<float> values;
};

TEST(AdaptersTest, EveryMemberOfAStepHasItsOwn) {
  for (const std::uint32_t rows : {0U, 3U}) {
    const EngineOptions options = adapted_options(kAdapters + 1, rows);
    const std::unique_ptr<Engine> engine = open_bundled(options);
    std::vector<std::unique_ptr<AdaptedMember>> members;
    std::vector<Generation*> all;
    for (std::size_t i = 0; i <= kAdapters; ++i) {
      members.push_back(std::make_unique<AdaptedMember>(*engine, use_of(i), i));
      all.push_back(members.back()->generation.get());
    }
    run_to_end(*engine, all);
    for (std::size_t i = 0; i <= kAdapters; ++i) {
      EXPECT_EQ(members[i]->text, adapted_text(use_of(i), i, adapted_options(1))) << i;
      const std::string plain = text_alone(i);
      if (i == 0) continue;
      EXPECT_NE(members[i]->text.substr(0, 20), plain.substr(0, 20)) << i;
    }
    EXPECT_EQ(members[0]->text, adapted_text({}, 0, step_options(1))) << "no adapter";
  }
}

TEST(AdaptersTest, LogitsDoNotDependOnTheRowsOfAPass) {
  const std::vector<TokenId> tokens = random_tokens(20);
  const std::vector<float> whole =
      adapted_logits(*open_bundled(adapted_options(1)), {3, 0.5F}, tokens);
  const std::vector<float> single =
      adapted_logits(*open_bundled(adapted_options(1, 1)), {3, 0.5F}, tokens);
  EXPECT_EQ(whole, single);
  const std::unique_ptr<Engine> engine = open_bundled(adapted_options(1));
  EXPECT_NE(adapted_logits(*engine, {3, 1.0F}, tokens), whole);
  EXPECT_NE(adapted_logits(*engine, {4, 0.5F}, tokens), whole);
  EXPECT_EQ(adapted_logits(*engine, {3, 0.0F}, tokens), adapted_logits(*engine, {}, tokens));
}

TEST(AdaptersTest, AStreamedModelHasThem) {
  const StreamedModel model("adapters", {.n_layers = 60});
  EngineOptions options = step_options(1, 16);
  options.adapters = {{write_random_adapter(model.path(), "streamed", 1), "wide"}};
  options.session_adapter = {1, 1.0F};
  std::unique_ptr<Engine> resident = Engine::open(model.path(), options).value();
  const std::vector<TokenId> tokens = random_tokens(12, 1, 400);
  const std::vector<float> expected = adapted_logits(*resident, {1, 1.0F}, tokens);
  EXPECT_NE(expected, adapted_logits(*resident, {}, tokens));
  const MemoryPlan memory = resident->plan().memory;
  const std::uint64_t weights = memory.find("weights")->bytes;
  const std::uint64_t adapters = memory.find("adapters")->bytes;
  EXPECT_GT(adapters, 0U);
  options.ram_budget_bytes = memory.total_bytes() - weights / 3;
  resident.reset();  // the budget counts what the process holds
  const auto opened = Engine::open(model.path(), options);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const std::unique_ptr<Engine>& streamed = *opened;
  EXPECT_FALSE(streamed->plan().residency.everything_resident);
  EXPECT_LE(streamed->plan().memory.total_bytes(), options.ram_budget_bytes);
  EXPECT_EQ(streamed->plan().memory.find("adapters")->bytes, adapters);
  EXPECT_EQ(adapted_logits(*streamed, {1, 1.0F}, tokens), expected);
  // A budget that has no room for them names one that has.
  options.ram_budget_bytes = adapters;
  const auto refused = Engine::open(model.path(), options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kOutOfBudget) << refused.error().message();
}

TEST(AdaptersTest, SharePagesWithTheSameAdapterAlone) {
  EngineOptions options = adapted_options(2);
  options.max_context = 512;
  options.prefix_cache = true;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const auto cached = [&](AdapterUse use) {
    const std::unique_ptr<Session> session = engine->create_session().value();
    EXPECT_TRUE(session->set_adapter(use).ok());
    GenerateOptions generate;
    generate.max_tokens = 2;
    generate.prefix_key = std::string(kMaxPrefixKeyBytes, 'k');
    const auto result = session->generate(random_tokens(200, 9), generate);
    EXPECT_TRUE(result.has_value()) << result.error().message();
    return result->cached_tokens;
  };
  EXPECT_EQ(cached({}), 0U);
  EXPECT_EQ(cached({1, 1.0F}), 0U);
  EXPECT_EQ(cached({1, 0.5F}), 0U);
  EXPECT_EQ(cached({2, 1.0F}), 0U);
  EXPECT_EQ(cached({1, 1.0F}), 192U);
  EXPECT_EQ(cached({}), 192U);
}

TEST(AdaptersTest, ASessionFileBelongsToAdapterAndScale) {
  const std::unique_ptr<Engine> engine = open_bundled(adapted_options(4));
  const std::vector<TokenId> tokens = random_tokens(40);
  const std::string path = temporary_path("adapted.session");
  const std::unique_ptr<Session> saved = engine->create_session().value();
  ASSERT_TRUE(saved->set_adapter({2, 0.5F}).ok());
  ASSERT_TRUE(saved->prefill(tokens, nullptr).ok());
  ASSERT_TRUE(saved->save(path).ok());
  const auto load = [&](AdapterUse use) {
    const std::unique_ptr<Session> session = engine->create_session().value();
    EXPECT_TRUE(session->set_adapter(use).ok());
    return session->load(path);
  };
  EXPECT_TRUE(load({2, 0.5F}).ok());
  for (const AdapterUse use : {AdapterUse{}, AdapterUse{2, 1.0F}, AdapterUse{3, 0.5F}}) {
    const Status refused = load(use);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("section adapter: saved with the adapter"));
  }
  // The other way round, and what goes on from a file.
  const std::unique_ptr<Session> fork = saved->fork().value();
  EXPECT_EQ(fork->adapter(), (AdapterUse{2, 0.5F}));
  LogitsLog expected;
  ASSERT_TRUE(fork->step(tokens[0], &expected).ok());
  const std::unique_ptr<Session> loaded = engine->create_session().value();
  ASSERT_TRUE(loaded->set_adapter({2, 0.5F}).ok());
  ASSERT_TRUE(loaded->load(path).ok());
  LogitsLog got;
  ASSERT_TRUE(loaded->step(tokens[0], &got).ok());
  EXPECT_EQ(got.values, expected.values);
  ASSERT_TRUE(loaded->truncate(0).ok());
  ASSERT_TRUE(loaded->set_adapter({}).ok());
  ASSERT_TRUE(loaded->prefill(tokens, nullptr).ok());
  ASSERT_TRUE(loaded->save(path).ok());
  EXPECT_TRUE(load({}).ok());
  EXPECT_THAT(load({1, 1.0F}).message(), HasSubstr("saved with no adapter, expected the adapter"));
}

TEST(AdaptersTest, AParkedTextGoesOn) {
  const std::string expected = adapted_text({5, 1.0F}, 4, adapted_options(1));
  const std::unique_ptr<Engine> engine = open_bundled(adapted_options(1));
  AdaptedMember member(*engine, {5, 1.0F}, 4);
  Generation* const generation = member.generation.get();
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  ASSERT_TRUE(generation->park(temporary_path("adapted.parked")).ok());
  ASSERT_TRUE(generation->resume().ok());
  run_to_end(*engine, {&generation, 1});
  EXPECT_EQ(member.text, expected);
}

TEST(AdaptersTest, AnotherEngineComputesTheSamePasses) {
  EngineOptions options = adapted_options(2);
  options.record_passes = true;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::unique_ptr<Engine> other = open_bundled(adapted_options(2));
  const std::unique_ptr<Engine> without = open_bundled(step_options(2));
  std::vector<std::unique_ptr<AdaptedMember>> members;
  std::vector<Generation*> all;
  for (std::size_t i = 0; i < 2; ++i) {
    members.push_back(std::make_unique<AdaptedMember>(*engine, use_of(i + 1), i));
    all.push_back(members.back()->generation.get());
  }
  std::vector<TokenId> greedy;
  for (int step = 0; !all_finished(all) && step < 12; ++step) {
    const PassId pass = engine->begin_step(all).value();
    FirstRow logits;
    const Status executed = other->execute(engine->message_of(pass), &logits);
    ASSERT_TRUE(executed.ok()) << executed.message();
    if (step == 0) {
      EXPECT_THAT(without->execute(engine->message_of(pass), nullptr).message(),
                  HasSubstr("opened with 0 adapters"));
    }
    ASSERT_TRUE(engine->end_step(pass).has_value());
    // The first text is greedy: its next token is the largest logit of the other engine.
    if (members[0]->generation->finished()) break;
    const auto best = std::max_element(logits.values.begin(), logits.values.end());
    greedy.push_back(static_cast<TokenId>(best - logits.values.begin()));
  }
  const std::span<const TokenId> tokens = members[0]->session->tokens();
  ASSERT_GT(greedy.size(), 5U);
  const std::size_t n_prompt = encode(*engine, member_prompt(0)).size();
  for (std::size_t i = 0; n_prompt + i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[n_prompt + i], greedy[i]) << i;
  }
}

TEST(AdaptersTest, ATokenAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::unique_ptr<Engine> engine = open_bundled(adapted_options(2));
  const std::unique_ptr<Session> sessions[] = {engine->create_session().value(),
                                               engine->create_session().value()};
  const std::vector<TokenId> tokens = random_tokens(8);
  std::vector<SessionToken> step;
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(sessions[i]->set_adapter(use_of(i + 1)).ok());
    ASSERT_TRUE(sessions[i]->prefill(tokens, nullptr).ok());
    step.push_back({sessions[i].get(), 11, nullptr});
  }
  ASSERT_TRUE(engine->step_sessions(step).ok());
  const long before = n_allocations();
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(engine->step_sessions(step).ok());
  EXPECT_EQ(n_allocations(), before);
}

TEST(AdaptersTest, AreNamedAndChosenBeforeTheFirstToken) {
  EngineOptions options = adapted_options(1);
  options.adapters[1].name = "poet";
  const std::unique_ptr<Engine> engine = open_bundled(options);
  ASSERT_EQ(engine->adapters().size(), kAdapters);
  EXPECT_EQ(engine->adapters()[0].name, "adapter0");
  EXPECT_EQ(engine->adapters()[1].name, "poet");
  EXPECT_NE(engine->adapters()[0].fingerprint, engine->adapters()[1].fingerprint);
  EXPECT_EQ(engine->find_adapter("poet").value(), 2U);
  EXPECT_THAT(
      engine->find_adapter("adapter1").error().message(),
      HasSubstr("adapter \"adapter1\": the model was opened with adapter0, poet, adapter2"));
  const std::unique_ptr<Session> session = engine->create_session().value();
  EXPECT_EQ(session->adapter(), AdapterUse{});
  EXPECT_THAT(session->set_adapter({9, 1.0F}).message(), HasSubstr("adapter 9: the model was"));
  for (const float scale : {NAN, INFINITY}) {
    EXPECT_THAT(session->set_adapter({1, scale}).message(), HasSubstr("adapter scale: "));
  }
  ASSERT_TRUE(session->set_adapter({1, -1.0F}).ok());
  ASSERT_TRUE(session->prefill(random_tokens(3), nullptr).ok());
  EXPECT_THAT(session->set_adapter({}).message(), HasSubstr("adapter: the session has 3 tokens"));
  EXPECT_EQ(session->adapter(), (AdapterUse{1, -1.0F}));
  ASSERT_TRUE(session->truncate(0).ok());
  EXPECT_TRUE(session->set_adapter({}).ok());
}

TEST(AdaptersTest, OfOtherModelsAndDamagedFilesAreRefused) {
  const auto refusal = [](const EngineOptions& options) {
    const auto engine = Engine::open(kBundled, options);
    return engine.has_value() ? "opened" : engine.error().message();
  };
  EngineOptions options = step_options(1);
  options.adapters = {{"/nonexistent/adapter.qsf", ""}};
  EXPECT_THAT(refusal(options), HasSubstr("/nonexistent/adapter.qsf"));
  options.adapters = {adapter_files()[0], {adapter_files()[1].path, "adapter0"}};
  EXPECT_THAT(refusal(options), HasSubstr("a second adapter of the name \"adapter0\""));
  options.adapters = {{kBundled, ""}};
  EXPECT_THAT(refusal(options), HasSubstr(kBundled));
  const StreamedModel other("foreign", {});
  const std::string foreign = write_random_adapter(other.path(), "foreign", 1);
  options.adapters = {{foreign, ""}};
  EXPECT_THAT(refusal(options), HasSubstr(foreign));
  options.adapters = {adapter_files()[0]};
  options.quality = 0.9F;
  EXPECT_THAT(refusal(options), HasSubstr("adapters with quality 0.9"));
  options.quality = 1.0F;
  options.session_adapter = {2, 1.0F};
  EXPECT_THAT(refusal(options), HasSubstr("adapter 2: the model was opened with 1 adapters"));
  // A value that is read only when the file is loaded.
  std::string bytes;
  {
    std::ifstream in(adapter_files()[0].path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  bytes[bytes.size() - 100] ^= 1;
  const std::string damaged = temporary_path("damaged.adapter.qsf");
  std::ofstream(damaged, std::ios::binary) << bytes;
  options.session_adapter = {};
  options.adapters = {{damaged, ""}};
  EXPECT_THAT(refusal(options), HasSubstr("checksum"));
}

}  // namespace
}  // namespace qsf
