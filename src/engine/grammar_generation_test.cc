// SPDX-License-Identifier: MIT
//
// Generations and samplers under a grammar.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/testing/sampler_bench.h"
#include "engine/testing/step_members.h"
#include "grammar/grammar_engine.h"
#include "grammar/testing/test_vocabulary.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr const char* kJsonList =
    R"({"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2,
        "maxItems": 3})";

EngineOptions grammar_options(std::uint32_t n_sequences) {
  EngineOptions options = step_options(n_sequences);
  options.grammar = {.max_grammars = 2, .mask_bytes = 1 << 20};
  return options;
}

std::shared_ptr<Grammar> make_grammar(Engine& engine, const char* source,
                                      GrammarKind kind = GrammarKind::kGbnf) {
  return Grammar::create(*engine.grammars(), kind, source).value();
}

// Every way to draw: greedy, without truncation, with a small and a large top-k, top-p, the others.
std::vector<SamplingOptions> all_ways() {
  std::vector<SamplingOptions> ways = {greedy(), plain(), plain(), plain(),
                                       plain(),  plain(), plain()};
  ways[2].top_k = 5;
  ways[3].top_k = 200;
  ways[4].top_p = 0.8F;
  ways[5].typical_p = 0.7F;
  ways[6].xtc_probability = 0.5F;
  ways[6].min_p = 0.01F;
  for (std::size_t i = 0; i < ways.size(); ++i) ways[i].seed = 7 + i;
  return ways;
}

struct Ended {
  std::string text;
  StopReason reason;
};

Ended generate(Engine& engine, const SamplingOptions& sampling, std::uint32_t max_tokens = 100,
               std::string_view prompt = "Once upon a time") {
  Member member(engine, prompt, {.max_tokens = max_tokens, .sampling = sampling});
  std::vector<Generation*> one = {member.generation.get()};
  while (!member.generation->finished()) EXPECT_TRUE(engine.step(one).has_value());
  EXPECT_TRUE(member.generation->status().ok()) << member.generation->status().message();
  return {member.text, member.generation->result().reason};
}

TEST(GrammarGenerationTest, EveryWayToDrawWritesTextsOfTheGrammar) {
  const std::unique_ptr<Engine> engine = open_bundled(grammar_options(1));
  const auto grammar = make_grammar(*engine, "root ::= (\"yes\" | \"no\" | [0-9]{3}) \"!\"");
  for (SamplingOptions sampling : all_ways()) {
    sampling.grammar = grammar;
    const auto [text, reason] = generate(*engine, sampling);
    EXPECT_THAT(text, testing::MatchesRegex("(yes|no|[0-9][0-9][0-9])!"));
    EXPECT_EQ(reason, StopReason::kEndOfText);
  }
}

TEST(GrammarGenerationTest, AGrammarThatAllowsEverythingChangesNothing) {
  const std::unique_ptr<Engine> engine = open_bundled(grammar_options(1));
  const auto grammar = make_grammar(*engine, "root ::= .*");
  for (SamplingOptions sampling : all_ways()) {
    // Bytes that begin no character are banned. They are never likely, but their mass counts in
    // what top-p and typical-p keep.
    if (sampling.top_k == 0) sampling.top_k = 40;
    const std::string expected = generate(*engine, sampling).text;
    sampling.grammar = grammar;
    EXPECT_EQ(generate(*engine, sampling).text, expected);
  }
}

TEST(GrammarGenerationTest, TextsAreTheSameAloneAndInCompany) {
  const std::unique_ptr<Engine> engine = open_bundled(grammar_options(4));
  const auto schema = make_grammar(*engine, kJsonList, GrammarKind::kJsonSchema);
  const auto plain_text = make_grammar(*engine, "root ::= [a-z ]{20,40} \".\"");
  const std::vector<SamplingOptions> ways = all_ways();
  std::vector<std::string> alone;
  Members members;
  for (std::size_t i = 0; i < 4; ++i) {
    SamplingOptions sampling = ways[i];
    sampling.grammar = i % 2 == 0 ? schema : plain_text;
    alone.push_back(generate(*engine, sampling).text);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    SamplingOptions sampling = ways[i];
    sampling.grammar = i % 2 == 0 ? schema : plain_text;
    members.push_back(std::make_unique<Member>(
        *engine, "Once upon a time", GenerateOptions{.max_tokens = 100, .sampling = sampling}));
  }
  const std::vector<Generation*> all = generations_of(members);
  while (!all_finished(all)) ASSERT_TRUE(engine->step(all).has_value());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(members[i]->text, alone[i]);
}

