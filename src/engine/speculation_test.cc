// SPDX-License-Identifier: MIT
//
// Speculation on the bundled model: texts, log probabilities, sessions and what callbacks saw are
// those without it, for every way to sample and to end, every KV cache and any number of drafts;
// and drafts are accepted, refused, counted and planned.

#include "engine/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "base/testing/temporary_path.h"
#include "engine/testing/drafted_text.h"
#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"
#include "grammar/grammar_engine.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

EngineOptions speculating(std::uint32_t max_drafts, EngineOptions options = step_options(1)) {
  options.speculation = max_drafts == 0 ? SpeculationKind::kOff : SpeculationKind::kLookup;
  options.max_drafts = max_drafts;
  return options;
}

// A text of period 5, whatever the model says.
struct PeriodicText {
  std::uint32_t n_drawn = 0;

  GenerateOptions options() {
    GenerateOptions options;
    options.max_tokens = 100;
    options.sampling.temperature = 0.0F;
    options.sampling.on_logits = [](std::span<float> logits, void* user) {
      logits[100 + static_cast<PeriodicText*>(user)->n_drawn++ % 5] = 1000.0F;
      return 0;
    };
    options.sampling.callback_user = this;
    return options;
  }
};

// A text, and one that goes on after it in the same session.
std::vector<Shown> two_texts(const EngineOptions& options, const Change& change, Work& work,
                             std::size_t most = 0) {
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const auto session = engine->create_session().value();
  std::vector<Shown> shown;
  for (const std::string_view prompt : {kRepeated, std::string_view(" And the king said: The")}) {
    shown.push_back(generate(*engine, *session, prompt, change, work, most));
  }
  return shown;
}

void expect_same(const EngineOptions& options, const Change& change, const char* name,
                 std::size_t most = 0) {
  SCOPED_TRACE(name);
  Work none;
  const std::vector<Shown> expected = two_texts(speculating(0, options), change, none, most);
  EXPECT_EQ(none.drafted, 0U);
  for (const std::uint32_t n : {1U, 4U, 15U, 64U}) {
    Work work;
    EXPECT_EQ(two_texts(speculating(n, options), change, work, most), expected) << n;
    EXPECT_GT(work.drafted, 0U) << n;
  }
}

TEST(SpeculationTest, ATextIsTheSameHoweverItIsSampled) {
  const EngineOptions options = step_options(1);
  expect_same(options, nullptr, "greedy");
  expect_same(
      options,
      [](GenerateOptions& o) {
        o.sampling.temperature = 0.8F;
        o.sampling.seed = 7;
      },
      "drawn");
  expect_same(
      options,
      [](GenerateOptions& o) {
        o.sampling.temperature = 0.6F;
        o.sampling.top_k = 0;
        o.sampling.typical_p = 0.9F;
        o.sampling.xtc_probability = 0.5F;
        o.sampling.seed = 3;
      },
      "typical and XTC");
  expect_same(
      options,
      [](GenerateOptions& o) {
        o.sampling.repeat_penalty = 1.3F;
        o.sampling.frequency_penalty = 0.2F;
        o.sampling.dry_multiplier = 0.8F;
      },
      "penalties");
  expect_same(
      options,
      [](GenerateOptions& o) {
        o.sampling.logit_bias = {{40, 2.0F}, {41, -3.0F}};
      },
      "biased");
  // A callback sees one row after the other.
  expect_same(
      options,
      [](GenerateOptions& o) {
        o.sampling.on_logits = [](std::span<float> logits, void* user) {
          auto& receiver = *static_cast<Receiver*>(user);
          logits[receiver.shown.tokens.size() % logits.size()] += 3.0F;
          return 0;
        };
        o.sampling.callback_user = o.user;
      },
      "callback");
}

