// SPDX-License-Identifier: MIT
//
// Draft models on the bundled model: one that drafts for itself, whose drafts are all accepted, and
// one of random weights, whose drafts are refused. Texts, sessions and steps are those without;
// memory is planned; other vocabularies and damaged files are refused.

#include "engine/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "base/testing/temporary_path.h"
#include "engine/speculation.h"
#include "engine/testing/drafted_text.h"
#include "engine/testing/step_members.h"
#include "engine/testing/streamed_model.h"
#include "format/qsf_reader.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using namespace testing_support;

const std::vector<std::byte>& bundled_tokenizer() {
  static const std::vector<std::byte> bytes =
      QsfReader::open(kBundled).value().read_tokenizer().value();
  return bytes;
}

StreamedShape random_shape(ByteSpan tokenizer = bundled_tokenizer()) {
  return {.n_layers = 2,
          .hidden = 64,
          .ffn = 128,
          .n_vocab = QsfReader::open(kBundled).value().spec().n_vocab,
          .tokenizer = tokenizer};
}

constexpr TokenId kEndOfText = 2;  // of the bundled model

// Random weights with the bundled model's vocabulary.
const std::string& random_model() {
  static const StreamedModel model("draft_model", random_shape());
  return model.path();
}

EngineOptions drafting_by(const std::string& model, std::uint32_t max_drafts,
                          EngineOptions options = step_options(1)) {
  options.speculation = SpeculationKind::kDraft;
  options.draft_model_path = model;
  options.max_drafts = max_drafts;
  return options;
}

// Two texts of one session, and what the draft model made of them.
struct ModelWork {
  std::vector<Shown> shown;
  EngineStats stats;
};

ModelWork texts_with(const EngineOptions& options, const Change& change) {
  const auto opened = Engine::open(kBundled, options);
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  if (!opened.has_value()) return {};
  Engine* const engine = opened->get();
  const auto session = engine->create_session().value();
  ModelWork work;
  Work counts;
  for (const std::string_view prompt :
       {std::string_view("A poor woodcutter lived with his wife and his two children. One day he"),
        std::string_view(" And the king said: The")}) {
    work.shown.push_back(generate(*engine, *session, prompt, change, counts));
  }
  work.stats = engine->stats();
  return work;
}

void expect_same_text(EngineOptions options, const Change& change, const char* name,
                      bool expects_all = true) {
  SCOPED_TRACE(name);
  // Else rows of a prompt and generated ones have other bits, and a draft may take one for the
  // other.
  options.exact = options.exact || expects_all;
  const std::vector<Shown> expected = texts_with(options, change).shown;
  for (const std::uint32_t n : {1U, 15U}) {
    const ModelWork own = texts_with(drafting_by(kBundled, n, options), change);
    EXPECT_EQ(own.shown, expected) << n;
    EXPECT_GT(own.stats.model_drafted_tokens, 20U) << n;
    if (expects_all) {
      EXPECT_EQ(own.stats.model_accepted_tokens, own.stats.model_drafted_tokens) << n;
    }
    EXPECT_GT(own.stats.draft_ns, 0U);
    if (n == 1) continue;
    const ModelWork other = texts_with(drafting_by(random_model(), n, options), change);
    EXPECT_EQ(other.shown, expected) << n;
    EXPECT_GT(other.stats.model_drafted_tokens, 20U) << n;
    EXPECT_LT(other.stats.model_accepted_tokens, other.stats.model_drafted_tokens / 2) << n;
  }
}

TEST(DraftModelTest, OneThatDraftsForItselfIsAlwaysRight) {
  expect_same_text(step_options(1), nullptr, "greedy");
  expect_same_text(
      step_options(1),
      [](GenerateOptions& o) {
        o.sampling.temperature = 1.0F;
        o.sampling.top_p = 1.0F;
        o.sampling.seed = 7;
      },
      "drawn");
  expect_same_text(
      step_options(1),
      [](GenerateOptions& o) {
        o.sampling.temperature = 0.8F;
        o.sampling.top_k = 0;
        o.sampling.typical_p = 0.9F;
        o.sampling.xtc_probability = 0.5F;
        o.sampling.seed = 3;
      },
      "typical and XTC");
  expect_same_text(
      step_options(1),
      [](GenerateOptions& o) {
        o.sampling.temperature = 0.7F;
        o.sampling.repeat_penalty = 1.3F;
        o.sampling.frequency_penalty = 0.2F;
        o.sampling.dry_multiplier = 0.8F;
        o.sampling.logit_bias = {{40, 2.0F}, {41, -3.0F}, {kEndOfText, 50.0F}};
        o.ignore_end_of_text = true;
      },
      "penalties");
}

