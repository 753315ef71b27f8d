// SPDX-License-Identifier: MIT
//
// The prefix cache in the engine: a text is the same bytes alone, beside others, and with any
// content of the cache; what enters, who shares it, and what is taken when pages run out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/engine_impl.h"
#include "engine/testing/prefix_texts.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

const std::string kTale = tale(3);

EngineOptions cached(std::uint32_t n_sequences, std::uint32_t rows_per_pass = 0) {
  EngineOptions options = step_options(n_sequences, rows_per_pass);
  options.max_context = 512;
  options.kv_positions = 16 * 512;
  options.prefix_cache = true;
  return options;
}

// The text without a cache.
std::string text_of(std::string_view prompt, EngineOptions options,
                    GenerateOptions settings = sampled()) {
  options.prefix_cache = options.reuse_answers = false;
  settings.prefix_key.reset();
  const std::unique_ptr<Engine> engine = open_bundled(options);
  Member member(*engine, prompt, settings);
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  return member.text;
}

std::uint32_t full_pages(const Engine& engine, std::string_view text) {
  const std::size_t n_tokens = encode(engine, text).size();
  return static_cast<std::uint32_t>((n_tokens - 1) / kKvPageSlots * kKvPageSlots);
}

TEST(PrefixCacheTest, TextsAreTheSameWarmColdAloneAndBesideOthers) {
  for (const KvType type : kAllKvTypes) {
    for (const bool spills : {false, true}) {
      SCOPED_TRACE(std::string(kv_type_name(type)) + (spills ? " in a file" : ""));
      EngineOptions options = cached(6, 40);
      options.k_type = options.v_type = type;
      if (spills) options.kv_spill_path = temporary_path("prefix_cache.spill");
      const std::string king = kTale + "The king";
      const std::string fox = kTale + "The fox said";
      EngineOptions alone = options;
      alone.kv_spill_path.clear();
      const std::string king_text = text_of(king, alone);
      const std::string fox_text = text_of(fox, alone);
      ASSERT_NE(king_text, fox_text);

      const std::unique_ptr<Engine> engine = open_bundled(options);
      const std::uint32_t n_full = full_pages(*engine, kTale + " ");
      ASSERT_GE(n_full, 2 * kKvPageSlots);
      const Outcome cold = run(*engine, king);
      EXPECT_EQ(cold.cached_tokens, 0U);
      EXPECT_EQ(cold.text, king_text);
      const Outcome warm = run(*engine, king);
      EXPECT_GE(warm.cached_tokens, n_full);
      EXPECT_EQ(warm.text, king_text);
      const Outcome other = run(*engine, fox);
      EXPECT_GE(other.cached_tokens, n_full);
      EXPECT_EQ(other.text, fox_text);
      // Beside those that share and those that do not.
      Members members;
      for (int i = 0; i < 2; ++i) {
        members.push_back(std::make_unique<Member>(*engine, king, sampled()));
        members.push_back(std::make_unique<Member>(*engine, fox, sampled(20, "another key")));
        members.push_back(std::make_unique<Member>(*engine, fox, sampled()));
      }
      const std::vector<Generation*> all = generations_of(members);
      run_to_end(*engine, all);
      for (std::size_t i = 0; i < members.size(); ++i) {
        EXPECT_EQ(members[i]->text, i % 3 == 0 ? king_text : fox_text) << i;
      }
    }
  }
}

TEST(PrefixCacheTest, FollowersFindAPromptWhileItsFirstGenerationRuns) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(3));
  const std::uint32_t n_full = full_pages(*engine, kTale);
  Member first(*engine, kTale, sampled(60));
  Member twin(*engine, kTale, sampled(60));
  Generation* both[] = {first.generation.get(), twin.generation.get()};
  ASSERT_TRUE(engine->step(both).has_value());  // both compute it: one step is too early
  EXPECT_EQ(twin.generation->result().cached_tokens, 0U);
  // The second of the two has the pages of the first now.
  const PrefixTreeStats stats = engine->prefix_stats().tree;
  EXPECT_EQ(stats.n_pages, n_full / kKvPageSlots);
  EXPECT_EQ(stats.n_idle_pages, 0U);
  EXPECT_EQ(run(*engine, kTale).cached_tokens, n_full);
  run_to_end(*engine, both);
  EXPECT_EQ(first.text, twin.text);
  EXPECT_EQ(first.text, text_of(kTale, cached(1), sampled(60)));
}

