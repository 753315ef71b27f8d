// SPDX-License-Identifier: MIT
//
// multipleOf against integer arithmetic, for every number of a few digits.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/testing/slow_matcher.h"

namespace qsf {
namespace {

// Numbers in thousandths.
struct MultipleCase {
  std::string keywords;
  std::int64_t step;
  std::int64_t least;
  std::int64_t most;
};

constexpr std::int64_t kFar = 1'000'000'000;

// The JSON texts of a number of thousandths, with as many zeros behind the point as there are.
std::vector<std::string> texts_of(std::int64_t thousandths) {
  std::string text = std::to_string(std::abs(thousandths));
  if (text.size() < 4) text.insert(0, 4 - text.size(), '0');
  text.insert(text.size() - 3, ".");
  if (thousandths < 0) text.insert(0, "-");
  std::vector<std::string> texts = {text};
  while (text.back() == '0') {
    text.pop_back();
    if (text.back() != '.') texts.push_back(text);
  }
  if (text.back() == '.') texts.push_back(text.substr(0, text.size() - 1));
  return texts;
}

TEST(JsonMultiple, AreThoseOfIntegerArithmetic) {
  const std::vector<MultipleCase> cases = {
      {R"("multipleOf": 7)", 7000, -kFar, kFar},
      {R"("multipleOf": 0.25)", 250, -kFar, kFar},
      {R"("multipleOf": 0.01, "minimum": 0)", 10, 0, kFar},
      {R"("multipleOf": 0.3, "minimum": -1.5, "exclusiveMaximum": 12)", 300, -1500, 11999},
      {R"("multipleOf": 15, "minimum": 9, "maximum": 130)", 15000, 9000, 130000},
      {R"("multipleOf": 2, "exclusiveMinimum": -120, "maximum": -3)", 2000, -119999, -3000},
      {R"("multipleOf": 0.005, "minimum": 1.25, "maximum": 1.5)", 5, 1250, 1500},
      {R"("multipleOf": 1e1, "exclusiveMinimum": 0, "exclusiveMaximum": 100)", 10000, 1, 99999},
      {R"("multipleOf": 5, "maximum": 0)", 5000, -kFar, 0},
  };
  for (const MultipleCase& one : cases) {
    for (const bool is_integer : {true, false}) {
      const std::string schema = std::string(R"({"type": ")") +
                                 (is_integer ? "integer" : "number") + "\", " + one.keywords + "}";
      SCOPED_TRACE(schema);
      const Result<GrammarRules> rules = parse_json_schema(schema);
      if (!rules.has_value()) {  // no integer is left
        EXPECT_EQ(one.step, 5) << rules.error().message();
        continue;
      }
      SlowMatcher slow(*rules);
      for (std::int64_t value = -160'000; value <= 160'000;) {
        const bool fits = value % one.step == 0 && value >= one.least && value <= one.most;
        for (const std::string& text : texts_of(value)) {
          const bool allowed = fits && !(is_integer && text.find('.') != std::string::npos);
          ASSERT_EQ(slow.matches(text), allowed) << text;
        }
        // Every thousandth near 0 and beside each bound, else every twentieth.
        const bool is_near = std::abs(value) < 700 || std::abs(value - one.least) < 20 ||
                             std::abs(value - one.most) < 20;
        value += is_near ? 1 : 50 - value % 50;
      }
      EXPECT_FALSE(slow.matches("-"));
      EXPECT_FALSE(slow.matches("-0"));
      EXPECT_FALSE(slow.matches("0" + texts_of(one.step).back()));
      EXPECT_FALSE(slow.matches(texts_of(one.step).back() + "."));
      EXPECT_FALSE(slow.matches(texts_of(one.step).back() + "e0"));
    }
  }
}

TEST(JsonMultiple, HasUpTo18Digits) {
  const Result<GrammarRules> rules = parse_json_schema(R"({"type": "number", "multipleOf": 0.5})");
  SlowMatcher slow(*rules);
  const std::string digits(18, '9');
  EXPECT_TRUE(slow.matches(digits + ".5" + std::string(17, '0')));
  EXPECT_FALSE(slow.matches(digits + "9"));
  EXPECT_FALSE(slow.matches(digits + ".5" + std::string(18, '0')));
}

TEST(JsonMultiple, FiltersEnums) {
  const Result<GrammarRules> rules =
      parse_json_schema(R"({"enum": [1, 1.5, 0.1, 1.25, -3, 0, "x"], "multipleOf": 0.5})");
  ASSERT_TRUE(rules.has_value()) << rules.error().message();
  SlowMatcher slow(*rules);
  for (const char* text : {"1", "1.5", "-3", "0", "\"x\""}) EXPECT_TRUE(slow.matches(text)) << text;
  EXPECT_FALSE(slow.matches("0.1"));
  EXPECT_FALSE(slow.matches("1.25"));
}

TEST(JsonMultiple, RefusesWhatHasNoMeaningOrNoEnd) {
  const auto message = [](const std::string& keywords) {
    const Result<GrammarRules> rules =
        parse_json_schema(R"({"type": "integer", )" + keywords + "}");
    return rules.has_value() ? "" : rules.error().message();
  };
  EXPECT_EQ(message(R"("multipleOf": 0)"),
            "schema: #/multipleOf: expected a number above 0, got 0");
  EXPECT_EQ(message(R"("multipleOf": -2)"),
            "schema: #/multipleOf: expected a number above 0, got -2");
  EXPECT_EQ(message(R"("multipleOf": "2")"),
            "schema: #/multipleOf: expected a number above 0, got \"2\"");
  EXPECT_EQ(message(R"("multipleOf": 1e-20)"), "schema: #/multipleOf: more than 18 digits");
  EXPECT_EQ(message(R"("multipleOf": 7, "minimum": 8, "maximum": 13)"),
            "schema: #/multipleOf: no multiple is within the bounds");
  EXPECT_EQ(message(R"("multipleOf": 999983)"),
            "schema: #/multipleOf: it needs more than 40000 states; use a step of fewer digits");
  EXPECT_EQ(message(R"("multipleOf": 2000)"), "");
}

}  // namespace
}  // namespace qsf
