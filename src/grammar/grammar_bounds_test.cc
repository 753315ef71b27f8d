// SPDX-License-Identifier: MIT
//
// Sources that are cut short or made to be large: each is compiled or refused with a reason, and a
// text under it goes on or ends with an error. A test that does not end is stopped by its time.

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar_engine.h"
#include "grammar/testing/test_vocabulary.h"

namespace qsf {
namespace {

constexpr std::string_view kWholeGrammar = R"(# a comment
root ::= (item "," [^a-z\n\x41-\x5A\u00e4]{2,3} .* | "\"\\" item? )+ end{2} # at the end
item ::= "x" | [0-9]{1,}
    | "\U0001F600"
end ::= %json {"type": "object", "properties": {"a": {"enum": [1, "x"]}}}
)";
constexpr std::string_view kWholeSchema = R"({"$defs": {"n": {"type": ["string", "null"],
  "minLength": 1, "maxLength": 3}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/n"},
  "b\u00e4": {"type": "array", "prefixItems": [{"const": 1.5e1}], "items": {"enum": ["x", {"y": []}]},
  "minItems": 1, "maxItems": 4}, "c": {"type": "string", "pattern": "^(?:a|[^b-d]{2,})\\d\\u0041*$"},
  "d": {"type": "integer", "minimum": -12, "exclusiveMaximum": 345}, "e": {"format": "date"},
  "f": {"anyOf": [{"type": "number", "maximum": 0.5}, {"allOf": [{"type": "boolean"}]}]}},
  "required": ["a"], "additionalProperties": {"oneOf": [true, {"minProperties": 2}]}})";

// Compiles a source and follows a random text for some steps. Returns whether it was compiled.
bool follow(TestGrammars& grammars, GrammarKind kind, std::string_view source, int n_steps = 6) {
  const Result<std::shared_ptr<Grammar>> grammar = Grammar::create(*grammars.engine, kind, source);
  if (!grammar.has_value()) {
    EXPECT_FALSE(grammar.error().message().empty());
    const StatusCode code = grammar.error().code();
    EXPECT_TRUE(code == StatusCode::kInvalidArgument || code == StatusCode::kUnsupported)
        << grammar.error().message();
    return false;
  }
  GrammarMatcher matcher(*grammar, "", {});
  std::vector<std::uint32_t> mask(mask_words(grammars.texts.n_tokens()));
  std::mt19937 random(3);
  for (int step = 0; step < n_steps && !matcher.is_finished(); ++step) {
    if (!matcher.fill_mask(mask).ok()) break;
    std::vector<std::uint32_t> legal;
    for (std::uint32_t token = 0; token < grammars.texts.n_tokens(); ++token) {
      if (mask_has(mask, token)) legal.push_back(token);
    }
    if (!matcher.accept(legal[random() % legal.size()]).ok()) break;
  }
  return true;
}

TEST(GrammarBounds, EveryPrefixIsCompiledOrRefused) {
  TestGrammars grammars;
  for (const auto& [kind, source] : {std::pair(GrammarKind::kGbnf, kWholeGrammar),
                                     std::pair(GrammarKind::kJsonSchema, kWholeSchema)}) {
    for (std::size_t n = 0; n < source.size(); ++n) {
      follow(grammars, kind, source.substr(0, n), 2);
      std::string changed(source);  // and with one byte of another kind
      changed[n] = "\0\xFF\"({[]})*\\9"[n % 12];
      follow(grammars, kind, changed, 1);
    }
    EXPECT_TRUE(follow(grammars, kind, source)) << source;
  }
}

std::string many(std::size_t n, const std::function<std::string(std::size_t)>& line) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += line(i);
  return out;
}

std::string repeated(std::string_view text, std::size_t n) {
  return many(n, [text](std::size_t) { return std::string(text); });
}