// Nothing is drafted behind the end.
TEST(DraftModelTest, DraftsEndWithTheText) {
  const ModelWork own = texts_with(drafting_by(kBundled, 15), [](GenerateOptions& o) {
    o.sampling.temperature = 0.8F;
    o.end_tokens = {300, 310, 320, 330, 340, 350, 360, 370, 380, 390};
    for (const TokenId token : o.end_tokens) o.sampling.logit_bias.push_back({token, 3.0F});
  });
  EXPECT_EQ(own.shown.back().reason, StopReason::kEndOfText);
  EXPECT_GT(own.stats.model_drafted_tokens, 2U);
  EXPECT_EQ(own.stats.model_accepted_tokens, own.stats.model_drafted_tokens);
}

TEST(DraftModelTest, ATextIsTheSameWithAnyKvCacheAndAnyWork) {
  std::vector<EngineOptions> variants(8, step_options(1));
  variants[0].kv_policy = {.policy = KvPolicy::kWindow, .window = 24, .sinks = 4};
  variants[1].kv_policy = {
      .policy = KvPolicy::kWindow, .window = 24, .sinks = 4, .rope_reindex = true};
  variants[2].k_type = variants[2].v_type = KvType::k4Bit;
  variants[3].kv_spill_path = temporary_path("draft_model_test_kv");
  variants[4].n_threads = 4;
  variants[5].rows_per_pass = 3;
  variants[6].exact = true;
  variants[7].attention = AttentionKind::kChunked;  // which the draft model does not follow
  variants[7].prompt_mask.chunk = 16;
  const Change drawn = [](GenerateOptions& o) {
    o.sampling.temperature = 0.9F;
    o.sampling.seed = 5;
  };
  for (std::size_t i = 0; i < variants.size(); ++i) {
    expect_same_text(variants[i], drawn, std::to_string(i).c_str(), i != 7);
  }
}

TEST(DraftModelTest, ATextIsTheSameInAnyBudget) {
  const std::vector<Shown> expected = texts_with(step_options(1), nullptr).shown;
  EngineOptions options = drafting_by(random_model(), 15, step_options(1, 16));
  options.ram_budget_bytes = smallest_budget(kBundled, options);
  while (!Engine::open(kBundled, options).has_value()) options.ram_budget_bytes += 100'000;
  const EnginePlan plan = open_bundled(options)->plan();
  EXPECT_FALSE(plan.residency.everything_resident);
  EXPECT_LE(plan.memory.total_bytes(), options.ram_budget_bytes);
  EXPECT_THAT(plan.steps, testing::Contains(HasSubstr("draft model: takes")));
  EXPECT_EQ(texts_with(options, nullptr).shown, expected);
}

TEST(DraftModelTest, LengthsChosenByTheClockChangeNoText) {
  const std::vector<Shown> expected = texts_with(step_options(1), nullptr).shown;
  EngineOptions options = step_options(1);
  options.speculation = SpeculationKind::kAuto;
  options.draft_model_path = kBundled;
  EXPECT_EQ(texts_with(options, nullptr).shown, expected);
  // A small one seems to pay at first, but perhaps not on a busy machine.
  constexpr int kMostTries = 50;
  options.draft_model_path = random_model();
  std::uint64_t n_drafted = 0;
  for (int i = 0; i < kMostTries && n_drafted == 0; ++i) {
    const ModelWork work = texts_with(options, nullptr);
    EXPECT_EQ(work.shown, expected);
    n_drafted = work.stats.model_drafted_tokens;
  }
  EXPECT_GT(n_drafted, 0U);
}