TEST(PrefixCacheTest, AnUnfinishedPromptLeavesWhatWasComputed) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(1, 32));
  Member member(*engine, kTale, sampled());
  Generation* const generation = member.generation.get();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  generation->cancel();
  ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  EXPECT_TRUE(generation->finished());
  EXPECT_EQ(member.session->length(), 0U);
  member.generation.reset();
  member.session.reset();
  const Outcome again = run(*engine, kTale);
  EXPECT_EQ(again.cached_tokens, 2 * kKvPageSlots);
  EXPECT_EQ(again.text, text_of(kTale, cached(1)));
}

TEST(PrefixCacheTest, OtherKeysShareNothing) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(2));
  run(*engine, kTale);
  EXPECT_EQ(run(*engine, kTale, sampled(20, "other")).cached_tokens, 0U);
  EXPECT_EQ(run(*engine, kTale, sampled(20, "")).cached_tokens, 0U);
  EXPECT_GT(run(*engine, kTale, sampled(20, "other")).cached_tokens, 0U);
  GenerateOptions without = sampled();
  without.prefix_key.reset();
  EXPECT_EQ(run(*engine, kTale, without).cached_tokens, 0U);
  EXPECT_EQ(run(*engine, "Once").cached_tokens, 0U);
  const PrefixCacheStats stats = engine->prefix_stats();
  EXPECT_EQ(stats.tree.n_keys, 3U);
  EXPECT_EQ(stats.tree.n_hits, 1U);
  EXPECT_EQ(stats.tree.n_no_entry, 1U);
  EXPECT_EQ(stats.tree.n_other_key, 2U);
  EXPECT_EQ(stats.tree.n_too_short, 1U);
  EXPECT_EQ(stats.n_continued, 0U);
}

// A generation without a key leaves nothing, and generated rows never enter.
TEST(PrefixCacheTest, OnlyPagesOfPromptRowsEnter) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(2));
  GenerateOptions without = sampled(100);
  without.prefix_key.reset();
  run(*engine, kTale, without);
  EXPECT_EQ(engine->prefix_stats().tree.n_pages, 0U);
  Member member(*engine, "Once upon a time", sampled(150));
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  EXPECT_GE(member.session->length(), 2 * kKvPageSlots);
  EXPECT_EQ(engine->prefix_stats().tree.n_pages, 0U);
  // A prompt behind generated rows does not enter either: its rows depend on theirs.
  member.generation.reset();
  GenerateOptions more = sampled(5);
  ASSERT_TRUE(member.session->generate(encode(*engine, kTale), more).has_value());
  EXPECT_EQ(engine->prefix_stats().tree.n_pages, 0U);
  EXPECT_EQ(engine->prefix_stats().n_continued, 1U);
  // Cut back to its prompt rows, it goes on with prompt rows alone.
  ASSERT_TRUE(member.session->truncate(2).ok());
  ASSERT_TRUE(member.session->generate(encode(*engine, kTale), more).has_value());
  EXPECT_EQ(engine->prefix_stats().tree.n_pages,
            (2 + encode(*engine, kTale).size()) / kKvPageSlots);
}

