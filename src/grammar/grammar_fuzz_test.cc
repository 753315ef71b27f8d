// SPDX-License-Identifier: MIT
//
// Makes random grammars and schemas, whole and mutated, and follows random texts under them.
//
//   grammar_fuzz_test [NUMBER [SEED]]     number of sources; 2,000 without it
//
// Checks that each is compiled or refused with a reason, that a mask allows the tokens that
// allows() allows and the text may go on with, and, where the source is small, those of the slow
// matcher. The same seed makes the same sources.

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/gbnf_parser.h"
#include "grammar/grammar_engine.h"
#include "grammar/json_schema.h"
#include "grammar/testing/slow_matcher.h"
#include "grammar/testing/test_vocabulary.h"

namespace {

using namespace qsf;

constexpr std::size_t kSmallGrammar = 60;  // expressions that the slow matcher reads in time
constexpr std::size_t kShortText = 20;

class Sources {
 public:
  explicit Sources(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  std::string grammar() {
    n_rules_ = 1 + below(4);
    std::string out;
    for (std::size_t i = 0; i < n_rules_; ++i) {
      out += (i == 0 ? "root" : "r" + std::to_string(i)) + " ::= " + choice(3) + "\n";
    }
    return out;
  }
  std::string schema() { return R"({"$defs": {"d": )" + schema(2) + "}, " + schema(3).substr(1); }
  void mutate(std::string& text) {
    constexpr std::string_view kParts[] = {
        "\"",   "\\",   "{",     "}",          "[",    "]",      "(", ")",
        "|",    "*",    "{3,",   "::=",        "\n",   "%json ", "^", "-",
        "\xC3", "true", "\\u00", "9999999999", "null", ":",      ",", "\"$ref\": \"#\", "};
    for (std::size_t n = 1 + below(4); n > 0; --n) {
      const std::size_t at = below(text.size() + 1);
      switch (below(4)) {
        case 0: text.insert(at, kParts[below(std::size(kParts))]); break;
        case 1: text.erase(at, below(8)); break;
        case 2: text.insert(at, text.substr(below(text.size() + 1), below(30))); break;
        default:
          if (at < text.size()) text[at] = static_cast<char>(random_());
      }
    }
  }

 private:
  std::string one_of(std::initializer_list<const char*> list) {
    return *(list.begin() + below(list.size()));
  }
  std::string choice(std::size_t depth) {
    std::string out;
    for (std::size_t n = 1 + below(3); n > 0; --n) {
      for (std::size_t parts = 1 + below(3); parts > 0; --parts) out += element(depth) + " ";
      if (n > 1) out += "| ";
    }
    return out;
  }
  std::string element(std::size_t depth) {
    std::string out;
    if (depth > 0 && below(4) == 0) {
      out = "(" + choice(depth - 1) + ")";
    } else if (n_rules_ > 1 && below(4) == 0) {
      out = "r" + std::to_string(1 + below(n_rules_ - 1));
    } else {
      out = one_of({"\"a\"", "\"ab\"", "\"\"", "\"name\"", "\"\\\"\"", "[a-z]",
                    "[^\"\\\\\\x00-\\x1F]", "[a-zA-Z0-9]", "[^a]", "[\\u00e0-\\uffff]", "[A-Z_]",
                    "\"\\u20ac\"", ".", "[^\\u2028 ]", "[0-9a-f]"});
    }
    return out + one_of({"", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,4}", "{2,}"});
  }
  std::string schema(std::size_t depth) {
    const std::string inner = depth > 0 ? schema(depth - 1) : R"({"type": "integer"})";
    switch (below(depth > 0 ? 13 : 8)) {
      case 0: return R"({"type": "string", "minLength": )" + std::to_string(below(4)) + "}";
      case 1: return R"({"type": "string", "maxLength": )" + std::to_string(below(30)) + "}";
      case 2: return R"({"enum": ["a", "ab\"c", 12, null, [true], {"x": 1}]})";
      case 3: {
        const auto least = static_cast<int>(below(200)) - 100;
        return R"({"type": ")" + one_of({"integer", "number"}) + R"(", "minimum": )" +
               std::to_string(least) + R"(, "maximum": )" + std::to_string(least + below(300)) +
               "}";
      }
      case 4:
        return R"({"type": "string", "pattern": ")" +
               one_of({"^[a-z]+$", "^\\\\w{2,5}-\\\\d+$", "a|b", "^[^@]+@\\\\S*$", "^(a|ab)*c?$"}) +
               "\"}";
      case 5: return R"({"type": ["boolean", "null", "number"]})";
      case 6: return R"({"$ref": "#/$defs/d"})";
      case 7:
        return R"({"type": "number", "multipleOf": )" + one_of({"3", "0.25", "12", "0.01"}) +
               R"(, "minimum": )" + std::to_string(below(40)) + "}";
      case 8:
        return R"({"type": "array", "items": )" + inner + R"(, "minItems": )" +
               std::to_string(below(3)) + "}";
      case 9: return R"({"anyOf": [)" + inner + ", " + schema(depth - 1) + "]}";
      case 10:
        return R"({"properties": {"a": )" + inner + R"(, "name": )" + schema(depth - 1) +
               R"(}, "required": [")" + one_of({"a", "name"}) + "\"]}";
      case 11:
        return R"({"properties": {"item": )" + inner + R"(}, "additionalProperties": )" +
               schema(depth - 1) + "}";
      default: return R"({"prefixItems": [)" + inner + R"(], "items": )" + schema(depth - 1) + "}";
    }
  }

  std::mt19937_64 random_;
  std::size_t n_rules_ = 1;
};