TEST(DraftModelTest, AGrammarIsLeftOutOfDrafts) {
  const auto text = [](EngineOptions options, Work& work) {
    options.grammar = {.max_grammars = 1, .mask_bytes = std::uint64_t{1} << 20U};
    const std::unique_ptr<Engine> engine = open_bundled(options);
    const auto session = engine->create_session().value();
    const auto grammar = Grammar::create(*engine->grammars(), GrammarKind::kGbnf,
                                         "root ::= (\" was wise\" | \" was brave\" | \",\")+");
    EXPECT_TRUE(grammar.has_value());
    return generate(
        *engine, *session, kRepeated,
        [&](GenerateOptions& o) {
          o.sampling.grammar = *grammar;
          o.sampling.temperature = 0.8F;
        },
        work);
  };
  Work work;
  const Shown expected = text(step_options(1), work);
  for (const std::uint32_t n : {1U, 15U}) EXPECT_EQ(text(drafting_by(kBundled, n), work), expected);
  EXPECT_GT(work.drafted, work.accepted);
}

TEST(DraftModelTest, MembersOfAStepShareTheDrafts) {
  const std::vector<std::string> expected = texts_alone(5);
  for (const std::string& model : {kBundled, random_model()}) {
    for (const std::uint32_t n : {1U, 7U, 64U}) {
      const std::unique_ptr<Engine> engine = open_bundled(drafting_by(model, n, step_options(5)));
      const Members members = make_members(*engine, 5);
      std::vector<Generation*> all = generations_of(members);
      while (!all_finished(all)) {
        const Result<StepCounts> counts = engine->step(all);
        ASSERT_TRUE(counts.has_value());
        EXPECT_LE(counts->drafted_rows, n);
      }
      const EngineStats stats = engine->stats();
      EXPECT_GT(stats.model_drafted_tokens, 0U);
      if (model == kBundled) {
        EXPECT_EQ(stats.model_accepted_tokens, stats.model_drafted_tokens);
      }
      for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(members[i]->text, expected[i]) << n;
    }
  }
}

// The rows of the draft model are computed again where it has none, and shared where it can be.
TEST(DraftModelTest, FollowsSessionsThatAreLoadedForkedAndCut) {
  const auto texts = [](const EngineOptions& options, bool& all_accepted) {
    const std::unique_ptr<Engine> engine = open_bundled(options);
    std::vector<Shown> shown;
    Work work;
    const std::string path = temporary_path("draft_model_test.session");
    auto first = engine->create_session().value();
    shown.push_back(generate(*engine, *first, member_prompt(3), nullptr, work));
    EXPECT_TRUE(first->save(path).ok());
    const std::unique_ptr<Session> fork = first->fork().value();
    const std::uint64_t before = engine->stats().draft_ns;
    if (options.max_drafts != 0) {
      const DraftModel& model = *engine->impl().draft_model;
      EXPECT_GT(model.n_rows(0), 20U);
      EXPECT_EQ(model.n_rows(1), model.n_rows(0));
    }
    shown.push_back(generate(*engine, *fork, " Then", nullptr, work));
    EXPECT_TRUE(first->truncate(first->length() / 2).ok());
    shown.push_back(generate(*engine, *first, " But", nullptr, work));
    first.reset();
    first = engine->create_session().value();
    EXPECT_TRUE(first->load(path).ok());
    shown.push_back(generate(*engine, *first, " Now", nullptr, work));
    EXPECT_EQ(engine->stats().draft_ns > before, options.max_drafts != 0);
    const EngineStats stats = engine->stats();
    all_accepted = stats.model_accepted_tokens * 20 >= stats.model_drafted_tokens * 19;
    return shown;
  };
  bool all_accepted = false;
  const std::vector<Shown> expected = texts(step_options(2), all_accepted);
  EXPECT_EQ(texts(drafting_by(random_model(), 7, step_options(2)), all_accepted), expected);
  EXPECT_FALSE(all_accepted);
  EXPECT_EQ(texts(drafting_by(kBundled, 7, step_options(2)), all_accepted), expected);
  EXPECT_TRUE(all_accepted);  // but for rows of another role
}

