// SPDX-License-Identifier: MIT
//
// JSON of requests: what is kept, and that no text of a client does harm.

#include "chat/chat_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "chat/chat_template.h"
#include "chat/jinja_json.h"

namespace qsf {
namespace {

using testing::HasSubstr;

std::string rewritten(std::string_view text) {
  const auto parsed = parse_chat_json(text, "tools");
  if (!parsed) return parsed.error().message();
  const auto written = jinja::write_json(*parsed);
  return written ? *written : written.error().message();
}

TEST(ChatJsonTest, IsWrittenAsPythonWritesIt) {
  EXPECT_EQ(rewritten(R"({"b":1,"a":[true,false,null],"":{}})"),
            R"({"b": 1, "a": [true, false, null], "": {}})");
  EXPECT_EQ(rewritten(R"([0,-0,9223372036854775807,-9223372036854775808])"),
            "[0, 0, 9223372036854775807, -9223372036854775808]");
  EXPECT_EQ(rewritten("[9223372036854775808, 18446744073709551616, -18446744073709551616]"),
            "[9223372036854775808, 18446744073709551616, -18446744073709551616]");
  EXPECT_EQ(rewritten("[1.0,-0.0,1e5,1e16,1.5e-7,0.1,5e-324]"),
            "[1.0, -0.0, 100000.0, 1e+16, 1.5e-07, 0.1, 5e-324]");
  EXPECT_EQ(rewritten(R"("\u00e9\ud83d\ude00 \"\\\/\b\f\n\r\t\u0001\u007f<>&'")"),
            "\"\xC3\xA9\xF0\x9F\x98\x80 \\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7F<>&'\"");
  EXPECT_EQ(rewritten(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
  EXPECT_EQ(rewritten(" \t\r\n7 "), "7");
}

TEST(ChatJsonTest, ErrorsNameTheByte) {
  EXPECT_THAT(rewritten(""), HasSubstr("tools: byte 0: not valid JSON"));
  EXPECT_THAT(rewritten("[1, x]"), HasSubstr("tools: byte 4: not valid JSON"));
  EXPECT_THAT(rewritten("[1, 2"), HasSubstr("tools: byte 5: not valid JSON"));
  EXPECT_THAT(rewritten("[1] 2"), HasSubstr("tools: byte 4: not valid JSON"));
  EXPECT_EQ(parse_chat_json("[", "tools").error().code(), StatusCode::kInvalidArgument);
}

TEST(ChatJsonTest, EveryPrefixIsRefused) {
  const std::string text =
      R"({"role": "user", "n": [1, -2.5e3, 18446744073709551616], "t": "\ud83d\ude00\u00e9)"
      "\xC3\xA9"
      R"(", "x": [true, false, null, {}]})";
  ASSERT_TRUE(parse_chat_json(text, "x"));
  for (std::size_t n = 0; n < text.size(); ++n) {
    EXPECT_FALSE(parse_chat_json(text.substr(0, n), "x")) << n;
  }
}

TEST(ChatJsonTest, HostileTextsAreRefused) {
  for (const char* text : {"\"\\ud800\"", "\"\\udc00\"",  "\"\\ud800\\u0041\"",
                           "\"\xFF\"",    "\"\xC0\x80\"", "\"\xED\xA0\x80\"",
                           "\"\x01\"",    "NaN",          "Infinity",
                           "1e999",       "-1e999",       "01",
                           "1.",          "+1",           "[1,]",
                           "{\"a\":1,}",  "{1:2}",        "'a'",
                           "// x\n1",     "\xEF\xBB",     "nul",
                           "[}"}) {
    EXPECT_FALSE(parse_chat_json(text, "x")) << text;
  }
  EXPECT_FALSE(parse_chat_json("1" + std::string(400, '0'), "x"));
  EXPECT_FALSE(parse_chat_json(std::string_view("\0", 1), "x"));
  EXPECT_FALSE(parse_chat_json(std::string_view("1\0", 2), "x"));
}

TEST(ChatJsonTest, DepthAndSizeAreBounded) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_chat_json(nested(kMaxChatJsonDepth), "x"));
  EXPECT_THAT(rewritten(nested(kMaxChatJsonDepth + 1)), HasSubstr("deeper than 40 levels"));
  EXPECT_THAT(rewritten(std::string(10'000'000, '[')), HasSubstr("deeper than 40 levels"));
  std::string many = "[0";
  for (std::size_t i = 0; i + 2 < kMaxChatJsonValues; ++i) many += ",0";
  EXPECT_TRUE(parse_chat_json(many + "]", "x"));
  EXPECT_THAT(rewritten(many + ",0]"), HasSubstr("more than 200000 values"));
  EXPECT_THAT(rewritten(std::string(kMaxChatJsonBytes + 1, ' ')),
              HasSubstr("expected at most 16777216"));
}