TEST(GrammarGenerationTest, DecodingAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::vector<SamplingOptions> ways = all_ways();
  const auto n_ways = static_cast<std::uint32_t>(ways.size());
  const std::unique_ptr<Engine> engine = open_bundled(grammar_options(n_ways));
  const auto grammar = make_grammar(
      *engine, R"({"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 90})",
      GrammarKind::kJsonSchema);
  Members members;
  for (SamplingOptions sampling : ways) {
    sampling.grammar = grammar;
    members.push_back(std::make_unique<Member>(
        *engine, "Once upon a time", GenerateOptions{.max_tokens = 100, .sampling = sampling}));
    members.back()->text.reserve(4096);
  }
  std::vector<Generation*> all = generations_of(members);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->step(all).has_value());
  const long before = n_allocations();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(engine->step(all).has_value());
  EXPECT_EQ(n_allocations(), before);
}

TEST(GrammarGenerationTest, ATriggerBeginsTheGrammar) {
  const std::unique_ptr<Engine> engine = open_bundled(grammar_options(1));
  const auto grammar = make_grammar(*engine, "root ::= \"<\" [A-Z]{4} \">\"");
  for (SamplingOptions sampling : all_ways()) {
    const std::string free = generate(*engine, sampling).text;
    // Whole tokens, since what follows the trigger within one would have to be of the grammar.
    const std::size_t begin = generate(*engine, sampling, 8).text.size();
    const std::size_t end = generate(*engine, sampling, 10).text.size();
    ASSERT_GT(end, begin);
    sampling.grammar = grammar;
    sampling.grammar_trigger = free.substr(begin, end - begin);
    const auto [text, reason] = generate(*engine, sampling);
    const std::size_t at = text.find(sampling.grammar_trigger);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_THAT(text.substr(at + end - begin), testing::MatchesRegex("<[A-Z][A-Z][A-Z][A-Z]>"))
        << text;
    EXPECT_EQ(reason, StopReason::kEndOfText);
    sampling.grammar_trigger = "never written by any fox";
    EXPECT_EQ(generate(*engine, sampling).text, free);
  }
}

TEST(GrammarGenerationTest, ErrorsEndTheGenerationAlone) {
  const std::unique_ptr<Engine> engine = open_bundled(grammar_options(2));
  const std::unique_ptr<Engine> other = open_bundled(grammar_options(1));
  SamplingOptions sampling = plain();
  sampling.grammar = make_grammar(*other, "root ::= \"a\"");
  const std::unique_ptr<Session> session = engine->create_session().value();
  const auto refused =
      Generation::create(*session, encode(*engine, "Once"), {.sampling = sampling});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("another engine"));

  for (SamplingOptions way : all_ways()) {
    way.grammar = make_grammar(*engine, "root ::= []");
    Member member(*engine, "Once", {.max_tokens = 5, .sampling = way});
    std::vector<Generation*> one = {member.generation.get()};
    while (!member.generation->finished()) ASSERT_TRUE(engine->step(one).has_value());
    EXPECT_THAT(member.generation->status().message(), HasSubstr("no token of the vocabulary"));
  }
}

// The memory of grammars is planned, and as many exist as it was planned for.
TEST(GrammarGenerationTest, GrammarsAreARegionOfThePlan) {
  const std::unique_ptr<Engine> without = open_bundled(step_options(1));
  EXPECT_EQ(without->grammars(), nullptr);
  const std::unique_ptr<Engine> engine = open_bundled(grammar_options(1));
  const auto bytes = [](const Engine& of) { return of.plan().memory.total_bytes(); };
  EXPECT_GT(bytes(*engine), bytes(*without) + 2 * kAutomatonBytes);
  auto first = make_grammar(*engine, "root ::= \"a\"");
  const auto second = make_grammar(*engine, "root ::= \"b\"");
  const auto third = Grammar::create(*engine->grammars(), GrammarKind::kGbnf, "root ::= \"c\"");
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code(), StatusCode::kOutOfBudget);
  first.reset();
  make_grammar(*engine, "root ::= \"c\"");
}

