// SPDX-License-Identifier: MIT
//
// Masks against a slow matcher that tries every token byte by byte, at every step of random walks.

#include "grammar/grammar_engine.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "grammar/gbnf_parser.h"
#include "grammar/json_schema.h"
#include "grammar/testing/slow_matcher.h"
#include "grammar/testing/test_vocabulary.h"

namespace qsf {
namespace {

// Walks at random, and compares every mask with the slow matcher's. Returns the texts that ended.
std::vector<std::string> check_walks(TestGrammars& grammars, GrammarKind kind,
                                     const std::string& source, int n_walks, std::size_t n_steps) {
  std::vector<std::string> texts;
  const Result<GrammarRules> rules =
      kind == GrammarKind::kGbnf ? parse_gbnf(source) : parse_json_schema(source);
  EXPECT_TRUE(rules.has_value()) << source << ": "
                                 << (rules.has_value() ? "" : rules.error().message());
  if (!rules.has_value()) return texts;
  SlowMatcher slow(*rules);
  Result<std::shared_ptr<Grammar>> grammar = Grammar::create(*grammars.engine, kind, source);
  EXPECT_TRUE(grammar.has_value())
      << source << ": " << (grammar.has_value() ? "" : grammar.error().message());
  if (!grammar.has_value()) return texts;
  std::mt19937 random(17);
  const std::uint32_t n_tokens = grammars.texts.n_tokens();
  std::vector<std::uint32_t> mask(mask_words(n_tokens));
  GrammarMatcher matcher(*grammar, "", {});
  for (int walk = 0; walk < n_walks; ++walk) {
    matcher.reset();
    std::string text;
    for (std::size_t step = 0; step < n_steps && !matcher.is_finished(); ++step) {
      const Status filled = matcher.fill_mask(mask);
      EXPECT_TRUE(filled.ok()) << source << " behind " << text << ": " << filled.message();
      if (!filled.ok()) break;
      std::vector<std::uint32_t> allowed;
      for (std::uint32_t token = 0; token < n_tokens; ++token) {
        bool expected = false;
        switch (grammars.texts.kind(token)) {
          case TokenTexts::Kind::kControl: break;
          case TokenTexts::Kind::kEnd: expected = slow.matches(text); break;
          case TokenTexts::Kind::kText:
            expected = !grammars.texts.text(token).empty() &&
                       slow.begins(text + grammars.texts.text(token));
            break;
        }
        EXPECT_EQ(mask_has(mask, token), expected)
            << source << ": token \"" << grammars.texts.text(token) << "\" behind " << text;
        if (mask_has(mask, token) != expected) return texts;
        if (mask_has(mask, token)) allowed.push_back(token);
      }
      const std::uint32_t token = allowed[random() % allowed.size()];
      EXPECT_TRUE(matcher.allows(token));
      EXPECT_TRUE(matcher.accept(token).ok());
      if (grammars.texts.kind(token) == TokenTexts::Kind::kText) text += grammars.texts.text(token);
    }
    EXPECT_EQ(slow.matches(text), matcher.can_end()) << source << ": " << text;
    if (matcher.is_finished()) texts.push_back(text);
  }
  return texts;
}

constexpr const char* kGrammars[] = {
    R"(root ::= "hello" (" " | "-") "world" "!"?)",
    R"(root ::= [a-c]+ [^a-z\x00-\x1F]* "z")",
    R"(root ::= .{2,5} "end")",
    R"(root ::= "a"{3} "b"{2,} "c"{1,4})",
    "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [ab] | \"(\" expr \")\"",
    "root ::= \"a\" root \"b\" | \"\"",
    "root ::= (\"a\" | \"ab\" | \"aba\")*",
    "root ::= (\"a\"? \"b\"?)*  \"c\"",
    "root ::= ((\"a\"?){2,5} | \"ab\"){0,4} \"x\"",
    "root ::= [\\u00e0-\\u00ff\\u20ac]+ \"\\U0001F600\"?",
    "root ::= [^\\n\"]{0,7} \"\\n\" [a-z]{1,20} [a-z0-9]*",
    "root ::= [a-zA-Z]{0,5} [a-z]{2,4} \"-\" [^\"\\\\]{2,3}",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"n])* \"\\\"\"",
    "root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"n]){0,6} \"\\\"\" [a-z]{0,2}",
    "root ::= a | b # comment\na ::= \"a\" b | \"a\"\nb ::= \"b\" a\n    | \"b\"",
    "root ::= ([a-z]+ \" \"?){2,3}",
    "root ::= (([a-b]{2}){2}){2}",
    "root ::= \"\" | (\"\" \"\"){0,1000000}",
    "root ::= (\"a\"{0,3}){4,9} \"b\"",
    "root ::= \"x\"{100000,200000} | \"aaaa\"",
    // First characters that lead elsewhere, and classes between the slices of a vocabulary.
    "root ::= \"nam\" \"ed\"? | [^n\\x00-\\x1F] [^\"\\\\\\x00-\\x1F]*",
    "root ::= \"xy\" [0-9] | \"\\u00e4\" [a-z]* | [^x\\u00e4]{2,4} \"!\"",
    "root ::= [a-z0-9]+ (\"-\" [a-z0-9]+)*",
    "root ::= [^ @\\n]{1,18} \"@\" [^ @\\n]+ \".\" [A-Za-z]{2,3}",
    "root ::= [^\\u2028\\u00a0]{1,3} \"\\u2028\"",
    "root ::= [A-Za-z0-9 ]{19} [^ -\\x7F]* | \"\\n\" [a-z]{2} [a-z\\u0100-\\uffff]*",
    "root ::= [a-z]+ \"end\" | [A-Z] [a-z]{3,} [0-9]?",
};

