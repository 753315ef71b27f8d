// SPDX-License-Identifier: MIT
//
// Engines whose texts exceed the trained context length, because sinks are rotated to their cache
// position: logits against the definition at three times that length, on small random models; the
// plan, chats and session files; refused models and options.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/testing/temporary_path.h"
#include "engine/engine_impl.h"
#include "engine/testing/bundled_path.h"
#include "engine/testing/logits_log.h"
#include "engine/testing/naive_model_test.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::kBundled;
using testing_support::LogitsLog;
using testing_support::naive_llama;
using testing_support::NaiveModel;
using testing_support::random_tokens;

constexpr std::uint32_t kReindexTrained = 64;
constexpr std::uint32_t kVocab = testing_support::kNaiveVocab;
constexpr std::size_t kReindexTokens = 3 * kReindexTrained + 5;

// Trained for 1,024 positions.
constexpr std::uint32_t kTalesTrained = 1024;

ModelSpec small_spec(std::uint32_t n_kv_heads) {
  ModelSpec s = naive_llama(3, kReindexTrained);
  s.n_heads = 4;
  s.n_kv_heads = n_kv_heads;
  return s;
}

EngineOptions windowed(std::uint32_t window, std::uint32_t sinks, bool reindex = true) {
  EngineOptions options;
  options.n_threads = 2;
  options.k_type = KvType::kF32;
  options.v_type = KvType::kF32;
  options.exact = true;
  options.kv_policy = {
      .policy = KvPolicy::kWindow, .window = window, .sinks = sinks, .rope_reindex = reindex};
  return options;
}

std::unique_ptr<Engine> open(const std::string& path, const EngineOptions& options) {
  auto engine = Engine::open(path, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return engine.has_value() ? std::move(*engine) : nullptr;
}

class RopeReindexTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& path : made_) std::filesystem::remove(path);
  }
  std::string path(const std::string& name) {
    made_.push_back(testing_support::temporary_path("rope_reindex" + name));
    return made_.back();
  }
  std::string write(const NaiveModel& model) {
    const std::string to = path(".qsf");
    EXPECT_TRUE(model.write(to).ok());
    return to;
  }

  std::vector<std::string> made_;
};