// Draws with fixed logits: legal tokens have the shares that they have among legal ones.
TEST(SamplerGrammarTest, DrawsFollowTheDistributionOfLegalTokens) {
  TestGrammars grammars;
  const std::uint32_t n = grammars.texts.n_tokens();
  SamplingOptions options = plain();
  options.grammar =
      Grammar::create(*grammars.engine, GrammarKind::kGbnf, "root ::= [abc] | \"d\"").value();
  for (const bool best_is_legal : {true, false}) {
    std::vector<float> logits(n, -20.0F);
    const std::map<TokenId, double> weights = {{'a', 0.5}, {'b', 0.2}, {'d', 0.1}};
    for (const auto& [token, weight] : weights)
      logits[token] = static_cast<float>(std::log(weight));
    logits['x'] = std::log(best_is_legal ? 0.45F : 3.0F);
    std::vector<float> memory(n);
    std::vector<std::uint32_t> order(n);
    Sampler sampler(options, memory, order);
    std::map<TokenId, int> drawn;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      sampler.consume(0, 0, logits);
      ++drawn[sampler.draw({})];
    }
    for (const auto& [token, weight] : weights) {
      EXPECT_NEAR(static_cast<double>(drawn[token]) / kDraws, weight / 0.8, 0.015) << token;
    }
    EXPECT_EQ(drawn['x'], 0);
  }
}

// With a small top-k the k best legal tokens stay, wherever they stand among all.
TEST(SamplerGrammarTest, TopKCountsLegalTokensAlone) {
  TestGrammars grammars;
  const std::uint32_t n = grammars.texts.n_tokens();
  SamplingOptions options = plain();
  options.top_k = 3;
  options.grammar = Grammar::create(*grammars.engine, GrammarKind::kGbnf, "root ::= [m-z]").value();
  for (const std::uint32_t n_better : {0U, 2U, 4U, 12U}) {
    std::vector<float> logits(n, -3.0F);
    for (std::uint32_t i = 0; i < n_better; ++i) logits['a' + i] = 9.0F;
    for (std::uint32_t i = 0; i < 6; ++i) logits['m' + i] = 1.0F - 0.1F * static_cast<float>(i);
    std::vector<float> memory(n);
    std::vector<std::uint32_t> order(n);
    Sampler sampler(options, memory, order);
    std::set<TokenId> drawn;
    for (int i = 0; i < 300; ++i) {
      sampler.consume(0, 0, logits);
      drawn.insert(sampler.draw({}));
    }
    EXPECT_EQ(drawn, (std::set<TokenId>{'m', 'n', 'o'})) << n_better;
  }
}

// Among different logits the legal ones are listed, among equal ones, too many to test, none are:
// then the list of the draw before is over.
TEST(SamplerGrammarTest, AListIsOfOneDraw) {
  std::vector<std::string> more;
  for (int i = 0; i < 300; ++i) more.push_back("piece " + std::to_string(i));
  TestGrammars grammars(1, 64 << 10, more);
  const std::uint32_t n = grammars.texts.n_tokens();
  ASSERT_GT(n, 512U);
  SamplingOptions options = plain();
  options.top_k = 1;
  options.grammar = Grammar::create(*grammars.engine, GrammarKind::kGbnf, "root ::= [m-z]").value();
  std::vector<float> ranked(n, -3.0F);
  ranked['n'] = 2.0F;
  ranked[n - 1] = 1.0F;
  const std::vector<float> equal(n, 1.0F);
  SamplerBench bench(options, n);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(bench.draw(ranked), TokenId{'n'});
    EXPECT_EQ(bench.draw(equal), TokenId{'m'});
  }
}

TEST(SamplerGrammarTest, ABiasMayLeaveNoToken) {
  TestGrammars grammars;
  const std::uint32_t n = grammars.texts.n_tokens();
  for (SamplingOptions options : all_ways()) {
    options.grammar =
        Grammar::create(*grammars.engine, GrammarKind::kGbnf, "root ::= \"q\"").value();
    options.logit_bias = {{'q', -kInf}};
    std::vector<float> memory(n);
    std::vector<std::uint32_t> order(n);
    Sampler sampler(options, memory, order);
    sampler.consume(0, 0, std::vector<float>(n, 1.0F));
    EXPECT_EQ(sampler.draw({}), kNoToken);
    EXPECT_THAT(sampler.grammar_status().message(), HasSubstr("none has a finite logit"));
  }
}

}  // namespace
}  // namespace qsf
