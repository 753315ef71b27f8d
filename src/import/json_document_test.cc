// SPDX-License-Identifier: MIT

#include "import/json_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Returns the tree as the JSON library's own, to be compared with what the library parses.
Json copy_of(const JsonValue& value) {
  switch (value.type()) {
    case JsonType::kNull: return nullptr;
    case JsonType::kBool: return *value.boolean();
    case JsonType::kUnsigned: return *value.unsigned_integer();
    case JsonType::kSigned: return static_cast<std::int64_t>(*value.number());
    case JsonType::kFloat: return *value.number();
    case JsonType::kString: return std::string(*value.text());
    case JsonType::kArray: {
      Json array = Json::array();
      for (const JsonValue& element : value.elements()) array.push_back(copy_of(element));
      return array;
    }
    case JsonType::kObject: {
      Json object = Json::object();
      for (const JsonMember& member : value.members()) {
        object[std::string(member.name)] = copy_of(member.value);
      }
      return object;
    }
  }
  return nullptr;
}

std::string error_of(std::string_view text) {
  const auto document = JsonDocument::parse(text);
  return document ? "" : document.error().message();
}

TEST(JsonDocumentTest, ReadsEveryTypeOfValue) {
  const auto document = JsonDocument::parse(
      R"({"z": [1, -2, 2.5, 18446744073709551615, 18446744073709551616], "a": "caf\u00e9 \n",
          "n": null, "t": true, "o": {"f": false}, "e": [], "": {}})");
  ASSERT_TRUE(document) << document.error().message();
  const JsonValue& root = document->root();
  EXPECT_EQ(root.size(), 7U);
  EXPECT_EQ(root.members()[0].name, "");
  EXPECT_EQ(root.members()[6].name, "z");
  EXPECT_EQ(root.text("a"), "caf\xC3\xA9 \n");
  EXPECT_TRUE(root.contains("n"));
  EXPECT_EQ(root.find("n"), nullptr);
  EXPECT_EQ(root.find("absent"), nullptr);
  EXPECT_EQ(root.boolean("t"), true);
  EXPECT_EQ(root.find("o")->boolean("f"), false);
  EXPECT_EQ(root.find("e")->size(), 0U);
  const auto numbers = root.find("z")->elements();
  ASSERT_EQ(numbers.size(), 5U);
  EXPECT_EQ(numbers[0].unsigned_integer(), 1U);
  EXPECT_EQ(numbers[1].number(), -2.0);
  EXPECT_EQ(numbers[1].unsigned_integer(), std::nullopt);
  EXPECT_EQ(numbers[2].number(), 2.5);
  EXPECT_EQ(numbers[3].unsigned_integer(), UINT64_MAX);
  EXPECT_EQ(numbers[4].type(), JsonType::kFloat);
  EXPECT_EQ(numbers[4].number(), 18446744073709551616.0);
}

TEST(JsonDocumentTest, ValuesOfAnotherTypeReadAsAbsent) {
  const auto document = JsonDocument::parse(R"({"text": "x", "list": [1]})");
  ASSERT_TRUE(document);
  const JsonValue& text = *document->root().find("text");
  EXPECT_EQ(text.boolean(), std::nullopt);
  EXPECT_EQ(text.number(), std::nullopt);
  EXPECT_EQ(text.size(), 0U);
  EXPECT_TRUE(text.elements().empty());
  EXPECT_EQ(text.find("text"), nullptr);
  EXPECT_EQ(document->root().find("list")->text("0"), std::nullopt);
}

TEST(JsonDocumentTest, AnEmptyDocumentIsAnEmptyObject) {
  EXPECT_TRUE(JsonDocument().root().is_object());
  EXPECT_EQ(JsonDocument().root().find("x"), nullptr);
}

TEST(JsonDocumentTest, RefusesOtherTextsAndNamesTheByte) {
  EXPECT_THAT(error_of(R"({"a": 1,})"), HasSubstr("syntax error at byte 9"));
  EXPECT_THAT(error_of(""), HasSubstr("syntax error"));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("syntax error at byte 4"));
  EXPECT_THAT(error_of("{\"a\": \"\xFF\"}"), HasSubstr("syntax error"));
  EXPECT_THAT(error_of(R"({"a": "\ud800"})"), HasSubstr("syntax error"));
  EXPECT_THAT(error_of(R"({"a": 1e999})"), HasSubstr("syntax error"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not an object"));
  EXPECT_THAT(error_of("3"), HasSubstr("not an object"));
}

TEST(JsonDocumentTest, BoundsTheDepthOfNesting) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(error_of(nested(31)), "");
  EXPECT_THAT(error_of(nested(32)), HasSubstr("32 levels"));
  EXPECT_THAT(error_of(nested(1 << 20)), HasSubstr("32 levels"));
}