// A window keeps fewer rows of the draft model, whose passes are smaller, than of the model.
TEST(DraftModelTest, ComputesRowsAgainThatAWindowHasEvicted) {
  EngineOptions options = step_options(1);
  options.max_context = 600;
  options.kv_policy = {.policy = KvPolicy::kWindow, .window = 24, .sinks = 4};
  const auto texts = [](const EngineOptions& with) {
    const std::unique_ptr<Engine> engine = open_bundled(with);
    const auto session = engine->create_session().value();
    std::vector<Shown> shown;
    Work work;
    std::string prompt;
    for (int i = 0; i < 6; ++i) prompt += kRepeated;
    shown.push_back(generate(*engine, *session, prompt, nullptr, work));
    const std::size_t n_kept = session->length() - 200;
    EXPECT_TRUE(session->truncate(n_kept).ok());
    const bool drafts = engine->impl().draft_model != nullptr;
    const std::uint64_t before = drafts ? engine->impl().draft_model->n_computed() : 0;
    shown.push_back(generate(*engine, *session, " Once a fox", nullptr, work));
    if (drafts) {
      EXPECT_GT(engine->impl().draft_model->n_computed() - before, n_kept);
      const EngineStats stats = engine->stats();
      EXPECT_GT(stats.model_accepted_tokens * 20, stats.model_drafted_tokens * 19);
    }
    return shown;
  };
  EXPECT_EQ(texts(drafting_by(kBundled, 3, options)), texts(options));
}

TEST(DraftModelTest, FollowsAParkedGeneration) {
  const auto text = [](const EngineOptions& options, EngineStats& stats) {
    const std::unique_ptr<Engine> engine = open_bundled(options);
    Member member(*engine, 4);
    Generation* const generation = member.generation.get();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine->step({&generation, 1}).has_value());
    EXPECT_TRUE(generation->park(temporary_path("draft_model_test.parked")).ok());
    EXPECT_TRUE(generation->resume().ok());
    run_to_end(*engine, {&generation, 1});
    stats = engine->stats();
    return member.text;
  };
  EngineStats stats;
  const std::string expected = text(step_options(1), stats);
  EXPECT_EQ(text(drafting_by(kBundled, 3), stats), expected);
  EXPECT_GT(stats.model_drafted_tokens, 0U);
  EXPECT_EQ(stats.model_accepted_tokens, stats.model_drafted_tokens);
}

// Requests of a key begin with the rows of each other, of those that have ended too; those of
// another key compute their own.
TEST(DraftModelTest, SharesRowsWithinAKeyAlone) {
  EngineOptions options = drafting_by(kBundled, 3, step_options(3));
  options.prefix_cache = true;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::string prompt = std::string(kRepeated) + std::string(kRepeated);
  const DraftModel& model = *engine->impl().draft_model;
  const std::size_t n_prompt = encode(*engine, prompt).size();
  Members alive;
  const auto n_computed = [&](const char* key, bool stays) {
    const std::uint64_t before = model.n_computed();
    GenerateOptions of_member;
    of_member.max_tokens = 9;
    of_member.sampling.temperature = 0.0F;
    of_member.prefix_key = key;
    alive.push_back(std::make_unique<Member>(*engine, prompt, of_member));
    Generation* const generation = alive.back()->generation.get();
    run_to_end(*engine, {&generation, 1});
    if (!stays) alive.pop_back();
    return model.n_computed() - before;
  };
  EXPECT_GT(n_computed("one", true), n_prompt);
  EXPECT_LT(n_computed("one", false), n_prompt / 2);  // of the one that stays
  EXPECT_LT(n_computed("one", false), n_prompt / 2);  // of itself
  EXPECT_GT(n_computed("two", true), n_prompt);
  EXPECT_GT(n_computed("", true), n_prompt);
}