TEST(SpeculationTest, ATextIsTheSameHoweverItEnds) {
  const EngineOptions options = step_options(1);
  for (std::uint32_t n = 1; n < 12; ++n) {
    expect_same(
        options, [n](GenerateOptions& o) { o.max_tokens = n + 4; }, "limit");
    expect_same(options, nullptr, "callback", n + 4);
  }
  expect_same(
      options, [](GenerateOptions& o) { o.stop = {"son"}; }, "stop text");
  expect_same(
      options, [](GenerateOptions& o) { o.stop = {"was a fool. There"}; }, "long stop text");
  expect_same(
      options,
      [](GenerateOptions& o) {
        o.end_tokens = {43, 44, 45, 46};
      },
      "end tokens");
  EngineOptions full = options;
  full.max_context = 128;
  const auto beyond = [](GenerateOptions& o) { o.max_tokens = 1000; };
  for (const std::uint32_t n : {1U, 4U, 64U}) {
    Work work;
    const auto shown = [&](std::uint32_t drafts) {
      const std::unique_ptr<Engine> engine = open_bundled(speculating(drafts, full));
      const auto session = engine->create_session().value();
      return generate(*engine, *session, kRepeated, beyond, work);
    };
    const Shown expected = shown(0);
    EXPECT_EQ(shown(n), expected);
    EXPECT_GT(work.drafted, 0U);
  }
}

TEST(SpeculationTest, ATextIsTheSameWithAnyKvCacheAndAnyPlaceOfTheWeights) {
  std::vector<EngineOptions> variants(7, step_options(1));
  variants[0].kv_policy = {.policy = KvPolicy::kWindow, .window = 24, .sinks = 4};
  variants[1].kv_policy = {
      .policy = KvPolicy::kWindow, .window = 24, .sinks = 4, .rope_reindex = true};
  variants[2].k_type = variants[2].v_type = KvType::k4Bit;
  variants[3].kv_spill_path = temporary_path("speculation_test_kv");
  variants[4].n_threads = 4;
  variants[5].rows_per_pass = 3;
  variants[6].attention = AttentionKind::kChunked;
  variants[6].prompt_mask.chunk = 16;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    expect_same(variants[i], nullptr, std::to_string(i).c_str());
  }
  Work work;
  const std::vector<Shown> expected = two_texts(step_options(1), nullptr, work);
  EngineOptions streamed = speculating(15, step_options(1, 16));
  streamed.ram_budget_bytes = smallest_budget(kBundled, streamed);
  // The heap of this process may have grown.
  while (!Engine::open(kBundled, streamed).has_value()) streamed.ram_budget_bytes += 100'000;
  EXPECT_FALSE(open_bundled(streamed)->plan().residency.everything_resident);
  EXPECT_EQ(two_texts(streamed, nullptr, work), expected);
  EXPECT_GT(work.accepted, 0U);
}

TEST(SpeculationTest, LengthsChosenByTheClockChangeNoText) {
  constexpr int kMostTries = 50;
  Work work;
  const std::vector<Shown> expected = two_texts(step_options(1), nullptr, work);
  EngineOptions options = step_options(1);
  options.speculation = SpeculationKind::kAuto;
  for (const bool streamed : {false, true}) {
    if (streamed) options.ram_budget_bytes = smallest_budget(kBundled, options) + (4U << 20U);
    const std::uint64_t before = work.drafted;
    // On a busy machine a pass with drafts may seem to take too long for all of a text.
    for (int i = 0; i < kMostTries && work.drafted == before; ++i) {
      EXPECT_EQ(two_texts(options, nullptr, work), expected);
    }
    EXPECT_GT(work.drafted, before);
  }
}

TEST(SpeculationTest, AGrammarAllowsWhatItDoesWithoutDrafts) {
  const auto text = [](std::uint32_t n_drafts, Work& work) {
    EngineOptions options = speculating(n_drafts);
    options.grammar = {.max_grammars = 1, .mask_bytes = std::uint64_t{1} << 20U};
    const std::unique_ptr<Engine> engine = open_bundled(options);
    const auto session = engine->create_session().value();
    const auto grammar = Grammar::create(*engine->grammars(), GrammarKind::kGbnf,
                                         "root ::= (\" was wise\" | \" was brave\" | \",\")+");
    EXPECT_TRUE(grammar.has_value());
    return generate(
        *engine, *session, kRepeated, [&](GenerateOptions& o) { o.sampling.grammar = *grammar; },
        work);
  };
  Work work;
  const Shown expected = text(0, work);
  EXPECT_FALSE(expected.tokens.empty());
  for (const std::uint32_t n : {1U, 6U, 15U}) EXPECT_EQ(text(n, work), expected);
  EXPECT_GT(work.accepted, 0U);
  EXPECT_LT(work.accepted, work.drafted);
}