TEST(JsonDocumentTest, RepeatedKeysAreRefusedUnlessTheLastCounts) {
  const char* text = R"({"b": 1, "a": {"k": 2, "k": [3], "j": 4, "k": 5}})";
  EXPECT_THAT(error_of(text), HasSubstr("the key \"k\" appears twice"));
  const auto last = JsonDocument::parse(text, JsonRepeats::kLastCounts);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->root().find("a")->size(), 2U);
  EXPECT_EQ(last->root().find("a")->unsigned_integer("k"), 5U);
}

TEST(JsonDocumentTest, ShowsValuesShortAndInAscii) {
  const auto document = JsonDocument::parse(
      R"({"s": "\u00e9\n", "f": 1.5, "b": true, "i": -7, "l": [1], "o": {}, "n": null})");
  ASSERT_TRUE(document);
  const auto shown = [&](const char* key) {
    for (const JsonMember& member : document->root().members()) {
      if (member.name == key) return member.value.shown();
    }
    return std::string();
  };
  EXPECT_EQ(shown("s"), "\"\\u00e9\\n\"");
  EXPECT_EQ(shown("f"), "1.5");
  EXPECT_EQ(shown("b"), "true");
  EXPECT_EQ(shown("i"), "-7");
  EXPECT_EQ(shown("l"), "a list");
  EXPECT_EQ(shown("o"), "an object");
  EXPECT_EQ(shown("n"), "null");
  const std::string text(200, 'x');
  EXPECT_EQ(JsonValue::of_string(text).shown(), "\"" + std::string(60, 'x') + "...");
}

// Any damage to a text is judged as the library judges it, and what parses is the same tree.
TEST(JsonDocumentTest, EqualsTheLibraryOnDamagedTexts) {
  const std::string good =
      R"({"model": {"vocab": {"a": 0, "b\u0062": 1, "\ud83d\ude00": 2}, "merges": ["a b", ["c", "d"]]},
          "x": [true, false, null, -1, 0.25, 1e3, "", {}], "deep": [[[[{"k": [[]]}]]]]})";
  Rng rng(7);
  std::size_t n_parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    const std::size_t n_changes = 1 + rng.next_u64() % 3;
    for (std::size_t i = 0; i < n_changes; ++i) {
      const std::size_t at = rng.next_u64() % text.size();
      const char with[] = "{}[]\",:\\u0d8 1-.e\xC3\xA9nt";
      text[at] = with[rng.next_u64() % (sizeof with - 1)];
    }
    const Json expected = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto document = JsonDocument::parse(text, JsonRepeats::kLastCounts);
    ASSERT_EQ(document.has_value(), !expected.is_discarded() && expected.is_object()) << text;
    if (!document) continue;
    ++n_parsed;
    ASSERT_EQ(copy_of(document->root()), expected) << text;
  }
  EXPECT_GT(n_parsed, 1000U);
}

class StopAtKey final : public JsonEvents {
 public:
  bool scalar(const JsonValue& /*value*/) override { return count(); }
  bool key(std::string_view name) override { return count() && name != "stop"; }
  bool start_object() override { return count(); }
  bool end_object() override { return count(); }
  bool start_array() override { return count(); }
  bool end_array() override { return count(); }
  int n = 0;

 private:
  bool count() {
    ++n;
    return true;
  }
};

TEST(JsonEventsTest, AreHandedOnUntilOneSaysStop) {
  StopAtKey all;
  EXPECT_EQ(read_json_events(R"({"a": [1, "x"]})", all), std::nullopt);
  EXPECT_EQ(all.n, 7);
  StopAtKey some;
  EXPECT_EQ(read_json_events(R"({"stop": [1, "x"]} no JSON)", some), std::nullopt);
  EXPECT_EQ(some.n, 2);
  StopAtKey damaged;
  EXPECT_EQ(read_json_events("[1,]", damaged), 4U);
}

}  // namespace
}  // namespace qsf