// The logits after every `step`th token, in calls of that size.
std::vector<float> logits_of(const std::string& path, const EngineOptions& options,
                             std::span<const TokenId> tokens, std::size_t step, RowRole role) {
  const std::unique_ptr<Engine> engine = open(path, options);
  const std::unique_ptr<Session> session = engine->create_session().value();
  LogitsLog log;
  for (std::size_t at = 0; at < tokens.size(); at += step) {
    const auto part = tokens.subspan(at, std::min(step, tokens.size() - at));
    const Status status =
        role == RowRole::kPrompt ? session->prefill(part, &log) : session->step(part[0], &log);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return log.values;
}

void expect_near(const std::vector<float>& got, const std::vector<std::vector<double>>& want,
                 std::size_t step, double bound) {
  ASSERT_EQ(got.size(), (want.size() + step - 1) / step * kVocab);
  std::size_t at = 0;
  for (std::size_t row = 0; row < want.size(); ++row) {
    const bool told = (row + 1) % step == 0 || row + 1 == want.size();
    for (std::size_t id = 0; told && id < kVocab; ++id, ++at) {
      ASSERT_NEAR(got[at], want[row][id], bound) << "row " << row << " token " << id;
    }
  }
}

// A query and a KV head each, and groups; a model whose own window is shorter than the cache in
// some layers, counted by place as everything else.
TEST_F(RopeReindexTest, LogitsAreThoseOfTheCacheAsATextByItself) {
  for (const std::uint32_t n_kv_heads : {4U, 2U}) {
    for (const bool own_windows : {false, true}) {
      ModelSpec spec = small_spec(n_kv_heads);
      if (own_windows) spec.sliding_window = {20, 0, 33};
      const NaiveModel model(spec, 5);
      const std::string file = write(model);
      const std::vector<TokenId> tokens = random_tokens(kReindexTokens, 1, kVocab - 10);
      for (const NaiveModel::Cache& cache : {NaiveModel::Cache{4, 30}, {1, 63}, {3, 1}}) {
        const auto want = model.logits(tokens, kReindexTrained, {}, nullptr, nullptr, &cache);
        const EngineOptions options = windowed(cache.window, cache.sinks);
        expect_near(logits_of(file, options, tokens, 11, RowRole::kPrompt), want, 11, 2e-4);
        expect_near(logits_of(file, options, tokens, 1, RowRole::kGenerated), want, 1, 2e-4);
      }
    }
  }
}

// Queries that grow with their position grow with their place in the cache.
TEST_F(RopeReindexTest, QueriesGrowWithTheirPlaceInTheCache) {
  ModelSpec spec = small_spec(2);
  spec.architecture = "mistral3";
  spec.rope.scaling = RopeScaling::kYarn;
  spec.rope.factor = 4.0F;
  spec.rope.original_context = 10;
  spec.query_position_scale = 0.5F;
  const NaiveModel model(spec, 5);
  const std::string file = write(model);
  const std::vector<TokenId> tokens = random_tokens(kReindexTokens, 1, kVocab - 10);
  const NaiveModel::Cache cache{4, 30};
  const auto want = model.logits(tokens, kReindexTrained, {}, nullptr, nullptr, &cache);
  const EngineOptions options = windowed(cache.window, cache.sinks);
  expect_near(logits_of(file, options, tokens, 11, RowRole::kPrompt), want, 11, 2e-4);
  expect_near(logits_of(file, options, tokens, 1, RowRole::kGenerated), want, 1, 2e-4);
}

// Of which the place behind 4 sinks and a window of 30 sees the sinks in part, or not at all.
TEST_F(RopeReindexTest, TellsWhichPositionsAreVisible) {
  ModelSpec spec = small_spec(2);
  spec.sliding_window = {20, 0, 33};
  const auto engine = open(write(NaiveModel(spec, 5)), windowed(30, 4));
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(random_tokens(100, 1, kVocab - 10), nullptr).ok());
  const auto visible = [&](std::uint32_t layer) {
    std::vector<std::uint32_t> positions;
    EXPECT_TRUE(session->visible_positions(layer, 0, positions).ok());
    return positions;
  };
  const auto with = [](std::vector<std::uint32_t> positions, std::uint32_t first) {
    for (; first < 100; ++first) positions.push_back(first);
    return positions;
  };
  EXPECT_EQ(visible(0), with({}, 81));
  EXPECT_EQ(visible(1), with({0, 1, 2, 3}, 71));
  EXPECT_EQ(visible(2), with({1, 2, 3}, 71));
}

TEST_F(RopeReindexTest, BitsDependNeitherOnPassesNorThreadsNorAFile) {
  const std::string file = write(NaiveModel(small_spec(2), 6));
  const std::vector<TokenId> tokens = random_tokens(kReindexTokens, 2, kVocab - 10);
  EngineOptions options = windowed(40, 4);
  options.k_type = KvType::kF16;
  options.v_type = KvType::k4Bit;
  const auto run = [&] { return logits_of(file, options, tokens, 97, RowRole::kPrompt); };
  const std::vector<float> want = run();
  for (const std::uint32_t rows : {1U, 7U, 64U}) {
    options.rows_per_pass = rows;
    EXPECT_EQ(run(), want) << rows;
  }
  options.n_threads = 3;
  options.rows_per_pass = 13;
  options.kv_spill_path = path("spill");
  EXPECT_EQ(run(), want);
}

TEST_F(RopeReindexTest, WhatFitsHasTheBitsOfTheWindow) {
  const std::vector<TokenId> tokens = random_tokens(500);
  const auto run = [&](std::size_t n_tokens, bool reindex) {
    EngineOptions options = windowed(400, 4, reindex);
    options.exact = false;
    options.k_type = KvType::kF16;
    options.v_type = KvType::kF16;
    return logits_of(kBundled, options, std::span(tokens).first(n_tokens), 101, RowRole::kPrompt);
  };
  EXPECT_EQ(run(404, true), run(404, false));
  EXPECT_NE(run(405, true), run(405, false));
}

TEST_F(RopeReindexTest, GenerationPassesTheTrainedContext) {
  EngineOptions options = windowed(300, 4);
  options.max_context = 4 * kTalesTrained;
  const std::unique_ptr<Engine> engine = open(kBundled, options);
  EXPECT_EQ(engine->max_context(), 4 * kTalesTrained);
  const std::unique_ptr<Session> session = engine->create_session().value();
  GenerateOptions generate;
  generate.max_tokens = 200;
  generate.sampling.temperature = 0.0F;
  generate.sampling.logit_bias = {{300, 1e6F}};
  GenerateResult result = session->generate(random_tokens(kTalesTrained - 50), generate).value();
  EXPECT_EQ(result.reason, StopReason::kTokenLimit);
  EXPECT_EQ(session->length(), kTalesTrained + 149U);
  result = session->generate(random_tokens(2 * kTalesTrained), generate).value();
  EXPECT_EQ(result.reason, StopReason::kTokenLimit);
  EXPECT_GT(session->length(), 3 * kTalesTrained);
  generate.max_tokens = 1000;
  result = session->generate({}, generate).value();
  EXPECT_EQ(result.reason, StopReason::kContextFull);
  EXPECT_EQ(session->length(), 4 * kTalesTrained);
}

