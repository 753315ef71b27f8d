// SPDX-License-Identifier: MIT
//
// Blocks for multi-token prediction of the models in testdata/mtp: their logits and drafts are
// those of transformers' layers, whoever computed the rows and in which passes, and texts are those
// without drafts. expected.bin is laid out in scripts/golden/make_mtp_golden.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "base/testing/temporary_path.h"
#include "engine/draft_model.h"
#include "engine/testing/drafted_text.h"
#include "engine/testing/golden_values.h"
#include "engine/testing/step_members.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

namespace fs = std::filesystem;

constexpr double kMtpTolerance = 1e-4;  // of the largest logit, as golden logits have it
const char* const kMtpModels[] = {"glm4_moe", "deepseek_v3"};
const char* const kLearnedPrompts[] = {"A poor woodcutter lived",
                                       "The king said: ", "Once upon a time", "Of three sons"};

struct MtpGolden {
  std::uint32_t n_vocab = 0;
  std::uint32_t hidden = 0;
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> rows;    // of the model
  std::vector<std::vector<float>> logits;  // of the block, of token i + 2
  std::vector<std::vector<float>> own;     // rows of the block
  std::vector<TokenId> drafts;

  explicit MtpGolden(const fs::path& path) {
    GoldenReader in(path, "QSFMTP01");
    n_vocab = in.number();
    hidden = in.number();
    tokens.resize(in.number());
    drafts.resize(in.number());
    for (TokenId& token : tokens) token = in.number();
    for (std::size_t i = 0; i < tokens.size(); ++i) rows.push_back(in.values(hidden));
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      logits.push_back(in.values(n_vocab));
      own.push_back(in.values(hidden));
    }
    for (TokenId& token : drafts) token = in.number();
    EXPECT_TRUE(in.ok());
  }
};

fs::path mtp_folder(const std::string& model) {
  return fs::path(QSF_SOURCE_DIR) / "testdata" / "mtp" / model;
}

// Converts a folder once, the model or its block, in f32.
const std::string& mtp_file(const std::string& model, bool block) {
  static std::map<std::pair<std::string, bool>, std::string> files;
  std::string& path = files[{model, block}];
  if (!path.empty()) return path;
  path = temporary_path(("mtp_test_" + model + (block ? ".mtp.qsf" : ".qsf")).c_str());
  const std::string command = std::string(QSF_BIN_DIR) + "/qsf-convert --quiet --quant-type f32 " +
                              (block ? "--mtp " : "") + mtp_folder(model).string() + " " + path +
                              " 2>/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return path;
}

EngineOptions plain_options(std::uint32_t n_sequences = 1) {
  EngineOptions options = step_options(n_sequences);
  options.exact = true;
  options.k_type = options.v_type = KvType::kF32;
  return options;
}

EngineOptions mtp_options(const std::string& model, std::uint32_t max_drafts,
                          EngineOptions options = plain_options()) {
  options.speculation = SpeculationKind::kDraft;
  options.draft_model_path = mtp_file(model, true);
  options.max_drafts = max_drafts;
  return options;
}

std::unique_ptr<Engine> open_mtp(const std::string& model, const EngineOptions& options) {
  auto engine = Engine::open(mtp_file(model, false), options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(engine).value();
}

// Drafts by the largest logit, and the logits of each draft.
struct MtpDraft {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;
};

MtpDraft draft_behind(DraftModel& block, SequenceId sequence, std::span<const TokenId> tokens,
                      TokenId last, std::uint32_t n) {
  MtpDraft draft;
  const DraftText text = {.tokens = tokens, .last = last, .prompt_begin = 0, .prompt_end = 0};
  EXPECT_TRUE(block.follows(sequence, text));
  const auto draw = [&](std::span<float> logits, std::span<const TokenId> history) {
    EXPECT_EQ(history.size(), tokens.size() + 1 + draft.logits.size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), history.begin()));
    draft.logits.emplace_back(logits.begin(), logits.end());
    return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
  };
  const auto never = [] { return false; };
  draft.tokens.resize(n);
  draft.tokens.resize(
      block.draft(sequence, text, {.draw = draw, .is_cancelled = never}, draft.tokens));
  return draft;
}

class MtpTest : public testing::TestWithParam<const char*> {
 protected:
  MtpGolden golden() const { return MtpGolden(mtp_folder(GetParam()) / "expected.bin"); }
};

