// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/json_text.h"

#include <gtest/gtest.h>

#include <string>

namespace qsf_tools {
namespace {

using Found = JsonEndFinder::Found;

TEST(JsonTextTest, FindsTheEndByteByByte) {
  const std::string json = R"({"a": "}\"]", "b": [1, {"c": "\\"}], "d": null})";
  const std::string text = json + "} x";
  JsonEndFinder finder;
  for (std::size_t n = 1; n < json.size(); ++n) {
    ASSERT_EQ(finder.find(std::string_view(text).substr(0, n)), Found::kMore) << n;
  }
  EXPECT_EQ(finder.find(std::string_view(text).substr(0, json.size())), Found::kEnd);
  EXPECT_EQ(finder.n_bytes(), json.size());
}

TEST(JsonTextTest, RefusesWhatCannotBeJson) {
  for (const char* text : {"x", "1", "\"a\"", "{]", "[}", "{\"a\nb\"", "{<", "[1, x", "}"}) {
    JsonEndFinder finder;
    EXPECT_EQ(finder.find(text), Found::kBad) << text;
  }
  JsonEndFinder deep;
  EXPECT_EQ(deep.find(std::string(64, '[')), Found::kMore);
  JsonEndFinder deeper;
  EXPECT_EQ(deeper.find(std::string(65, '[')), Found::kBad);
}

TEST(JsonTextTest, MembersAndElementsKeepTheirText) {
  const std::string object = R"( {"a" : 1.50, "b\u0041":"x,}\"" ,"c":[1 , [2],{"d":3}],"a":true} )";
  const auto members = json_members(object);
  ASSERT_EQ(members.size(), 4U);
  EXPECT_EQ(members[0].value, "1.50");
  EXPECT_EQ(members[1].name, "bA");
  EXPECT_EQ(members[1].value, R"("x,}\"")");
  EXPECT_EQ(json_member(object, "a"), "true");  // the last of its name
  EXPECT_EQ(json_member(object, "z"), "");
  const auto elements = json_elements(json_member(object, "c"));
  ASSERT_EQ(elements.size(), 3U);
  EXPECT_EQ(elements[0], "1");
  EXPECT_EQ(elements[1], "[2]");
  EXPECT_EQ(elements[2], R"({"d":3})");
  EXPECT_TRUE(json_members("{}").empty());
  EXPECT_TRUE(json_members("[1]").empty());
  EXPECT_TRUE(json_members("").empty());
  EXPECT_TRUE(json_elements("[ ]").empty());
  EXPECT_TRUE(json_elements("3").empty());
}

TEST(JsonTextTest, Strings) {
  EXPECT_EQ(json_string(R"("a\n\u00e9")"), "a\n\xC3\xA9");
  EXPECT_EQ(json_string("1"), std::nullopt);
  EXPECT_EQ(json_string(""), std::nullopt);
  EXPECT_EQ(json_quoted("a\"\\\n\xFF"), "\"a\\\"\\\\\\n\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace qsf_tools