// Returns what is wrong, or nothing.
std::string check(TestGrammars& grammars, GrammarKind kind, const std::string& source,
                  Sources& random, std::uint64_t& n_followed) {
  const auto grammar = Grammar::create(*grammars.engine, kind, source);
  if (!grammar.has_value()) {
    return grammar.error().message().empty() ? "refused without a reason" : "";
  }
  ++n_followed;
  const Result<GrammarRules> rules =
      kind == GrammarKind::kGbnf ? parse_gbnf(source) : parse_json_schema(source);
  if (!rules.has_value()) return "compiled, but not parsed";
  SlowMatcher slow(*rules);
  const bool small = rules->n_expressions() <= kSmallGrammar && random.below(4) == 0;
  GrammarMatcher matcher(*grammar, "", {});
  const std::uint32_t n_tokens = grammars.texts.n_tokens();
  std::vector<std::uint32_t> mask(mask_words(n_tokens));
  std::string text;
  for (int step = 0; step < 10 && !matcher.is_finished(); ++step) {
    if (!matcher.fill_mask(mask).ok()) return "";  // nothing matches, or it is too ambiguous
    std::vector<std::uint32_t> legal;
    for (std::uint32_t token = 0; token < n_tokens; ++token) {
      const bool has = mask_has(mask, token);
      if (has) legal.push_back(token);
      const std::string& bytes = grammars.texts.text(token);
      if (random.below(8) == 0 && has != matcher.allows(token))
        return "mask and allows(): " + bytes;
      if (!small || text.size() > kShortText || random.below(8) != 0) continue;
      if (grammars.texts.kind(token) != TokenTexts::Kind::kText || bytes.empty()) continue;
      if (has != slow.begins(text + bytes)) return "behind \"" + text + "\": " + bytes;
    }
    const std::uint32_t token = legal[random.below(legal.size())];
    if (!matcher.accept(token).ok()) return "not accepted: " + grammars.texts.text(token);
    if (grammars.texts.kind(token) == TokenTexts::Kind::kText) text += grammars.texts.text(token);
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  TestGrammars grammars(1, 0);
  Sources random(seed);
  std::uint64_t n_followed = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const bool gbnf = i % 2 == 0;
    std::string source = gbnf ? random.grammar() : random.schema();
    if (random.below(4) == 0) random.mutate(source);
    const std::string wrong = check(grammars, gbnf ? GrammarKind::kGbnf : GrammarKind::kJsonSchema,
                                    source, random, n_followed);
    if (wrong.empty()) continue;
    std::fprintf(stderr, "source %" PRIu64 " of seed %" PRIu64 ": %s\n%s\n", i, seed, wrong.c_str(),
                 source.c_str());
    return 1;
  }
  std::printf("%" PRIu64 " sources, %" PRIu64 " of them compiled and followed\n", n, n_followed);
  return n_followed > n / 4 ? 0 : 1;
}