// With the rows that transformers computed.
TEST_P(MtpTest, LogitsMatchOfGivenRows) {
  const MtpGolden want = golden();
  for (const std::size_t at_once : {1U, 7U, 40U}) {
    const auto engine = open_mtp(GetParam(), mtp_options(GetParam(), 3));
    DraftModel& block = *engine->impl().draft_model;
    ASSERT_TRUE(block.takes_rows());
    const auto session = engine->create_session().value();
    for (std::size_t done = 0; done < want.tokens.size(); done += at_once) {
      const std::size_t end = std::min(done + at_once, want.tokens.size());
      std::vector<Row> pass;
      for (std::size_t i = done; i < end; ++i) {
        pass.push_back({.sequence = 0,
                        .token = want.tokens[i],
                        .position = static_cast<std::int32_t>(i),
                        .role = at_once == 1 ? RowRole::kGenerated : RowRole::kPrompt});
      }
      for (std::uint32_t i = 0; i < pass.size(); ++i) {
        block.take_row(pass, i, want.rows[done + i]);
      }
      if (end == want.tokens.size()) break;
      const MtpDraft got =
          draft_behind(block, 0, std::span(want.tokens).first(end), want.tokens[end], 1);
      ASSERT_EQ(got.logits.size(), 1U);
      EXPECT_LT(relative_error(got.logits[0], want.logits[end - 1]), kMtpTolerance) << end;
    }
  }
}

// With the engine's own rows, in passes of any length, and the drafts of drafts.
TEST_P(MtpTest, DraftsMatchThoseOfTransformers) {
  const MtpGolden want = golden();
  const auto n_drafts = static_cast<std::uint32_t>(want.drafts.size());
  for (const std::uint32_t rows_per_pass : {1U, 16U, 64U}) {
    EngineOptions options = plain_options();
    options.rows_per_pass = rows_per_pass;
    const auto engine = open_mtp(GetParam(), mtp_options(GetParam(), n_drafts, options));
    DraftModel& block = *engine->impl().draft_model;
    const auto session = engine->create_session().value();
    std::vector<float> logits(want.n_vocab);
    class Kept final : public LogitsSink {
     public:
      explicit Kept(std::vector<float>& to) : to_(to) {}
      void consume(std::uint32_t, std::uint32_t first, std::span<const float> part) noexcept final {
        std::ranges::copy(part, to_.begin() + first);
      }

     private:
      std::vector<float>& to_;
    } sink(logits);
    ASSERT_TRUE(session->prefill(want.tokens, &sink).ok());
    const auto last = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    // Twice: what was drafted has left no row.
    for (int i = 0; i < 2; ++i) {
      const MtpDraft got = draft_behind(block, 0, want.tokens, last, n_drafts);
      EXPECT_EQ(got.tokens, want.drafts) << rows_per_pass;
      EXPECT_EQ(block.n_rows(0), want.tokens.size());
    }
    const std::span<const TokenId> all = want.tokens;
    const MtpDraft got = draft_behind(block, 0, all.first(30), all[30], 1);
    EXPECT_LT(relative_error(got.logits[0], want.logits[29]), kMtpTolerance);
  }
}

// More rows than are kept: what a prompt's passes leave is what drafts behind every token leave.
TEST_P(MtpTest, RowsOfALongTextAreComputedAsTheyCome) {
  const MtpGolden given = golden();
  std::vector<TokenId> tokens;
  while (tokens.size() < 200) tokens.insert(tokens.end(), given.tokens.begin(), given.tokens.end());
  std::vector<std::vector<float>> logits;
  for (const std::size_t at_once : {200U, 37U, 1U}) {
    const auto engine = open_mtp(GetParam(), mtp_options(GetParam(), 2));
    DraftModel& block = *engine->impl().draft_model;
    const auto session = engine->create_session().value();
    const std::span<const TokenId> all = std::span(tokens).first(200);
    for (std::size_t done = 0; done < all.size(); done += at_once) {
      const std::span<const TokenId> part = all.subspan(done, std::min(at_once, all.size() - done));
      ASSERT_TRUE(session->prefill(part, nullptr).ok());
      const MtpDraft got = draft_behind(block, 0, all.first(done + part.size()), 'x', 1);
      if (done + part.size() == all.size()) logits.push_back(got.logits[0]);
      EXPECT_EQ(block.n_rows(0), done + part.size());
    }
  }
  for (const std::vector<float>& other : logits)
    EXPECT_LT(relative_error(other, logits[0]), kMtpTolerance);
  // Rows that are missing, those of the first half, make a difference.
  const auto engine = open_mtp(GetParam(), mtp_options(GetParam(), 2));
  DraftModel& block = *engine->impl().draft_model;
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(std::span(tokens).first(100), nullptr).ok());
  block.begin(0);
  ASSERT_TRUE(session->prefill(std::span(tokens).subspan(100, 100), nullptr).ok());
  const MtpDraft got = draft_behind(block, 0, std::span(tokens).first(200), 'x', 1);
  EXPECT_EQ(block.n_rows(0), 100U);
  EXPECT_GT(relative_error(got.logits[0], logits[0]), kMtpTolerance);
}