TEST(SpeculationTest, MembersOfAStepShareTheDrafts) {
  const std::vector<std::string> expected = texts_alone(5);
  for (const std::uint32_t n : {1U, 7U, 64U}) {
    const std::unique_ptr<Engine> engine = open_bundled(speculating(n, step_options(5)));
    const Members members = make_members(*engine, 5);
    std::vector<Generation*> all = generations_of(members);
    std::size_t n_drafted = 0;
    while (!all_finished(all)) {
      const Result<StepCounts> counts = engine->step(all);
      ASSERT_TRUE(counts.has_value());
      EXPECT_LE(counts->drafted_rows, n);
      EXPECT_LE(counts->accepted_rows, counts->drafted_rows);
      n_drafted += counts->drafted_rows;
    }
    EXPECT_GT(n_drafted, 0U);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(members[i]->text, expected[i]) << n;
  }
}

// The rows of a prompt take long: no draft is added to them.
TEST(SpeculationTest, APassWithAPromptHasNoDrafts) {
  const std::unique_ptr<Engine> engine = open_bundled(speculating(15, step_options(2)));
  PeriodicText text;
  Member member(*engine, kRepeated, text.options());
  std::vector<Generation*> all = {member.generation.get()};
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_GT(engine->stats().drafted_tokens, 0U);
  Member other(*engine, 1);
  all.push_back(other.generation.get());
  const Result<StepCounts> counts = engine->step(all);
  ASSERT_TRUE(counts.has_value());
  EXPECT_GT(counts->prompt_rows, 0U);
  EXPECT_EQ(counts->generated_rows, 1U);
  EXPECT_EQ(counts->drafted_rows, 0U);
  EXPECT_GT(engine->step(all)->drafted_rows, 0U);
}

// An answer that another request of the key was given is drafted, and no text depends on it.
TEST(SpeculationTest, AnswersAreCopiedWithinAKeyAlone) {
  EngineOptions options = speculating(15, step_options(1));
  options.prefix_cache = true;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  std::vector<std::string> texts;
  std::vector<std::uint32_t> accepted;
  for (const char* const key : {"one", "two", "one", ""}) {
    GenerateOptions of_member;
    of_member.max_tokens = 60;
    of_member.sampling.temperature = 0.0F;
    if (*key != '\0') of_member.prefix_key = key;
    Member member(*engine, "The fox said to the raven that", of_member);
    Generation* const generation = member.generation.get();
    run_to_end(*engine, {&generation, 1});
    texts.push_back(member.text);
    accepted.push_back(generation->result().accepted_tokens);
  }
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front());
  EXPECT_EQ(accepted[1], accepted[0]);
  EXPECT_GT(accepted[2], 50U);
  EXPECT_EQ(accepted[3], accepted[0]);
}

// Pages of the KV cache run out: who has none waits, and nobody for ever.
TEST(SpeculationTest, MembersWaitForPagesAsWithoutDrafts) {
  const auto texts = [](std::uint32_t n_drafts) {
    EngineOptions options = speculating(n_drafts, step_options(3));
    options.max_context = options.kv_positions = 192;
    const std::unique_ptr<Engine> engine = open_bundled(options);
    Members members;
    for (std::size_t i = 0; i < 3; ++i) {
      GenerateOptions of_member = member_options(i, 90);
      of_member.reserve_tokens = 1;
      members.push_back(std::make_unique<Member>(*engine, kRepeated.substr(8 * i), of_member));
    }
    std::vector<Generation*> all = generations_of(members);
    bool waited = false;
    for (int step = 0; !all_finished(all) && step < 1000; ++step) {
      const Result<StepCounts> counts = engine->step(all);
      EXPECT_TRUE(counts.has_value());
      waited = waited || counts->n_waiting > 0;
      // What has ended gives its pages back.
      for (const auto& member : members) {
        EXPECT_TRUE(!member->generation->finished() || member->session->truncate(0).ok());
      }
      if (counts->n_waiting > 0 && counts->generated_rows == 0) {
        for (Generation* const generation : all) {
          if (!generation->finished()) return std::vector<std::string>{"all wait"};
        }
      }
    }
    EXPECT_TRUE(waited);
    std::vector<std::string> done;
    for (const auto& member : members) done.push_back(member->text);
    return done;
  };
  const std::vector<std::string> expected = texts(0);
  for (const std::uint32_t n : {3U, 15U, 64U}) EXPECT_EQ(texts(n), expected) << n;
}

TEST(SpeculationTest, ACancellationEndsATextWhereItDoesWithoutDrafts) {
  for (const bool by_engine : {false, true}) {
    const CancelledText expected = cancel_text(*open_bundled(speculating(0)), by_engine);
    EXPECT_EQ(expected.n_shown, 9U);
    EXPECT_EQ(cancel_text(*open_bundled(speculating(15)), by_engine), expected);
  }
}

