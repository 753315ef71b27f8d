// SPDX-License-Identifier: MIT
#include "tools/serve/api/json_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/serve/api/json_writer.h"

namespace qsf_tools {
namespace {

std::optional<JsonValue> parsed(std::string_view text, JsonLimits limits = {}) {
  JsonValue value;
  std::string error;
  const bool is_valid = parse_json(text, limits, value, error);
  EXPECT_EQ(is_valid, error.empty()) << text;
  if (!is_valid) return std::nullopt;
  return value;
}

// The text is written again byte by byte, in the order of the members.
TEST(JsonValueTest, KeepsWhatItReads) {
  for (const char* text :
       {"null", "true", "false", "0", "-1", "9223372036854775807", "2.0", "0.1", "1e+300", "\"\"",
        "[]", "{}", R"({"z":1,"a":[true,{"b":null}],"m":"\"\\\n\u0001"})",
        "\"\xF0\x9F\x98\x80\xC3\xA9\""}) {
    const std::optional<JsonValue> value = parsed(text);
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(value->to_text(), text);
  }
  EXPECT_EQ(parsed(R"("\ud83d\ude00")")->to_text(), "\"\xF0\x9F\x98\x80\"");
}

TEST(JsonValueTest, ConvertsNumbersWithinTheirRange) {
  EXPECT_EQ(parsed("2.0")->integer(), 2);
  EXPECT_EQ(parsed("2.5")->integer(), std::nullopt);
  EXPECT_EQ(parsed("-9223372036854775808")->integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parsed("9223372036854775808")->integer(), std::nullopt);
  EXPECT_EQ(parsed("1e300")->integer(), std::nullopt);
  EXPECT_EQ(parsed("18446744073709551615")->number(), 18446744073709551615.0);
  EXPECT_EQ(parsed("true")->number(), std::nullopt);
  EXPECT_EQ(parsed("\"1\"")->integer(), std::nullopt);
}

TEST(JsonValueTest, RefusesWhatIsNoJson) {
  const std::vector<std::string> texts = {"",
                                          " ",
                                          "{",
                                          "}",
                                          "[1,]",
                                          "{\"a\":1,}",
                                          "{'a':1}",
                                          "{a:1}",
                                          "NaN",
                                          "Infinity",
                                          "-Infinity",
                                          "01",
                                          "+1",
                                          ".5",
                                          "1.",
                                          "0x10",
                                          "1e999",
                                          "-1e999",
                                          "nul",
                                          "[1] 2",
                                          "{} {}",
                                          "// c\n1",
                                          "/* c */ 1",
                                          "\"\n\"",
                                          "\"\\x\"",
                                          R"("\ud800")",
                                          R"("\udc00")",
                                          R"("\ud800\u0041")",
                                          "\"\xFF\"",
                                          "\"\xC3\"",
                                          "\"\xED\xA0\x80\"",
                                          "\"\xC0\xAF\"",
                                          "\"\xF5\x80\x80\x80\"",
                                          std::string("[1\0]", 4),
                                          R"({"a":1,"b":2,"a":3})",
                                          R"([{"":1,"":1}])"};
  for (const std::string& text : texts) EXPECT_FALSE(parsed(text)) << text;
}

TEST(JsonValueTest, RefusesEveryPrefix) {
  const std::string text =
      R"({"messages":[{"role":"user","content":"h\u00e9 \ud83d\ude00"}],"n":1.5e-3,"s":[true,null]})";
  ASSERT_TRUE(parsed(text));
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parsed(std::string_view(text).substr(0, size))) << size;
  }
}

TEST(JsonValueTest, BoundsDepthAndValues) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parsed(nested(64)));
  EXPECT_FALSE(parsed(nested(65)));
  EXPECT_FALSE(parsed(std::string(5'000'000, '[')));
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_FALSE(parsed(objects + "1" + std::string(65, '}')));
  JsonLimits limits;
  limits.max_values = 4;
  EXPECT_TRUE(parsed("[1,2,3]", limits));
  EXPECT_FALSE(parsed("[1,2,3,4]", limits));
  EXPECT_FALSE(parsed("[[],[],[],[]]", limits));
}

TEST(JsonValueTest, ErrorsNameThePlace) {
  JsonValue value;
  std::string error;
  EXPECT_FALSE(parse_json("{\"a\": tru}", JsonLimits(), value, error));
  EXPECT_NE(error.find("column 10"), std::string::npos) << error;
  EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})", JsonLimits(), value, error));
  EXPECT_EQ(error, "an object has two members 'a'");
}

TEST(JsonValueTest, SetsMembers) {
  JsonValue value = *parsed(R"({"a":1,"b":2})");
  value.set("a", JsonValue(true));
  value.set("c", JsonValue());
  EXPECT_EQ(value.to_text(), R"({"a":true,"b":2,"c":null})");
  EXPECT_EQ(value.member("d"), nullptr);
  EXPECT_EQ(JsonValue(true).member("a"), nullptr);
}

TEST(JsonWriterTest, WritesMembersAndItems) {
  JsonWriter json;
  json.begin_object().member("a", 1).member("b", "x").name("c").begin_array();
  json.integer(-5).number(0.1F).number(0.25).null().boolean(true).begin_object().end_object();
  json.begin_array().end_array().end_array().text_or_null("d", "").member("e", false);
  json.raw_member("f", "[1]").end_object();
  EXPECT_EQ(json.take(),
            R"({"a":1,"b":"x","c":[-5,0.1,0.25,null,true,{},[]],"d":null,"e":false,"f":[1]})");
}

TEST(JsonWriterTest, WritesStringsThatAnyParserReads) {
  const auto written = [](std::string_view text) {
    std::string out;
    append_json_string(text, out);
    return out;
  };
  EXPECT_EQ(written(std::string("\0\x1F\"\\/\b\f\n\r\t\x7F", 11)),
            "\"\\u0000\\u001f\\\"\\\\/\\b\\f\\n\\r\\t\x7F\"");
  const std::string kBad = "\xEF\xBF\xBD";
  EXPECT_EQ(written("a\xFF"
                    "b\xC3"),
            "\"a" + kBad + "b" + kBad + "\"");
  EXPECT_EQ(written("\xED\xA0\x80"), "\"" + kBad + kBad + kBad + "\"");  // a surrogate
  EXPECT_EQ(written("\xF0\x9F\x98"), "\"" + kBad + kBad + kBad + "\"");  // cut
  // Every pair of bytes gives valid JSON.
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_TRUE(parsed(written(text))) << first << " " << second;
    }
  }
}

TEST(JsonWriterTest, WritesNoNumberThatIsNotFinite) {
  std::string out;
  append_json_number(std::numeric_limits<double>::quiet_NaN(), out);
  append_json_number(std::numeric_limits<float>::infinity(), out);
  EXPECT_EQ(out, "nullnull");
}

}  // namespace
}  // namespace qsf_tools
