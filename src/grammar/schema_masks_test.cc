// SPDX-License-Identifier: MIT
//
// Schemas with texts that they allow and texts that they do not, cut into random tokens. Each mask
// on the way is compared with a slow matcher that reads bytes.

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "grammar/grammar_engine.h"
#include "grammar/json_schema.h"
#include "grammar/testing/slow_matcher.h"
#include "grammar/testing/test_vocabulary.h"

namespace qsf {
namespace {

struct SchemaCase {
  const char* schema;
  std::vector<std::string> allowed;
  std::vector<std::string> refused;
};

std::vector<SchemaCase> structure_cases() {
  return {
      // Nested arrays.
      {R"({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}})",
       {"[[1,2], [], [-3]]", "[\n  [1]]"},
       {"[1]", "[[1.5]]", "[[01]]", "[[1],]"}},
      {R"({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "array", "maxItems": 2,
          "items": {"type": "boolean"}}})",
       {"[[true,false]]", "[[], [false]]"},
       {"[]", "[[],[],[]]", "[[true,true,true]]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}],
          "items": false, "minItems": 2})",
       {R"([1, "a"])"},
       {"[1]", R"([1,"a",2])", R"(["a",1])"}},
      {R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "null"}})",
       {"[1, null,null]", "[]"},
       {"[null]", "[1, 1]"}},
      // Recursion.
      {R"({"$defs": {"n": {"properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/n"}},
          "required": ["v"]}}, "$ref": "#/$defs/n"})",
       {R"({"v":1,"next": {"v": 2}})"},
       {R"({"next":{}})", R"({"v":1,"next":{}})"}},
      {R"({"properties": {"c": {"type": "array", "items": {"$ref": "#"}}}})",
       {R"({"c": [{"c":[]}, {}]})"},
       {R"({"c":[1]})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})",
       {"[1,[2, []]]"},
       {"[true]", "[1"}},
      // Objects.
      {R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"},
          "c": {"type": "integer"}}, "required": ["a", "c"]})",
       {R"({"a":1,"c":2})", R"({"a": 1, "b": 2, "c": 3 })"},
       {R"({"a":1})", R"({"c":1,"a":1})", R"({"a":1,"c":2,"d":3})"}},
      {R"({"properties": {"a": {"type": "null"}, "ab": {"type": "null"}}})",
       {"{}", R"({"ab": null})", R"({"a":null,"ab":null})"},
       {R"({"ab":null,"a":null})", R"({,"a":null})"}},
      {R"({"properties": {"name": {"type": "string"}},
          "additionalProperties": {"type": "integer"}})",
       {R"({"name": "x", "nam": 1, "names": 2})"},
       {R"({"name":1})", R"({"other":"x"})"}},
      {R"({"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1,
          "maxProperties": 2})",
       {R"({"x": true})", R"({"x":true,"y":false})"},
       {"{}", R"({"x":true,"y":true,"z":true})"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}},
          {"properties": {"b": {"type": "string"}}}], "required": ["a", "b"]})",
       {R"({"a": 1, "b": "x"})"},
       {R"({"a":1})"}},
  };
}

std::vector<SchemaCase> value_cases() {
  return {
      // Values.
      {R"({"enum": ["red", "green", "blue"]})",
       {R"("green")"},
       {R"("gree")", R"("greens")", "red"}},
      {R"({"enum": [1, "1", null, true, [1], {"a": 1}]})",
       {R"("1")", R"({"a": 1})", "null", "[1]"},
       {"2", R"({"a": 2})", "[]"}},
      {R"({"const": {"a": [1, "x"]}})", {R"({"a": [1, "x"]})"}, {R"({"a": [1]})", R"({"a":1})"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"True", "tru", "truee"}},
      {R"({"type": ["string", "null"]})", {"null", R"("a")"}, {"1", "nul"}},
      // Numbers.
      {R"({"type": "integer", "minimum": 0, "maximum": 255})",
       {"0", "255", "99"},
       {"256", "-1", "1.5", "007"}},
      {R"({"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": 5})",
       {"-4", "0", "4"},
       {"-5", "5", "10"}},
      {R"({"type": "number", "minimum": 0.5, "maximum": 1.5})",
       {"0.5", "1", "1.25"},
       {"0.4", "1.6", "2"}},
      {R"({"type": "integer", "multipleOf": 15, "minimum": -30, "maximum": 720})",
       {"0", "-15", "45", "720"},
       {"5", "735", "-45", "15.0"}},
      {R"({"type": "number", "multipleOf": 0.25})", {"-1.75", "3.50", "12"}, {"0.3", "1.755"}},
      {R"({"type": "number"})", {"-1.5e3", "0.25", "1E+2"}, {".5", "1.", "01", "+1"}},
  };
}