// Pieces that begin with characters of a slice and go on otherwise.
std::vector<std::string> mixed_pieces() {
  return {"abc@",
          "abc\n",
          "ab-cd",
          "ab1",
          "Ab",
          "\u00a0",
          "a\u00a0b",
          "\u2028",
          "z\u2028\"",
          "name1",
          "namXe",
          "xy1",
          "\u00e4bc",
          "\u00e4!",
          "A1-",
          "some words here, more than sixteen",
          "lettersandletters\"",
          "1234567890abcdefg@x",
          "\u4e00\u4e01",
          "\u4e00\xC3",
          "a.b",
          "x@y.zz",
          " a b c",
          "abend"};
}

TEST(Grammar, MasksAreThoseOfASlowMatcher) {
  TestGrammars grammars(4, 64 << 10, mixed_pieces());
  for (const char* source : kGrammars) {
    check_walks(grammars, GrammarKind::kGbnf, source, 2, 20);
  }
}

// So little memory for masks that they are dropped all the time.
TEST(Grammar, MasksThatWereDroppedAreFoundAgain) {
  TestGrammars grammars(1, 0);
  for (const char* source : kGrammars) {
    check_walks(grammars, GrammarKind::kGbnf, source, 1, 12);
  }
}

constexpr const char* kSchemas[] = {
    R"({"type": "object"})",
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": -3, "maximum": 120}}, "required": ["name"]})",
    R"({"properties": {"a": {"type": "null"}, "ab": {"const": 1}},
        "additionalProperties": {"type": "boolean"}})",
    R"({"type": "array", "items": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 2}})",
    R"({"type": "string", "pattern": "^[a-c]+(-[0-9]{2})?$"})",
    R"({"type": "string", "minLength": 2, "maxLength": 4})",
    R"({"enum": ["a\"b", 12, null, {"k": [1]}]})",
};

TEST(Grammar, MasksOfSchemasAreThoseOfASlowMatcher) {
  TestGrammars grammars;
  for (const char* source : kSchemas) {
    check_walks(grammars, GrammarKind::kJsonSchema, source, 2, 20);
  }
}

}  // namespace
}  // namespace qsf