// More texts than the pages hold: whoever drafted longest ago gives its pages back.
TEST(DraftModelTest, TakesPagesFromTheOldestSequence) {
  EngineOptions options = drafting_by(kBundled, 3, step_options(4));
  options.max_context = options.kv_positions = 192;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::size_t i = 0; i < 4; ++i) {
    Work work;
    sessions.push_back(engine->create_session().value());
    Receiver receiver;
    const auto change = [](GenerateOptions& o) { o.reserve_tokens = 1; };
    const auto result = sessions.back()->generate(encode(*engine, kRepeated.substr(8 * i)),
                                                  receiving(receiver, change));
    ASSERT_TRUE(result.has_value());
    ASSERT_TRUE(sessions.back()->truncate(0).ok());
  }
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.model_accepted_tokens, stats.model_drafted_tokens);
  const DraftModel& model = *engine->impl().draft_model;
  EXPECT_EQ(model.n_rows(0), 0U);
  EXPECT_GT(model.n_rows(3), 64U);
}

TEST(DraftModelTest, ACancellationEndsATextWhereItDoesWithoutDrafts) {
  for (const bool by_engine : {false, true}) {
    const CancelledText expected = cancel_text(*open_bundled(step_options(1)), by_engine);
    EXPECT_EQ(cancel_text(*open_bundled(drafting_by(kBundled, 15)), by_engine), expected);
  }
}

TEST(DraftModelTest, DraftingAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::unique_ptr<Engine> engine =
      open_bundled(drafting_by(random_model(), 15, step_options(2)));
  Members members;
  for (std::size_t i = 0; i < 2; ++i) {
    members.push_back(std::make_unique<Member>(*engine, kRepeated, member_options(i, 60)));
    members.back()->text.reserve(4096);
  }
  std::vector<Generation*> all = generations_of(members);
  ASSERT_TRUE(engine->step(all).has_value());
  const std::uint64_t before = n_allocations();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_EQ(n_allocations(), before);
  EXPECT_GT(engine->stats().model_drafted_tokens, 0U);
}

TEST(DraftModelTest, ItsMemoryIsPlanned) {
  const std::unique_ptr<Engine> engine = open_bundled(drafting_by(random_model(), 4));
  const MemoryPlan& memory = engine->plan().memory;
  const std::uint64_t weights = QsfReader::open(random_model()).value().file().size_bytes();
  ASSERT_NE(memory.find("draft_model_weights"), nullptr);
  EXPECT_GT(memory.find("draft_model_weights")->bytes, weights / 2);
  for (const char* const name :
       {"draft_model_kv_cache", "draft_model_kv_tables", "draft_model_rows_hidden",
        "draft_model_scratch", "draft_model_logits", "draft_model_tokens",
        "draft_model_directories"}) {
    EXPECT_NE(memory.find(name), nullptr) << name;
  }
  for (const RegionUse& use : engine->impl().arena->uses()) {
    EXPECT_TRUE(use.carved) << use.name;
  }
  EXPECT_EQ(open_bundled(step_options(1))->plan().memory.find("draft_model_weights"), nullptr);
}

// kAuto leaves a draft model out that does not fit, or for whose memory a model would be streamed.
TEST(DraftModelTest, TakesNoMemoryThatAPlanCannotDoWithout) {
  const StreamedModel model("drafted", [] {
    StreamedShape shape = random_shape();
    shape.n_layers = 12;
    shape.hidden = 192;
    shape.ffn = 384;
    return shape;
  }());
  const auto plan = [&](EngineOptions options, SpeculationKind kind) {
    options.speculation = kind;
    if (kind == SpeculationKind::kDraft || kind == SpeculationKind::kAuto) {
      options.draft_model_path = random_model();
    }
    options.max_drafts = kind == SpeculationKind::kOff ? 0 : 1;
    return Engine::plan_file(model.path(), options);
  };
  const auto drafts = [](const Result<EnginePlan>& of) {
    return of->memory.find("draft_model_weights") != nullptr;
  };
  // The memory of the process grows between two plans; the draft model takes 1.6 MB.
  constexpr std::uint64_t kRoom = 500'000;
  EngineOptions options = step_options(1);
  options.ram_budget_bytes = smallest_budget(model.path(), options) - 600'000;
  while (!plan(options, SpeculationKind::kLookup).has_value()) options.ram_budget_bytes += 20'000;
  options.ram_budget_bytes += kRoom;
  EXPECT_THAT(plan(options, SpeculationKind::kDraft).error().message(), HasSubstr("needs"));
  ASSERT_TRUE(plan(options, SpeculationKind::kAuto).has_value());
  EXPECT_FALSE(drafts(plan(options, SpeculationKind::kAuto)));
  while (!plan(options, SpeculationKind::kLookup)->residency.everything_resident) {
    options.ram_budget_bytes += 20'000;
  }
  options.ram_budget_bytes += kRoom;
  EXPECT_FALSE(drafts(plan(options, SpeculationKind::kAuto)));
  EXPECT_TRUE(plan(options, SpeculationKind::kAuto)->residency.everything_resident);
  EXPECT_FALSE(plan(options, SpeculationKind::kDraft)->residency.everything_resident);
  EXPECT_TRUE(drafts(plan(options, SpeculationKind::kDraft)));
  options.ram_budget_bytes *= 2;
  EXPECT_TRUE(drafts(plan(options, SpeculationKind::kAuto)));
  EXPECT_TRUE(plan(options, SpeculationKind::kAuto)->residency.everything_resident);
}