std::vector<SchemaCase> text_cases() {
  return {
      // Strings.
      {R"({"type": "string"})",
       {R"("x\"y\\ \u00e9 \ud83d\ude00")", "\"\xC3\xA4\xE2\x82\xAC\""},
       {"\"a\nb\"", R"("\x")", R"("\ud83d")", "\"a"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 4})",
       {R"("ab")", "\"\xC3\xA4\xC3\xB6\xC3\xBC\""},
       {R"("a")", R"("abcde")"}},
      {R"({"type": "string", "maxLength": 3})", {R"("a\n\u00e9")"}, {R"("a\n\u00e9b")"}},
      {R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")"}},
      {R"({"type": "string", "maxLength": 40})",
       {R"("some words that are longer than sixteen")"},
       {R"("some words that are longer than forty chars")"}},
      // Patterns and formats.
      {R"({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"})",
       {R"("AB-123")"},
       {R"("AB-12")", R"("ab-123")", R"("AB-1234")"}},
      {R"({"type": "string", "pattern": "^(foo|bar)+$"})",
       {R"("foobarfoo")"},
       {R"("")", R"("fooba")"}},
      {R"({"type": "string", "pattern": "[0-9]{2}"})", {R"("ab12cd")"}, {R"("a1b2c")"}},
      {R"({"type": "string", "pattern": "^\\S+@\\S+\\.\\S+$"})",
       {R"("a.b@c.de")"},
       {R"("a b@c.d")", R"("a@b")"}},
      {R"({"type": "string", "pattern": "^[^/]+(/[^/]+)*$"})",
       {R"("a/bc d/e")"},
       {R"("/a")", R"("a//b")"}},
      {R"({"type": "string", "pattern": "^\\w{1,20}$"})",
       {R"("word_of_17_letter")"},
       {R"("two words")", R"("")"}},
      // Lengths of what a pattern matches.
      {R"({"type": "string", "pattern": "^[A-Z][a-z]+$", "minLength": 3, "maxLength": 5})",
       {R"("Abc")", R"("Abcde")"},
       {R"("Ab")", R"("Abcdef")", R"("abc")"}},
      {R"({"type": "string", "pattern": "^\\+?[0-9]{2,15}$", "minLength": 4, "maxLength": 5})",
       {R"("1234")", R"("12345")", R"("+123")", R"("+1234")"},
       {R"("123")", R"("+12")", R"("123456")", R"("+12345")"}},
      {R"({"type": "string", "pattern": "^(x|ab|[0-9]+)$", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("12")", R"("123")"},
       {R"("x")", R"("1")", R"("1234")"}},
      {R"({"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 6})",
       {R"("abab")", R"("ababab")"},
       {R"("ab")", R"("abababab")", R"("aba")"}},
      {R"({"type": "string", "pattern": "^[a-z]{2,4}(-[0-9]{1,3})?$", "maxLength": 6})",
       {R"("ab")", R"("abcd")", R"("ab-123")", R"("abcd-1")"},
       {R"("abcd-12")", R"("a")", R"("ab-")"}},
      {R"({"type": "string", "pattern": "^a", "maxLength": 3})",
       {R"("a")", R"("a\u00e9\n")"},
       {R"("")", R"("b")", R"("abcd")"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")"},
       {R"("2024-13-01")", R"("2024-2-1")"}},
  };
}