TEST(GrammarBounds, HostileGrammarsAreRefusedOrFollowed) {
  TestGrammars grammars;
  const auto name = [](std::size_t i) { return "r" + std::to_string(i); };
  const auto chain = [&](std::size_t n, const std::string& join) {
    return "root ::= r0\n" +
           many(n,
                [&](std::size_t i) {
                  return name(i) + " ::= " + name(i + 1) + join + name(i + 1) + "\n";
                }) +
           name(n) + " ::= \"a\"\n";
  };
  const std::pair<std::string, bool> sources[] = {
      {"root ::= " + repeated("(", 60'000) + "\"a\"" + repeated(")", 60'000), false},
      {"root ::= \"a\"" + repeated("?", 100'000), false},
      {"root ::= ((((\"a\"{0,1000000}){0,1000000}){0,1000000}){0,1000000}){0,1000000}", true},
      {"root ::= ((\"a\"*)*)*", true},
      {"root ::= (\"a\" | \"a\"*){1000000000}", true},
      {"root ::= \"a\"{1000000000000}", false},
      {"root ::= ([a-z]+ [a-z]* [a-z]?)+ \"!\"", true},
      {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", true},
      {"root ::= \"a\" root root | \"\"", true},
      {"root ::= root \"a\" | \"a\"", false},
      {chain(40, " "), true},
      {chain(40, " | "), true},
      {chain(9'998, " \"x\" "), true},
      {chain(10'001, " "), false},
      {"root ::= " + repeated("[\\u0000-\\U0010FFFF] | ", 8'000) + "\"a\"", true},
      {"root ::= " + repeated("\"a\" | ", 40'000) + "\"a\"", true},
      {"root ::= \"" + repeated("a", 250'000) + "\"", true},
      {repeated("x", kMaxGrammarBytes + 1), false},
      {"root ::= %json " + repeated("[", 100'000), false},
  };
  for (const auto& [source, compiles] : sources) {
    EXPECT_EQ(follow(grammars, GrammarKind::kGbnf, source), compiles) << source.substr(0, 100);
  }
}

TEST(GrammarBounds, HostileSchemasAreRefusedOrFollowed) {
  TestGrammars grammars;
  const auto defs = [](std::size_t n, const std::string& before, const std::string& between,
                       const std::string& after) {
    return R"({"$ref": "#/$defs/d0", "$defs": {)" +
           many(n,
                [&](std::size_t i) {
                  const std::string next = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}";
                  return "\"d" + std::to_string(i) + "\": " + before + next + between + next +
                         after + ", ";
                }) +
           "\"d" + std::to_string(n) + R"(": {"type": "integer"}}})";
  };
  const std::string open_array = R"({"type": "array", "items": )";
  const std::pair<std::string, bool> sources[] = {
      {repeated(open_array, 5'000) + "true" + repeated("}", 5'000), false},
      {repeated("[", 200'000), false},
      {repeated(open_array, 40) + "true" + repeated("}", 40), true},
      {defs(40, R"({"properties": {"a": )", R"(, "b": )", "}}"), true},
      {defs(40, R"({"anyOf": [)", ", ", "]}"), true},
      {defs(40, R"({"allOf": [)", ", ", "]}"), true},
      {defs(2'000, R"({"anyOf": [)", ", ", "]}"), true},
      {R"({"$ref": "#"})", false},
      {R"({"allOf": [{"$ref": "#"}]})", false},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", false},
      {R"({"type": "string", "minLength": 1000000000, "maxLength": 1000000000})", true},
      {R"({"type": "array", "items": {"type": "array", "maxItems": 1000000000, "items":
          {"type": "string", "maxLength": 1000000000}}, "minItems": 1000000000})",
       true},
      {R"({"type": "string", "pattern": "^(\\w+\\s?)*$"})", true},
      {R"({"type": "string", "pattern": "^((a{0,1000}){0,1000}){0,1000}$"})", true},
      {R"({"type": "string", "pattern": "^(a|a)*(a|aa)+$"})", true},
      {R"({"type": "string", "pattern": ")" + repeated("(", 50'000) + "\"}", false},
      {R"({"type": "string", "pattern": ")" + repeated("(a|b)?", 20'000) + "\"}", true},
      // Lengths that cut one part of any length, several, all; divisions in divisions.
      {R"({"type": "string", "pattern": "^[a-z]+-[0-9]{2}$", "maxLength": 9})", true},
      {R"({"type": "string", "pattern": "^[a-z]+-[a-z]+$", "maxLength": 9})", false},
      {R"({"type": "string", "pattern": "^[a-z]{4}$", "maxLength": 3})", false},
      {R"({"type": "string", "maxLength": 9, "pattern": "^)" + repeated("(a?", 40) +
           repeated(")?", 40) + "$\"}",
       false},
      {"{\"enum\": [" + many(20'000, [](std::size_t i) { return std::to_string(i) + ", "; }) +
           "0]}",
       true},
      {R"({"additionalProperties": true, "properties": {)" +
           many(5'000, [](std::size_t i) { return "\"key" + std::to_string(i) + "\": true, "; }) +
           R"("z": true}})",
       true},
      {R"({"type": "integer", "minimum": -1e999, "maximum": 1e999})", false},
      {R"({"type": "number", "minimum": 1e-400})", true},
  };
  for (const auto& [source, compiles] : sources) {
    EXPECT_EQ(follow(grammars, GrammarKind::kJsonSchema, source), compiles)
        << source.substr(0, 100);
  }
}

// Two grammars share four masks, so that each drives out the other's.
TEST(GrammarBounds, ASmallPoolOfMasksGivesTheSameMasks) {
  TestGrammars small(2, 0);
  TestGrammars large(2, 8 << 20);
  const char* const sources[] = {
      R"({"type": "array", "items": {"type": "string", "maxLength": 30}})",
      R"({"type": "object", "maxProperties": 40})"};
  std::vector<std::unique_ptr<GrammarMatcher>> matchers;
  for (TestGrammars* grammars : {&small, &large}) {
    for (const char* source : sources) {
      matchers.push_back(std::make_unique<GrammarMatcher>(
          Grammar::create(*grammars->engine, GrammarKind::kJsonSchema, source).value(), "",
          std::span<const std::uint32_t>()));
    }
  }
  const std::uint32_t n_tokens = small.texts.n_tokens();
  std::vector<std::uint32_t> masks[2] = {std::vector<std::uint32_t>(mask_words(n_tokens)),
                                         std::vector<std::uint32_t>(mask_words(n_tokens))};
  std::mt19937 random(4);
  for (int step = 0; step < 400; ++step) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (matchers[i]->is_finished() || random() % 50 == 0) {
        matchers[i]->reset();
        matchers[i + 2]->reset();
      }
      ASSERT_TRUE(matchers[i]->fill_mask(masks[0]).ok());
      ASSERT_TRUE(matchers[i + 2]->fill_mask(masks[1]).ok());
      ASSERT_EQ(masks[0], masks[1]) << "step " << step;
      std::uint32_t token = 0;
      do {
        token = random() % n_tokens;
      } while (!mask_has(masks[0], token));
      ASSERT_TRUE(matchers[i]->accept(token).ok());
      ASSERT_TRUE(matchers[i + 2]->accept(token).ok());
    }
  }
}

// More states than the memory of a grammar holds: those of the beginning are dropped.
TEST(GrammarBounds, StatesThatWereDroppedAreFoundAgain) {
  TestGrammars grammars;
  const auto grammar = Grammar::create(*grammars.engine, GrammarKind::kGbnf,
                                       "root ::= (\"a\" | \"b\"){150000} \"!\"")
                           .value();
  GrammarMatcher matcher(grammar, "", {});
  GrammarMatcher behind(grammar, "", {});  // holds its state meanwhile
  constexpr int kBehind = 7'000;
  for (int i = 0; i < kBehind; ++i) ASSERT_TRUE(behind.accept('a').ok());
  for (int i = 0; i < 150'000; ++i) {
    ASSERT_FALSE(i % 1000 == 0 && matcher.allows('!')) << i;
    ASSERT_TRUE(matcher.accept(i % 3 == 0 ? 'a' : 'b').ok()) << i;
  }
  EXPECT_FALSE(matcher.allows('a'));
  EXPECT_TRUE(matcher.allows('!'));
  for (int i = kBehind; i < 150'000; ++i) ASSERT_TRUE(behind.accept('b').ok()) << i;
  EXPECT_FALSE(behind.allows('b'));
  EXPECT_TRUE(behind.allows('!'));
}

// What a text returns to is numbered anew as well: the second round follows many states that were
// dropped.
TEST(GrammarBounds, RoundsAreCountedWhileStatesAreDropped) {
  TestGrammars grammars;
  constexpr int kRounds = 3;
  constexpr int kLetters = 20'000;
  const auto grammar = Grammar::create(*grammars.engine, GrammarKind::kGbnf,
                                       "root ::= ((\"a\" | \"b\"){20000} \"!\"){3}")
                           .value();
  GrammarMatcher matcher(grammar, "", {});
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_FALSE(matcher.can_end());
    for (int i = 0; i < kLetters; ++i) ASSERT_TRUE(matcher.accept('b').ok()) << round << " " << i;
    EXPECT_FALSE(matcher.allows('a'));
    ASSERT_TRUE(matcher.accept('!').ok()) << round;
  }
  EXPECT_TRUE(matcher.is_finished());
}

// Bytes of "abcabc..." from a place on.
std::string turning(std::size_t begin, std::size_t n_bytes) {
  std::string text;
  for (std::size_t i = begin; i < begin + n_bytes; ++i) text += "abc"[i % 3];
  return text;
}

// States so large that memory holds some 50, of which up to 30 are held by texts and 25 by the
// search for a mask: numbers change in the midst of it, and soon belong to other states. Nor do
// they stay with the states of texts, some of which have a mask then.
TEST(GrammarBounds, MasksAreRightWhileStatesAreDropped) {
  constexpr std::size_t kLongest = 24;
  std::vector<std::string> more;
  for (std::size_t begin = 0; begin < 3; ++begin) {
    for (std::size_t n = 1; n < kLongest; ++n) {
      for (const char end : {'a', 'b', 'c'}) more.push_back(turning(begin, n) + end);
    }
  }
  std::string source = "root ::= []";
  for (int i = 0; i < 480; ++i) source += " | \"abc\"{100," + std::to_string(100 + i) + "}";
  TestGrammars grammars(1, 0, more);
  const auto grammar = Grammar::create(*grammars.engine, GrammarKind::kGbnf, source).value();
  const std::uint32_t n_tokens = grammars.texts.n_tokens();
  std::vector<std::uint32_t> mask(mask_words(n_tokens));
  const auto check = [&](GrammarMatcher& matcher, std::size_t at) {
    ASSERT_TRUE(matcher.fill_mask(mask).ok());
    const std::string follows = turning(at, kLongest);
    for (std::uint32_t token = 0; token < n_tokens; ++token) {
      if (grammars.texts.kind(token) != TokenTexts::Kind::kText) continue;
      const std::string& text = grammars.texts.text(token);
      ASSERT_EQ(mask_has(mask, token), !text.empty() && follows.starts_with(text)) << text;
    }
  };
  std::deque<std::pair<std::size_t, std::unique_ptr<GrammarMatcher>>> others;
  for (std::size_t at = 0; at < 30; ++at) {
    others.emplace_back(
        at, std::make_unique<GrammarMatcher>(grammar, "", std::span<const std::uint32_t>()));
    for (const char byte : turning(0, at)) ASSERT_TRUE(others.back().second->accept(byte).ok());
  }
  GrammarMatcher matcher(grammar, "", {});
  for (std::size_t at = 0; at < 100; ++at) {
    SCOPED_TRACE(at);
    ASSERT_NO_FATAL_FAILURE(check(matcher, at));
    const auto& [other_at, other] = others[at % others.size()];
    ASSERT_NO_FATAL_FAILURE(check(*other, other_at)) << other_at;
    if (at % 8 == 7) others.pop_front();
    ASSERT_TRUE(matcher.accept("abc"[at % 3]).ok());
  }
}

}  // namespace
}  // namespace qsf