// The default context, its memory, and a row for the second queries.
TEST_F(RopeReindexTest, ThePlanCountsTokensAndQueries) {
  EngineOptions options = windowed(300, 4);
  options.ram_budget_bytes = 0;
  const auto plan_of = [&](std::uint32_t context, bool reindex) {
    options.max_context = context;
    options.kv_policy.rope_reindex = reindex;
    return Engine::plan_file(kBundled, options).value();
  };
  const auto bytes_of = [](const EnginePlan& plan, const std::string& name) {
    std::uint64_t bytes = 0;
    for (const Region& region : plan.memory.regions()) {
      if (region.name == name) bytes += region.bytes;
    }
    return bytes;
  };
  const EnginePlan plain = plan_of(1000, false);
  const EnginePlan reindexed = plan_of(1000, true);
  EXPECT_EQ(bytes_of(plain, "rows_q_sinks"), 0U);
  EXPECT_EQ(bytes_of(reindexed, "rows_q_sinks"), bytes_of(reindexed, "rows_q"));
  EXPECT_GT(bytes_of(reindexed, "scratch"), bytes_of(plain, "scratch"));
  const EnginePlan whole = plan_of(0, true);
  EXPECT_EQ(whole.max_context, 65536U);
  EXPECT_EQ(plan_of(0, false).max_context, kTalesTrained);
  EXPECT_EQ(bytes_of(whole, "heap") - bytes_of(reindexed, "heap"), (65536U - 1000) * 260);
  EXPECT_EQ(bytes_of(whole, "kv_cache"), bytes_of(reindexed, "kv_cache"));
}

// LongRoPE looks at how far apart a query and a key are at most: the cache, where sinks are met by
// place, and the context otherwise.
TEST_F(RopeReindexTest, LongRopeFollowsTheLongestDistance) {
  ModelSpec spec = small_spec(2);
  spec.max_positions = 256;
  spec.rope.scaling = RopeScaling::kLongrope;
  spec.rope.original_context = kReindexTrained;
  spec.rope.short_factors = {1.0F, 1.1F, 1.2F, 1.3F};
  spec.rope.long_factors = {1.5F, 2.0F, 3.0F, 4.0F};
  spec.rope.attention_factor = 1.19F;
  const NaiveModel model(spec, 8);
  const std::string file = write(model);
  const std::vector<TokenId> tokens = random_tokens(kReindexTokens, 3, kVocab - 10);
  const auto reindexed = [&](std::uint32_t window) {
    EngineOptions options = windowed(window, 4);
    options.max_context = 4096;
    const NaiveModel::Cache cache = {4, window};
    const std::uint32_t factors_of = window + 4;
    expect_near(logits_of(file, options, tokens, 11, RowRole::kPrompt),
                model.logits(tokens, factors_of, {}, nullptr, nullptr, &cache), 11, 2e-4);
  };
  reindexed(kReindexTrained - 4);  // short
  reindexed(kReindexTrained - 3);  // long
  const auto plain = [&](std::uint32_t context) {
    EngineOptions options = windowed(30, 4, false);
    options.max_context = context;
    const std::size_t n = std::min<std::size_t>(context, kReindexTokens);
    const std::vector<TokenId> part(tokens.begin(), tokens.begin() + static_cast<long>(n));
    const auto sees = [](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
      return j < 4 || i - j < 30;
    };
    expect_near(logits_of(file, options, part, 11, RowRole::kPrompt),
                model.logits(part, context, {}, sees), 11, 2e-4);
  };
  plain(kReindexTrained);
  plain(kReindexTrained + 1);
  plain(256);
  EngineOptions options = windowed(30, 4);
  options.max_context = 200;
  const std::string saved = path("long.session");
  {
    const auto engine = open(file, options);
    const auto session = engine->create_session().value();
    ASSERT_TRUE(session->prefill(tokens, nullptr).ok());
    ASSERT_TRUE(session->save(saved).ok());
  }
  options.max_context = 1000;  // rotated by the same factors
  EXPECT_TRUE(open(file, options)->create_session().value()->load(saved).ok());
}