std::string refusal(const EngineOptions& options) {
  const auto engine = Engine::open(kBundled, options);
  EXPECT_FALSE(engine.has_value());
  return engine.has_value() ? std::string() : std::string(engine.error().message());
}

TEST(DraftModelTest, AnotherVocabularyIsRefused) {
  std::vector<std::byte> tokenizer = bundled_tokenizer();
  const SectionView section = SectionView::parse(tokenizer).value();
  constexpr TokenId kChanged = 1000;
  const std::string text(section.token_text(kChanged));
  const std::size_t at = static_cast<std::size_t>(section.token_text(kChanged).data() -
                                                  reinterpret_cast<const char*>(tokenizer.data()));
  tokenizer[at + text.size() - 1] = std::byte{'Q'};
  const StreamedModel changed("draft_vocabulary", random_shape(tokenizer));
  const std::string message = refusal(drafting_by(changed.path(), 4));
  EXPECT_THAT(message,
              HasSubstr("draft model " + changed.path() + ": another vocabulary: token 1000 is"));
  EXPECT_THAT(message, HasSubstr("expected"));
  EXPECT_THAT(message, HasSubstr(kBundled));
  const StreamedModel none("draft_without", random_shape({}));
  EXPECT_THAT(refusal(drafting_by(none.path(), 4)),
              HasSubstr(none.path() + " has no tokenizer, so the vocabularies"));
}

TEST(DraftModelTest, DamagedFilesAreRefused) {
  const std::vector<std::byte> sound = bytes_of_file(random_model());
  const std::string path = temporary_path("draft_model_test_damaged.qsf");
  const auto refused = [&](const std::vector<std::byte>& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return refusal(drafting_by(path, 4));
  };
  for (std::size_t part = 1; part < 8; ++part) {
    std::vector<std::byte> bytes = sound;
    bytes[bytes.size() * part / 8] ^= std::byte{0x40};
    const auto engine = refused(bytes);
    EXPECT_THAT(engine, HasSubstr("draft model")) << part;
    EXPECT_THAT(engine, HasSubstr(path)) << part;
    bytes.resize(bytes.size() * part / 8);
    EXPECT_THAT(refused(bytes), HasSubstr("draft model")) << part;
  }
  std::filesystem::remove(path);
  EXPECT_THAT(refusal(drafting_by(path, 4)), HasSubstr(path));
}

TEST(DraftModelTest, OptionsThatContradictEachOtherAreRefused) {
  EXPECT_THAT(refusal(drafting_by("", 4)), HasSubstr("there is no draft model"));
  EngineOptions options = drafting_by(random_model(), 4);
  options.speculation = SpeculationKind::kLookup;
  EXPECT_THAT(refusal(options), HasSubstr("needs speculation auto or draft"));
  options = drafting_by(random_model(), 4);
  options.kv_policy = {.policy = KvPolicy::kH2o, .window = 16, .sinks = 2, .heavy = 8};
  EXPECT_THAT(refusal(options), HasSubstr("speculation: kv policy h2o"));
  options.speculation = SpeculationKind::kAuto;
  EXPECT_EQ(open_bundled(options)->plan().max_drafts, 0U);
}

}  // namespace
}  // namespace qsf