TEST(PrefixCacheTest, ATruncatedSessionIsCutToItsPromptRows) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(3));
  const std::vector<TokenId> tale = encode(*engine, kTale);
  const std::unique_ptr<Session> session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(tale, nullptr).ok());
  ASSERT_TRUE(session->truncate(100).ok());
  for (TokenId token = 50; token < 90; ++token) ASSERT_TRUE(session->step(token, nullptr).ok());
  ASSERT_TRUE(session->generate(tale, sampled(3)).has_value());
  EXPECT_EQ(engine->prefix_stats().tree.n_pages, 1U);
  // A cut into a shared page leaves the page as it is.
  const std::string expected = text_of(kTale, cached(1));
  const Outcome before = run(*engine, kTale);
  EXPECT_EQ(before.cached_tokens, kKvPageSlots);
  EXPECT_EQ(before.text, expected);
  Member member(*engine, kTale, sampled(3));
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  member.generation.reset();
  ASSERT_TRUE(member.session->truncate(70).ok());
  for (TokenId token = 50; token < 130; ++token) {
    ASSERT_TRUE(member.session->step(token, nullptr).ok());
  }
  EXPECT_EQ(run(*engine, kTale).text, expected);
}

TEST(PrefixCacheTest, ForksKnowTheirPromptRows) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(3));
  const std::vector<TokenId> tale = encode(*engine, kTale);
  const std::unique_ptr<Session> session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(std::span(tale).first(100), nullptr).ok());
  const std::unique_ptr<Session> fork = session->fork().value();
  ASSERT_TRUE(session->step(55, nullptr).ok());
  ASSERT_TRUE(session->generate(std::span(tale).subspan(101), sampled(3)).has_value());
  EXPECT_EQ(engine->prefix_stats().tree.n_pages, 1U);
  ASSERT_TRUE(fork->generate(std::span(tale).subspan(100), sampled(3)).has_value());
  EXPECT_EQ(engine->prefix_stats().tree.n_pages, tale.size() / kKvPageSlots);
  const Outcome found = run(*engine, kTale);
  EXPECT_EQ(found.cached_tokens, full_pages(*engine, kTale));
  EXPECT_EQ(found.text, text_of(kTale, cached(1)));
}

// A file does not tell how its rows were computed, and its bytes are the caller's.
TEST(PrefixCacheTest, RowsOfAFileDoNotEnter) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(2));
  const std::string path = temporary_path("prefix_cache.session");
  const std::vector<TokenId> tale = encode(*engine, kTale);
  {
    const std::unique_ptr<Session> session = engine->create_session().value();
    ASSERT_TRUE(session->prefill(tale, nullptr).ok());
    ASSERT_TRUE(session->save(path).ok());
  }
  for (const bool reuses : {false, true}) {
    EngineOptions options = cached(2);
    options.reuse_answers = reuses;
    const std::unique_ptr<Engine> other = open_bundled(options);
    const std::unique_ptr<Session> session = other->create_session().value();
    ASSERT_TRUE(session->load(path).ok());
    ASSERT_TRUE(session->generate(tale, sampled(3)).has_value());
    EXPECT_EQ(other->prefix_stats().tree.n_pages, 0U);
    // Emptied, it is like any other.
    ASSERT_TRUE(session->truncate(0).ok());
    ASSERT_TRUE(session->generate(tale, sampled(3)).has_value());
    EXPECT_EQ(other->prefix_stats().tree.n_pages, tale.size() / kKvPageSlots);
  }
  std::filesystem::remove(path);
}

TEST(PrefixCacheTest, ASavedSessionOfSharedPagesGoesOnWithTheSameText) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(2));
  run(*engine, kTale);
  const std::string path = temporary_path("prefix_cache_warm.session");
  std::string expected;
  std::string got;
  GenerateOptions options = sampled(30);
  options.on_token = [](TokenId, std::string_view piece, void* user) {
    static_cast<std::string*>(user)->append(piece);
  };
  {
    const std::unique_ptr<Session> session = engine->create_session().value();
    const GenerateResult begun = session->generate(encode(*engine, kTale), sampled(1)).value();
    EXPECT_GT(begun.cached_tokens, 0U);
    ASSERT_TRUE(session->save(path).ok());
    options.user = &expected;
    ASSERT_TRUE(session->generate({}, options).has_value());
  }
  const std::unique_ptr<Session> loaded = engine->create_session().value();
  ASSERT_TRUE(loaded->load(path).ok());
  options.user = &got;
  ASSERT_TRUE(loaded->generate({}, options).has_value());
  EXPECT_EQ(got, expected);
  std::filesystem::remove(path);
}