TEST(SpeculationTest, PassesYieldSeveralTokensWhereATextRepeatsItself) {
  const std::unique_ptr<Engine> engine = open_bundled(speculating(15));
  PeriodicText text;
  Member member(*engine, kRepeated, text.options());
  Generation* const generation = member.generation.get();
  std::size_t n_passes = 0;
  while (!generation->finished()) {
    const std::uint32_t n_left = 100 - generation->result().generated_tokens;
    const Result<StepCounts> counts = engine->step({&generation, 1});
    ASSERT_TRUE(counts.has_value());
    EXPECT_LT(counts->drafted_rows, n_left);  // no more than can be generated
    ++n_passes;
  }
  EXPECT_EQ(generation->result().generated_tokens, 100U);
  EXPECT_LE(n_passes, 1U + 6U + 100U / 16U + 1U);  // prompt, a period and one more, drafts
  EXPECT_EQ(engine->stats().generated_tokens, generation->result().generated_tokens - 1);
}

TEST(SpeculationTest, DraftingAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::unique_ptr<Engine> engine = open_bundled(speculating(15, step_options(2)));
  Members members;
  for (std::size_t i = 0; i < 2; ++i) {
    GenerateOptions options = member_options(i, 60);
    options.sampling.temperature = 0.0F;
    members.push_back(std::make_unique<Member>(*engine, kRepeated, options));
    members.back()->text.reserve(4096);
  }
  std::vector<Generation*> all = generations_of(members);
  ASSERT_TRUE(engine->step(all).has_value());
  const std::uint64_t before = n_allocations();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_EQ(n_allocations(), before);
  EXPECT_GT(engine->stats().drafted_tokens, 0U);
}

TEST(SpeculationTest, IsPlannedAndLeftOutWhereItDoesNotFit) {
  EngineOptions options = step_options(1);
  options.speculation = SpeculationKind::kAuto;
  EXPECT_EQ(open_bundled(options)->plan().max_drafts, 15U);
  options.max_drafts = 3;
  EXPECT_EQ(open_bundled(options)->plan().max_drafts, 3U);
  options.max_drafts = 0;
}

TEST(SpeculationTest, TakesNoMemoryThatAPlanCannotDoWithout) {
  const StreamedModel model("speculation", {.n_layers = 12});
  const auto plan = [&](EngineOptions options, SpeculationKind kind) {
    options.speculation = kind;
    options.max_drafts = kind == SpeculationKind::kOff ? 0 : 64;
    return Engine::plan_file(model.path(), options);
  };
  constexpr std::uint64_t kRoom = 80'000;  // the memory of the process grows between two plans
  EngineOptions options = step_options(1);
  options.ram_budget_bytes = smallest_budget(model.path(), options) - 600'000;
  while (!plan(options, SpeculationKind::kOff).has_value()) options.ram_budget_bytes += 20'000;
  options.ram_budget_bytes += kRoom;
  EXPECT_FALSE(plan(options, SpeculationKind::kLookup).has_value());
  EXPECT_EQ(plan(options, SpeculationKind::kAuto)->max_drafts, 0U);
  // Nor is a model streamed that is resident without it.
  while (!plan(options, SpeculationKind::kOff)->residency.everything_resident) {
    options.ram_budget_bytes += 20'000;
  }
  options.ram_budget_bytes += kRoom;
  EXPECT_FALSE(plan(options, SpeculationKind::kLookup)->residency.everything_resident);
  EXPECT_TRUE(plan(options, SpeculationKind::kAuto)->residency.everything_resident);
  options.ram_budget_bytes *= 2;
  EXPECT_GT(plan(options, SpeculationKind::kAuto)->max_drafts, 0U);
}

TEST(SpeculationTest, IsOffOrRefusedWhereRowsCannotBeTakenBack) {
  EngineOptions options = step_options(1);
  options.kv_policy = {.policy = KvPolicy::kH2o, .window = 16, .sinks = 2, .heavy = 8};
  options.speculation = SpeculationKind::kAuto;
  EXPECT_EQ(open_bundled(options)->plan().max_drafts, 0U);
  options.speculation = SpeculationKind::kLookup;
  const auto refused = Engine::open(kBundled, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("speculation: kv policy h2o"));
}

}  // namespace
}  // namespace qsf