// What is left of a text that was cut, or begins as a copy, has the rows that it would have alone.
TEST_P(MtpTest, RowsFollowCutsAndForks) {
  const MtpGolden given = golden();
  const std::span<const TokenId> tokens = given.tokens;
  std::vector<TokenId> text(tokens.begin(), tokens.begin() + 20);
  text.insert(text.end(), {'A', 'n', 'd', ' ', 't', 'h', 'e', 'n'});
  const std::span<const TokenId> other = std::span(text).subspan(20);
  const auto draft_of = [&](Engine& engine, SequenceId sequence) {
    DraftModel& block = *engine.impl().draft_model;
    const MtpDraft got = draft_behind(block, sequence, text, 'x', 1);
    EXPECT_EQ(block.n_rows(sequence), text.size());
    return got.logits[0];
  };
  const auto alone = open_mtp(GetParam(), mtp_options(GetParam(), 2, plain_options(2)));
  const auto session = alone->create_session().value();
  ASSERT_TRUE(session->prefill(text, nullptr).ok());
  const std::vector<float> expected = draft_of(*alone, 0);
  for (const bool drafts_before : {false, true}) {
    const auto engine = open_mtp(GetParam(), mtp_options(GetParam(), 2, plain_options(2)));
    const auto first = engine->create_session().value();
    ASSERT_TRUE(first->prefill(tokens, nullptr).ok());
    DraftModel& block = *engine->impl().draft_model;
    if (drafts_before) draft_behind(block, 0, tokens, 'x', 2);
    ASSERT_TRUE(first->truncate(20).ok());
    const auto fork = first->fork().value();
    ASSERT_TRUE(fork->prefill(other, nullptr).ok());
    EXPECT_LT(relative_error(draft_of(*engine, 1), expected), kMtpTolerance);
    ASSERT_TRUE(first->prefill(other, nullptr).ok());
    EXPECT_LT(relative_error(draft_of(*engine, 0), expected), kMtpTolerance);
  }
}

struct MtpWork {
  std::vector<Shown> shown;
  EngineStats stats;
};

MtpWork mtp_texts(Engine& engine, const Change& change) {
  MtpWork work;
  Work counts;
  for (const char* const prompt : {kLearnedPrompts[0], kLearnedPrompts[1]}) {
    const auto session = engine.create_session().value();
    work.shown.push_back(generate(engine, *session, prompt, change, counts));
    work.shown.push_back(generate(engine, *session, " And then", change, counts));
  }
  work.stats = engine.stats();
  return work;
}

MtpWork mtp_texts(const std::string& model, const EngineOptions& options, const Change& change) {
  return mtp_texts(*open_mtp(model, options), change);
}

// The blocks have learned what the models say to these prompts, and nothing else.
TEST_P(MtpTest, DraftsOfALearnedTextAreAccepted) {
  const auto engine = open_mtp(GetParam(), mtp_options(GetParam(), 1));
  Work work;
  for (const char* const prompt : kLearnedPrompts) {
    const auto session = engine->create_session().value();
    generate(*engine, *session, prompt, nullptr, work);
  }
  EXPECT_GT(work.drafted, 80U);
  EXPECT_GT(work.accepted, work.drafted * 9 / 10);
  EXPECT_GT(engine->stats().model_accepted_tokens, 50U);
}

TEST_P(MtpTest, RefusedDraftsLoseNoRow) {
  const auto engine = open_mtp(GetParam(), mtp_options(GetParam(), 5));
  const auto session = engine->create_session().value();
  Work work;
  for (const char* const prompt : {kLearnedPrompts[0], " And then", " So"}) {
    generate(*engine, *session, prompt, nullptr, work);
  }
  EXPECT_GT(engine->stats().model_drafted_tokens, 2 * engine->stats().model_accepted_tokens);
  DraftModel& block = *engine->impl().draft_model;
  draft_behind(block, 0, session->tokens(), 'x', 1);
  EXPECT_EQ(block.n_rows(0), session->length());
}