// Any strings as tokens; the last one ends a text.
class PieceTexts final : public TokenTexts {
 public:
  explicit PieceTexts(const std::set<std::string>& pieces) : texts_(pieces.begin(), pieces.end()) {}
  std::uint32_t n_tokens() const override { return static_cast<std::uint32_t>(texts_.size()) + 1; }
  Kind kind(std::uint32_t token) const override {
    return token < texts_.size() ? Kind::kText : Kind::kEnd;
  }
  void append(std::uint32_t token, bool, std::string& out) const override {
    if (token < texts_.size()) out += texts_[token];
  }
  std::string_view text(std::uint32_t token) const { return texts_[token]; }
  std::uint32_t token_of(const std::string& text) const {
    return static_cast<std::uint32_t>(std::ranges::find(texts_, text) - texts_.begin());
  }

 private:
  std::vector<std::string> texts_;
};

std::vector<std::string> cut(const std::string& text, std::mt19937& random) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = 1 + random() % (random() % 3 == 0 ? 9 : 3);
    pieces.push_back(text.substr(at, n));
    at += n;
  }
  return pieces;
}

void check_schema(const SchemaCase& one, std::mt19937& random) {
  SCOPED_TRACE(one.schema);
  const Result<GrammarRules> rules = parse_json_schema(one.schema);
  ASSERT_TRUE(rules.has_value()) << rules.error().message();
  SlowMatcher slow(*rules);
  std::vector<std::vector<std::string>> texts;
  std::set<std::string> pieces = {"\"",   "}",    "]",  ",",     "a", "0",
                                  "\xC3", "\xA4", "\\", "abc\"", "}}"};
  for (const auto* list : {&one.allowed, &one.refused}) {
    for (const std::string& text : *list) {
      texts.push_back(cut(text, random));
      pieces.insert(texts.back().begin(), texts.back().end());
      const std::vector<std::string> others = cut(text, random);
      pieces.insert(others.begin(), others.end());
    }
  }
  const GrammarsOver<PieceTexts> grammars(PieceTexts(pieces), {1, 0});
  const std::uint32_t n_tokens = grammars.texts.n_tokens();
  const auto grammar =
      Grammar::create(*grammars.engine, GrammarKind::kJsonSchema, one.schema).value();
  GrammarMatcher matcher(grammar, "", {});
  std::vector<std::uint32_t> mask(mask_words(n_tokens));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    matcher.reset();
    std::string before;
    bool refused = false;
    for (const std::string& piece : texts[i]) {
      const Status filled = matcher.fill_mask(mask);  // of no token, perhaps
      ASSERT_TRUE(filled.ok() || filled.code() == StatusCode::kNotFound) << filled.message();
      for (std::uint32_t token = 0; token + 1 < n_tokens; ++token) {
        const std::string text = before + std::string(grammars.texts.text(token));
        ASSERT_EQ(mask_has(mask, token), slow.begins(text)) << text;
      }
      ASSERT_EQ(mask_has(mask, n_tokens - 1), slow.matches(before)) << before;
      refused = !matcher.accept(grammars.texts.token_of(piece)).ok();
      if (refused) break;
      before += piece;
    }
    const bool allowed = i < one.allowed.size();
    const std::string& text = allowed ? one.allowed[i] : one.refused[i - one.allowed.size()];
    EXPECT_EQ(!refused && matcher.can_end(), allowed) << text;
    EXPECT_EQ(slow.matches(text), allowed) << text;
  }
}

TEST(SchemaMasks, AreThoseOfASlowMatcherForAnyTokens) {
  std::mt19937 random(5);
  for (const auto& cases : {structure_cases(), value_cases(), text_cases()}) {
    for (const SchemaCase& one : cases) check_schema(one, random);
  }
}

}  // namespace
}  // namespace qsf