TEST_F(RopeReindexTest, SessionFilesGoOnAndTellTheSettingsApart) {
  const std::string file = write(NaiveModel(small_spec(2), 9));
  const std::vector<TokenId> tokens = random_tokens(kReindexTokens + 40, 4, kVocab - 10);
  const std::span<const TokenId> all = tokens;
  const auto go_on = [&](Session& session) {
    LogitsLog log;
    EXPECT_TRUE(session.prefill(all.subspan(kReindexTokens), &log).ok());
    return log.values;
  };
  EngineOptions options = windowed(30, 4);
  const std::string past = path("past.session");
  const std::string within = path("within.session");
  const std::string plain = path("plain.session");
  const auto engine = open(file, options);
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(all.first(20), nullptr).ok());
  ASSERT_TRUE(session->save(within).ok());
  ASSERT_TRUE(session->prefill(all.first(kReindexTokens).subspan(20), nullptr).ok());
  ASSERT_TRUE(session->save(past).ok());
  const std::vector<float> want = go_on(*session);

  options.rows_per_pass = 9;
  options.max_context = kReindexTokens + 41;
  {
    const auto other = open(file, options);
    const auto loaded = other->create_session().value();
    ASSERT_TRUE(loaded->load(past).ok());
    EXPECT_EQ(loaded->length(), kReindexTokens);
    EXPECT_EQ(go_on(*loaded), want);
  }
  options.max_context = kReindexTrained;
  options.kv_policy.rope_reindex = false;
  const auto unindexed = open(file, options);
  const auto other = unindexed->create_session().value();
  for (const std::string& saved : {past, within}) {
    const Status status = other->load(saved);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("section policy: saved with rope_reindex"));
    EXPECT_THAT(status.message(), HasSubstr("opened without"));
  }
  ASSERT_TRUE(other->prefill(all.first(20), nullptr).ok());
  ASSERT_TRUE(other->save(plain).ok());
  ASSERT_TRUE(session->truncate(0).ok());
  const Status status = session->load(plain);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("section policy: saved without rope_reindex"));
}

void expect_refused(const std::string& file, const EngineOptions& options, StatusCode code,
                    std::initializer_list<const char*> say) {
  const auto engine = Engine::open(file, options);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), code);
  for (const char* text : say) EXPECT_THAT(engine.error().message(), HasSubstr(text));
}

TEST_F(RopeReindexTest, ModelsWithoutRotationAreRefused) {
  ModelSpec spec = small_spec(4);
  spec.architecture = "bloom";
  spec.positions = PositionEncoding::kAlibi;
  spec.norm = NormType::kLayerNorm;
  spec.gated_ffn = false;
  spec.activation = Activation::kGeluTanh;
  expect_refused(write(NaiveModel(spec, 1)), windowed(30, 4), StatusCode::kUnsupported,
                 {"rope_reindex", "alibi positions", "leave rope_reindex out"});
  spec.architecture = "gpt2";
  spec.positions = PositionEncoding::kLearned;
  expect_refused(write(NaiveModel(spec, 1)), windowed(30, 4), StatusCode::kUnsupported,
                 {"rope_reindex", "learned positions", "end at 64 positions"});
}

TEST_F(RopeReindexTest, OptionsThatContradictAreRefused) {
  EngineOptions options = windowed(1021, 4);
  expect_refused(kBundled, options, StatusCode::kInvalidArgument,
                 {"4 sinks and a window of 1021 are 1025", "trained for 1024"});
  options.kv_policy.window = 1020;
  options.max_context = 67'108'865;
  expect_refused(kBundled, options, StatusCode::kInvalidArgument,
                 {"67108865", "accurate up to 67108864"});
  options.max_context = 0;
  options.kv_policy.policy = KvPolicy::kFull;
  expect_refused(kBundled, options, StatusCode::kInvalidArgument,
                 {"rope_reindex: needs kv policy window, got full"});
  options = windowed(300, 4, false);
  options.max_context = kTalesTrained + 1;
  expect_refused(kBundled, options, StatusCode::kInvalidArgument,
                 {"trained for 1024", "kv policy window with rope_reindex"});
}

}  // namespace
}  // namespace qsf