TEST_P(MtpTest, TextsAreThoseWithoutDrafts) {
  const Change drawn = [](GenerateOptions& o) {
    o.sampling.temperature = 0.9F;
    o.sampling.repeat_penalty = 1.1F;
    o.sampling.seed = 5;
  };
  std::vector<EngineOptions> variants(7, plain_options());
  variants[0].kv_policy = {.policy = KvPolicy::kWindow, .window = 24, .sinks = 4};
  variants[1].kv_policy = {
      .policy = KvPolicy::kWindow, .window = 24, .sinks = 4, .rope_reindex = true};
  variants[2].k_type = variants[2].v_type = KvType::k8Bit;
  variants[3].n_threads = 4;
  variants[4].rows_per_pass = 3;
  variants[5].exact = false;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    for (const Change& change : {Change(), drawn}) {
      const std::vector<Shown> expected = mtp_texts(GetParam(), variants[i], change).shown;
      for (const std::uint32_t n : {1U, 5U}) {
        const MtpWork work = mtp_texts(GetParam(), mtp_options(GetParam(), n, variants[i]), change);
        EXPECT_EQ(work.shown, expected) << i << ", " << n;
        EXPECT_GT(work.stats.model_drafted_tokens, 20U) << i;
      }
    }
  }
  EngineOptions chosen = mtp_options(GetParam(), 5);
  chosen.speculation = SpeculationKind::kAuto;
  EXPECT_EQ(mtp_texts(GetParam(), chosen, drawn).shown,
            mtp_texts(GetParam(), plain_options(), drawn).shown);
}

INSTANTIATE_TEST_SUITE_P(All, MtpTest, testing::ValuesIn(kMtpModels),
                         [](const auto& model) { return std::string(model.param); });

TEST(MtpEngineTest, ATextIsTheSameInAnyBudget) {
  const std::string model = "glm4_moe";
  const std::vector<Shown> expected = mtp_texts(model, plain_options(), nullptr).shown;
  EngineOptions options = mtp_options(model, 3);
  options.max_context = 256;
  options.ram_budget_bytes = 20'000'000;
  auto opened = Engine::open(mtp_file(model, false), options);
  // The least in which a pass has room for drafts.
  while ((!opened.has_value() || (*opened)->plan().rows_per_pass <= options.max_drafts) &&
         options.ram_budget_bytes < 200'000'000) {
    options.ram_budget_bytes += 20'000;
    opened = Engine::open(mtp_file(model, false), options);
  }
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  Engine& engine = **opened;
  EXPECT_FALSE(engine.plan().residency.everything_resident);
  EXPECT_LE(engine.plan().memory.total_bytes(), options.ram_budget_bytes);
  ASSERT_NE(engine.plan().memory.find("draft_model_hidden"), nullptr);
  for (const RegionUse& use : engine.impl().arena->uses()) {
    EXPECT_TRUE(use.carved) << use.name;
  }
  EXPECT_EQ(mtp_texts(engine, nullptr).shown, expected);
  EXPECT_GT(engine.stats().model_accepted_tokens, 20U);
}

TEST(MtpEngineTest, FollowsSessionsThatAreLoadedForkedAndCut) {
  const std::string model = "deepseek_v3";
  const auto texts = [&](const EngineOptions& options) {
    const auto engine = open_mtp(model, options);
    std::vector<Shown> shown;
    Work work;
    const std::string path = temporary_path("mtp_test.session");
    auto first = engine->create_session().value();
    shown.push_back(generate(*engine, *first, kLearnedPrompts[0], nullptr, work));
    EXPECT_TRUE(first->save(path).ok());
    const auto fork = first->fork().value();
    if (options.max_drafts != 0) {
      const DraftModel& block = *engine->impl().draft_model;
      EXPECT_GT(block.n_rows(0), 60U);
      EXPECT_EQ(block.n_rows(1), block.n_rows(0));
    }
    shown.push_back(generate(*engine, *fork, " Then", nullptr, work));
    EXPECT_TRUE(first->truncate(first->length() / 2).ok());
    shown.push_back(generate(*engine, *first, " But", nullptr, work));
    first.reset();
    first = engine->create_session().value();
    EXPECT_TRUE(first->load(path).ok());
    shown.push_back(generate(*engine, *first, " So", nullptr, work));
    first.reset();
    first = engine->create_session().value();
    EXPECT_TRUE(first->load(path).ok());
    shown.push_back(generate(*engine, *first, {}, nullptr, work));
    return shown;
  };
  const std::vector<Shown> expected = texts(plain_options(2));
  for (const std::uint32_t n : {1U, 4U}) {
    EXPECT_EQ(texts(mtp_options(model, n, plain_options(2))), expected);
  }
}