TEST(PrefixCacheTest, ReusedAnswersEnterToo) {
  EngineOptions options = cached(2);
  options.reuse_answers = true;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  Member member(*engine, "Once upon a time", sampled(150));
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  const std::size_t n_pages = member.session->length() / kKvPageSlots;
  EXPECT_GE(n_pages, 2U);
  EXPECT_EQ(engine->prefix_stats().tree.n_pages, n_pages);
  std::vector<TokenId> next(member.session->tokens().begin(), member.session->tokens().end());
  next.push_back(50);
  const std::unique_ptr<Session> session = engine->create_session().value();
  EXPECT_EQ(session->generate(next, sampled(3)).value().cached_tokens, n_pages * kKvPageSlots);
}

// A parked generation gives its pages of the cache back, and gets rows of a file: they do not
// enter.
TEST(PrefixCacheTest, AParkedGenerationGoesOnWithTheSameText) {
  EngineOptions options = cached(2, 40);
  options.kv_positions = 1;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::string expected = text_of(kTale, options, sampled(40));
  const std::string path = temporary_path("prefix_cache.parked");
  for (const int n_steps : {0, 1, 2, 12}) {
    SCOPED_TRACE(n_steps);
    Member member(*engine, kTale, sampled(40));
    Generation* const generation = member.generation.get();
    for (int i = 0; i < n_steps; ++i) ASSERT_TRUE(engine->step({&generation, 1}).has_value());
    ASSERT_TRUE(generation->park(path).ok());
    EXPECT_EQ(engine->kv_pages().n_unreserved, 8U);
    // Another text takes all pages.
    const std::unique_ptr<Session> other = engine->create_session().value();
    ASSERT_TRUE(other->prefill(std::vector<TokenId>(512, 50), nullptr).ok());
    EXPECT_EQ(engine->prefix_stats().tree.n_pages, 0U);
    ASSERT_TRUE(other->truncate(0).ok());
    ASSERT_TRUE(generation->resume().ok());
    run_to_end(*engine, {&generation, 1});
    EXPECT_EQ(member.text, expected);
    EXPECT_TRUE(engine->impl().prefix_tree->is_consistent());
    EXPECT_EQ(engine->prefix_stats().tree.n_pages, n_steps == 0 ? 2U : 0U);
    member.generation.reset();
    member.session.reset();
    EXPECT_EQ(run(*engine, kTale).text, text_of(kTale, options));
  }
  // Resumed before its admission it has a reservation, and finds what is there.
  Member member(*engine, kTale, sampled(40));
  Generation* const generation = member.generation.get();
  ASSERT_TRUE(generation->park(path).ok());
  ASSERT_TRUE(generation->resume().ok());
  run_to_end(*engine, {&generation, 1});
  EXPECT_EQ(member.text, expected);
  EXPECT_EQ(generation->result().cached_tokens, 2 * kKvPageSlots);
  // Parked with pages of the cache alone, and ended so.
  Member ended(*engine, kTale, sampled(40));
  ASSERT_TRUE(ended.generation->admit().ok());
  ASSERT_TRUE(ended.generation->park(path).ok());
  ended.generation.reset();
  EXPECT_EQ(ended.session->length(), 0U);
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Pages for one context and one more, and texts that come and go.
TEST(PrefixCacheTest, IdlePagesAreTakenBeforeAnyoneWaits) {
  EngineOptions options = cached(2);
  options.kv_positions = 1;  // 8 pages
  const std::unique_ptr<Engine> engine = open_bundled(options);
  ASSERT_EQ(engine->kv_pages().n_pages, 8U);
  const std::string expected = text_of(kTale, options);
  std::vector<std::string> others;
  for (std::size_t i = 0; i < 5; ++i) {
    others.push_back(std::string(member_prompt(i)) + ". " + kTale);
  }
  for (int round = 0; round < 2; ++round) {
    for (const std::string& other : others) {
      EXPECT_EQ(run(*engine, other).text, text_of(other, options));
      EXPECT_EQ(run(*engine, kTale).text, expected);
      EXPECT_EQ(engine->kv_pages().n_free, 8U);
      EXPECT_EQ(engine->kv_pages().n_unreserved, 8U);
    }
  }
  const PrefixTreeStats stats = engine->prefix_stats().tree;
  EXPECT_GT(stats.n_evicted_pages, 10U);
  EXPECT_GT(stats.n_hits, 5U);
  // Used in turns with others of two pages and more, the text stays.
  EXPECT_GT(run(*engine, kTale).cached_tokens, 0U);
}

TEST(PrefixCacheTest, AnEntryInUseIsNeverEvicted) {
  EngineOptions options = cached(3);
  options.kv_positions = 1;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::string expected = text_of(kTale, options, sampled(40));
  run(*engine, kTale);
  Member user(*engine, kTale, sampled(40));
  Generation* const generation = user.generation.get();
  ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  const std::uint32_t n_cached = generation->result().cached_tokens;
  EXPECT_GT(n_cached, 0U);
  // The rest of the pages, and more than there are.
  const std::unique_ptr<Session> greedy = engine->create_session().value();
  std::vector<TokenId> tokens(64, 50);
  while (greedy->prefill(tokens, nullptr).ok()) tokens[0] ^= 1;
  EXPECT_EQ(engine->kv_pages().n_unreserved, 0U);
  const PrefixTreeStats stats = engine->prefix_stats().tree;
  EXPECT_EQ(stats.n_idle_pages, 0U);
  EXPECT_GE(stats.n_pages * kKvPageSlots, n_cached);
  run_to_end(*engine, {&generation, 1});
  EXPECT_EQ(user.text, expected);
}

// A refused admission leaves session, pages and counts as they were.
TEST(PrefixCacheTest, ARefusedGenerationGivesItsPagesBack) {
  EngineOptions options = cached(3);
  options.kv_positions = 1;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  run(*engine, kTale);
  const std::uint64_t n_hits = engine->prefix_stats().tree.n_hits;
  const std::uint32_t n_idle = engine->prefix_stats().tree.n_idle_pages;
  Member holder(*engine, "Once", sampled(200));
  Generation* const held = holder.generation.get();
  ASSERT_TRUE(engine->step({&held, 1}).has_value());
  Member refused(*engine, kTale, sampled(400));
  Generation* const generation = refused.generation.get();
  ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  EXPECT_EQ(generation->status().code(), StatusCode::kOutOfBudget);
  EXPECT_EQ(refused.session->length(), 0U);
  EXPECT_EQ(refused.session->n_computed(), 0U);
  EXPECT_EQ(generation->result().cached_tokens, 0U);
  EXPECT_EQ(engine->prefix_stats().tree.n_hits, n_hits);
  EXPECT_EQ(engine->prefix_stats().tree.n_idle_pages, n_idle);
}

TEST(PrefixCacheTest, AnAdmittedGenerationThatNeverRanLeavesItsSessionEmpty) {
  const std::unique_ptr<Engine> engine = open_bundled(cached(3));
  run(*engine, kTale);
  Member member(*engine, kTale, sampled());
  ASSERT_TRUE(member.generation->admit().ok());
  EXPECT_GT(member.session->length(), 0U);
  EXPECT_GT(member.generation->result().cached_tokens, 0U);
  member.generation.reset();
  EXPECT_EQ(member.session->length(), 0U);
  EXPECT_EQ(engine->kv_pages().n_unreserved, engine->kv_pages().n_pages);
  EXPECT_TRUE(engine->impl().prefix_tree->is_consistent());
}

// What others hold has to be reserved by nobody: followers of a long prompt are admitted together.
TEST(PrefixCacheTest, FollowersReserveOnlyWhatTheyCompute) {
  EngineOptions options = cached(4);
  options.kv_positions = 1;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  run(*engine, kTale);
  Members members;
  for (int i = 0; i < 3; ++i)
    members.push_back(std::make_unique<Member>(*engine, kTale, sampled()));
  const std::vector<Generation*> all = generations_of(members);
  const auto n_tokens = static_cast<std::uint32_t>(encode(*engine, kTale).size());
  ASSERT_GT(3 * kv_pages_for(n_tokens + 20), 8U);  // too many for three that share nothing
  run_to_end(*engine, all);
  for (const Generation* const generation : all) EXPECT_TRUE(generation->status().ok());
}

TEST(PrefixCacheTest, StepsAllocateNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  EngineOptions options = cached(3);
  options.kv_positions = 1;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  run(*engine, kTale);
  for (const char* const start : {"A fox. ", "A king. ", "Once. "}) run(*engine, start + kTale);
  Member member(*engine, kTale, sampled(150));
  member.text.reserve(4000);
  Generation* const generation = member.generation.get();
  ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  const std::uint64_t n_evicted = engine->prefix_stats().tree.n_evicted_pages;
  const long before = n_allocations();
  while (!generation->finished()) ASSERT_TRUE(engine->step({&generation, 1}).has_value());
  EXPECT_EQ(n_allocations(), before);
  EXPECT_GT(engine->prefix_stats().tree.n_evicted_pages, n_evicted);
}

TEST(PrefixCacheTest, IsRefusedWhereItCannotBe) {
  const auto refusal = [](const EngineOptions& options) {
    return std::string(Engine::open(kBundled, options).error().message());
  };
  EngineOptions options = cached(1);
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = 64, .sinks = 4};
  EXPECT_THAT(refusal(options), HasSubstr("prefix_cache with kv policy window"));
  options.kv_policy = {.policy = KvPolicy::kH2o, .window = 64, .sinks = 4, .heavy = 64};
  EXPECT_THAT(refusal(options), HasSubstr("prefix_cache with kv policy h2o"));
  options = cached(1);
  options.attention = AttentionKind::kSparsePrefill;
  EXPECT_THAT(refusal(options), HasSubstr("prefix_cache with attention h2o"));
  options.attention = AttentionKind::kSymmetric;
  EXPECT_THAT(refusal(options), HasSubstr("prefix_cache with attention symmetric"));
  options = cached(1);
  options.record_passes = true;
  EXPECT_THAT(refusal(options), HasSubstr("prefix_cache with record_passes"));
  options = cached(1);
  options.prefix_cache = false;
  options.reuse_answers = true;
  EXPECT_THAT(refusal(options), HasSubstr("reuse_answers: needs the prefix cache"));

  const std::unique_ptr<Engine> without = open_bundled(step_options(1));
  const std::unique_ptr<Session> session = without->create_session().value();
  EXPECT_THAT(session->generate(encode(*without, "Once"), sampled()).error().message(),
              HasSubstr("prefix_key: the model was opened without a prefix cache"));
  const std::unique_ptr<Engine> with = open_bundled(cached(1));
  const std::unique_ptr<Session> other = with->create_session().value();
  EXPECT_THAT(
      other->generate(encode(*with, "Once"), sampled(3, std::string(257, 'k'))).error().message(),
      HasSubstr("prefix_key: 257 bytes, expected at most 256"));
  EXPECT_TRUE(
      other->generate(encode(*with, "Once"), sampled(3, std::string(256, 'k'))).has_value());
}

TEST(PrefixCacheTest, TextsOfChunkedAttentionAreTheSame) {
  EngineOptions options = cached(1);
  options.attention = AttentionKind::kChunked;
  options.prompt_mask.chunk = 50;
  const std::string expected = text_of(kTale, options);
  const std::unique_ptr<Engine> engine = open_bundled(options);
  EXPECT_EQ(run(*engine, kTale).text, expected);
  const Outcome warm = run(*engine, kTale);
  EXPECT_GT(warm.cached_tokens, 0U);
  EXPECT_EQ(warm.text, expected);
}

}  // namespace
}  // namespace qsf