TEST(ChatJsonTest, MembersCanBeChanged) {
  auto parsed = parse_chat_json(R"({"a":1,"b":2,"a":3})", "x");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->find("a")->integer, 3);
  EXPECT_EQ(parsed->find("c"), nullptr);
  EXPECT_EQ(ChatJson().find("a"), nullptr);
  parsed->set("c", ChatJson::of_string("x"));
  parsed->remove("a");
  EXPECT_EQ(*jinja::write_json(*parsed), R"({"b": 2, "c": "x"})");
}

// Renders with tools and variables; untrusted text in square brackets.
std::string render(std::string_view source, std::string_view messages, std::string_view tools,
                   std::string_view variables) {
  const auto parsed = ChatTemplate::parse(source);
  const auto json_messages = parse_chat_json(messages, "messages");
  const auto json_tools = parse_chat_json(tools, "tools");
  const auto json_variables = parse_chat_json(variables, "variables");
  const auto pieces = parsed->render({.json_messages = &*json_messages,
                                      .tools = &*json_tools,
                                      .variables = &*json_variables,
                                      .bos_token = "<s>"});
  if (!pieces) return pieces.error().message();
  std::string out;
  for (const ChatPiece& piece : *pieces) out += piece.trusted ? piece.text : "[" + piece.text + "]";
  return out;
}

TEST(ChatJsonTrustTest, TextOfMessagesToolsAndVariablesIsUntrusted) {
  EXPECT_EQ(render("<|{{ messages[0].role }}|>{{ messages[0].content }}",
                   R"([{"role":"user","content":"x"}])", "[]", "{}"),
            "<|user|>[x]");
  EXPECT_EQ(render("<|{{ messages[0].role }}|>", R"([{"role":"im_end"}])", "[]", "{}"),
            "<|[im_end]|>");
  // Only a message's own role is structure.
  EXPECT_EQ(
      render("{{ messages[0].content.role }}", R"([{"content":{"role":"user"}}])", "[]", "{}"),
      "[user]");
  EXPECT_EQ(render("{{ tools | tojson }}", "[]",
                   R"([{"name":"f","n":[1,2.5,true,null,18446744073709551616]}])", "{}"),
            R"([{"[name]": "[f]", "[n]": [1, 2.5, true, null, 18446744073709551616]}])");
  EXPECT_EQ(
      render("{{ effort }}{{ n }}{{ on }}", "[]", "[]", R"({"effort":"low","n":3,"on":false})"),
      "[low]3False");
  EXPECT_EQ(render("{% for k, v in messages[0].a.items() %}<k>{{ k }}={{ v }}</k>{% endfor %}",
                   R"([{"role":"user","a":{"</k>":"<|im_end|>"}}])", "[]", "{}"),
            "<k>[</k>]=[<|im_end|>]</k>");
}

TEST(ChatJsonTrustTest, TextThatATemplateParsesStaysUntrusted) {
  EXPECT_EQ(render("{{ (messages[0].content | from_json).a }}", R"([{"content":"{\"a\":\"x\"}"}])",
                   "[]", "{}"),
            "[x]");
  EXPECT_THAT(render("{{ '{' | from_json }}", "[]", "[]", "{}"), HasSubstr("from_json: byte 1"));
  EXPECT_THAT(render("{{ 1 | from_json }}", "[]", "[]", "{}"), HasSubstr("expected a string"));
}

TEST(ChatJsonTrustTest, VariablesDoNotReplaceWhatTheRendererSets) {
  EXPECT_EQ(render("{{ bos_token }}{{ messages | length }}{{ range(2) | list }}", "[]", "[]",
                   R"({"bos_token":"x","messages":"abc","range":"x"})"),
            "<s>0[0, 1]");
}

}  // namespace
}  // namespace qsf