// Rows of a long prompt are computed as they come, and a text goes on behind another's end.
TEST(MtpEngineTest, MembersOfAStepShareTheDrafts) {
  const std::string model = "glm4_moe";
  const auto texts = [&](const EngineOptions& options, EngineStats& stats) {
    const auto engine = open_mtp(model, options);
    const Members members = make_members(*engine, 5);
    std::vector<Generation*> all = generations_of(members);
    while (!all_finished(all)) EXPECT_TRUE(engine->step(all).has_value());
    stats = engine->stats();
    std::vector<std::string> list;
    for (const auto& member : members) list.push_back(member->text);
    return list;
  };
  EngineStats stats;
  const std::vector<std::string> expected = texts(plain_options(5), stats);
  for (const std::uint32_t n : {1U, 7U, 64U}) {
    EXPECT_EQ(texts(mtp_options(model, n, plain_options(5)), stats), expected);
    EXPECT_GT(stats.model_drafted_tokens, 0U);
  }
}

// Prompts that begin with the pages of another request, whose rows this one's block has not seen.
TEST(MtpEngineTest, FollowsSharedPromptsAndParkedGenerations) {
  const std::string model = "glm4_moe";
  const std::string prompt = std::string(kRepeated) + " " + kLearnedPrompts[0];
  const auto texts = [&](EngineOptions options, EngineStats& stats) {
    options.prefix_cache = true;
    options.max_context = 512;
    const auto engine = open_mtp(model, options);
    std::vector<std::string> list;
    Members alive;
    for (const bool parks : {false, true, false}) {
      GenerateOptions of_member;
      of_member.max_tokens = 40;
      of_member.sampling.temperature = 0.0F;
      of_member.prefix_key = "one";
      alive.push_back(std::make_unique<Member>(*engine, prompt, of_member));
      Generation* const generation = alive.back()->generation.get();
      if (parks) {
        for (int i = 0; i < 4; ++i) EXPECT_TRUE(engine->step({&generation, 1}).has_value());
        EXPECT_TRUE(generation->park(temporary_path("mtp_test.parked")).ok());
        EXPECT_TRUE(generation->resume().ok());
      }
      run_to_end(*engine, {&generation, 1});
      list.push_back(alive.back()->text);
    }
    stats = engine->stats();
    return list;
  };
  EngineStats stats;
  const std::vector<std::string> expected = texts(plain_options(3), stats);
  EXPECT_EQ(texts(mtp_options(model, 4, plain_options(3)), stats), expected);
  EXPECT_GT(stats.model_drafted_tokens, 20U);
}

TEST(MtpEngineTest, DraftingAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const auto engine = open_mtp("deepseek_v3", mtp_options("deepseek_v3", 6, plain_options(2)));
  Members members;
  for (std::size_t i = 0; i < 2; ++i) {
    members.push_back(
        std::make_unique<Member>(*engine, kLearnedPrompts[i], member_options(i, 120)));
    members.back()->text.reserve(4096);
  }
  std::vector<Generation*> all = generations_of(members);
  ASSERT_TRUE(engine->step(all).has_value());
  const std::uint64_t before = n_allocations();
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_EQ(n_allocations(), before);
  EXPECT_GT(engine->stats().model_drafted_tokens, 0U);
}

TEST(MtpEngineTest, BlocksStandBesideTheirModelAlone) {
  const std::string block = mtp_file("glm4_moe", true);
  const auto alone = Engine::open(block, plain_options());
  ASSERT_FALSE(alone.has_value());
  EXPECT_EQ(alone.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(alone.error().message(), HasSubstr(block + ": a block for multi-token prediction"));
  const auto other =
      Engine::open(mtp_file("deepseek_v3", false), mtp_options("glm4_moe", 2, plain_options()));
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message(),
              HasSubstr(block + ": predicts further tokens of a model of"));
}

}  // namespace
}  // namespace qsf
