// SPDX-License-Identifier: MIT
//
// The grammars of calls, compiled, beside the parser: what a grammar allows are calls to the
// parser, and what models write is allowed.

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "grammar/gbnf_parser.h"
#include "grammar/program.h"
#include "grammar/rules.h"
#include "grammar/testing/slow_matcher.h"
#include "grammar/utf8_code_points.h"
#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/syntax/chat_syntax_table.h"

namespace qsf_tools {
namespace {

static_assert(kMaxToolGrammarBytes == qsf::kMaxGrammarBytes);

ToolUse two_tools(ToolChoice choice) {
  ToolUse use;
  use.tools.push_back({.name = "weather", .parameters = R"({"type": "object", "properties": {
      "city": {"type": "string", "maxLength": 5}, "days": {"type": "integer"},
      "unit": {"type": ["string", "null"], "enum": ["C", "F", null]},
      "area": {"$ref": "#/$defs/area"}}, "required": ["city"], "additionalProperties": false,
      "$defs": {"area": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}}})"});
  use.tools.push_back({.name = "now", .parameters = ""});
  use.tools.push_back({.name = "mcp:search/(a)", .parameters = R"({"properties": {
      "filter[status]": {"type": "string"}, "page:size": {"type": "integer"}}})"});
  use.tools.push_back({.name = "referring", .parameters = R"({"$ref": "#/$defs/A", "$defs": {"A": {
      "properties": {"s": {"type": "string"}, "n": {"type": "number"}}, "required": ["s"]}}})"});
  use.choice = choice;
  return use;
}

qsf::GrammarRules rules_of(const ToolGrammar& made) {
  qsf::Result<qsf::GrammarRules> rules = qsf::parse_gbnf(made.grammar);
  if (!rules.has_value()) {
    ADD_FAILURE() << rules.error().message() << "\n" << made.grammar;
    return {};
  }
  EXPECT_TRUE(qsf::GrammarProgram::compile(*rules).has_value()) << made.grammar;
  return *std::move(rules);
}

// Writes a random text of a grammar.
class RandomWriter {
 public:
  RandomWriter(const qsf::GrammarRules& rules, unsigned seed) : rules_(rules), random_(seed) {}

  std::string write() {
    std::string text;
    append(rules_.definition(rules_.root), text);
    return text;
  }

 private:
  void append(qsf::ExprId id, std::string& text) {
    const qsf::Expression& e = rules_.expression(id);
    switch (e.kind) {
      case qsf::Expression::Kind::kLiteral: text += rules_.literal_bytes(e); break;
      case qsf::Expression::Kind::kClass: append_character(rules_.set_at(e.first), text); break;
      case qsf::Expression::Kind::kSequence:
        for (const qsf::ExprId part : rules_.parts(e)) append(part, text);
        break;
      case qsf::Expression::Kind::kChoice:
        append(rules_.parts(e)[random_() % rules_.parts(e).size()], text);
        break;
      case qsf::Expression::Kind::kRepeat: {
        const std::uint32_t most = std::min(e.most, e.count + 3);
        for (std::uint32_t n = e.count + random_() % (most - e.count + 1); n > 0; --n) {
          append(e.first, text);
        }
        break;
      }
      case qsf::Expression::Kind::kRule: append(rules_.definition(e.first), text); break;
    }
  }

  // One that a marker may have, where the set has it.
  void append_character(const qsf::CharSet& set, std::string& text) {
    constexpr std::string_view kLikely = "</parmetg_vlu>\n\"{}[]ab 1";
    for (int round = 0; round < 20; ++round) {
      const char c = kLikely[random_() % kLikely.size()];
      if (!set.contains(static_cast<std::uint32_t>(c))) continue;
      text += c;
      return;
    }
    qsf::append_code_point(set.ranges().front().first, text);
  }

  const qsf::GrammarRules& rules_;
  std::mt19937 random_;
};

// What the parser makes of an answer that begins with the grammar's trigger.
std::vector<AnswerPart> parts_of(const ChatSyntax& row, const ToolUse& use,
                                 const std::string& answer) {
  AnswerParser parser(row, use, false);
  std::vector<AnswerPart> parts;
  parser.push(answer, parts);
  parser.finish(parts);
  return parts;
}

TEST(ToolGrammarAcceptsTest, EveryTextOfAGrammarIsCalls) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    for (const ToolChoice choice : {ToolChoice::kRequired, ToolChoice::kAuto}) {
      const ToolUse use = two_tools(choice);
      const std::optional<ToolGrammar> made = tool_grammar(row, use, "");
      if (!made) continue;
      const qsf::GrammarRules rules = rules_of(*made);
      RandomWriter writer(rules, 34);
      for (int round = 0; round < 200; ++round) {
        const std::string text = writer.write();
        const auto parts = parts_of(row, use, made->trigger + text);
        ASSERT_FALSE(parts.empty()) << row.name << ": " << text;
        for (const AnswerPart& part : parts) {
          ASSERT_EQ(part.kind, AnswerPart::Kind::kToolCall) << row.name << ": " << text;
        }
      }
    }
  }
}

// The arguments that a grammar allows follow their schema, also where they stand between tags.
TEST(ToolGrammarAcceptsTest, ArgumentsFollowTheirSchema) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    const ToolUse use = two_tools(ToolChoice::kRequired);
    const qsf::GrammarRules rules = rules_of(*tool_grammar(row, use, ""));
    // Of a bare text, the longest length does not hold.
    std::string schema = use.tools[0].parameters;
    const std::string bound = ", \"maxLength\": 5";
    const bool is_bare = row.form == CallForm::kTagged || row.form == CallForm::kBraced;
    if (is_bare) schema.erase(schema.find(bound), bound.size());
    const qsf::GrammarRules arguments =
        rules_of({.grammar = "root ::= %json " + schema + "\n", .trigger = {}});
    RandomWriter writer(rules, 35);
    for (int round = 0; round < 60; ++round) {
      for (const AnswerPart& part : parts_of(row, use, writer.write())) {
        if (part.call.name != "weather") continue;
        ASSERT_TRUE(qsf::SlowMatcher(arguments).matches(part.call.arguments))
            << row.name << ": " << part.call.arguments;
      }
    }
  }
}

// Also where parameters may have any name. An answer may repeat one, which is no call in some rows.
TEST(ToolGrammarAcceptsTest, ParametersOfAnyName) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    ToolUse use = two_tools(ToolChoice::kRequired);
    use.tools = {{.name = "f", .parameters = R"({"type": "object", "required": ["a[0]"]})"}};
    const qsf::GrammarRules rules = rules_of(*tool_grammar(row, use, ""));
    RandomWriter writer(rules, 36);
    int n_calls = 0;
    int n_arguments = 0;
    for (int round = 0; round < 60; ++round) {
      for (const AnswerPart& part : parts_of(row, use, writer.write())) {
        n_calls += part.kind == AnswerPart::Kind::kToolCall ? 1 : 0;
        n_arguments += part.call.arguments.find(':') != std::string::npos ? 1 : 0;
      }
    }
    EXPECT_GT(n_calls, 30) << row.name;
    EXPECT_GT(n_arguments, 10) << row.name;
  }
}

TEST(ToolGrammarAcceptsTest, WhatModelsWriteIsAllowed) {
  struct Case {
    std::string_view syntax;
    std::string text;
  };
  const std::vector<Case> cases = {
      {"hermes",
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
      {"qwen-xml",
       "<tool_call>\n<function=weather>\n<parameter=city>\na <b> </c>\n</parameter>\n"
       "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
      {"glm",
       "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
       "<arg_key>area</arg_key>\n<arg_value>[true]</arg_value>\n</tool_call>"},
      {"glm", "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"},
      {"llama3", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}"},
      {"mistral", "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}]"},
      {"mistral-args", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\", \"days\": 2}"},
      {"lfm2", "<|tool_call_start|>[weather(city=\"Rome\", days=2), now()]<|tool_call_end|>"},
      {"olmo3", "<function_calls>\nweather(city=\"Rome\", area=[true])\nnow()\n</function_calls>"},
      {"llama4-python", "[weather(city=\"Rome\")]"},
      {"llama4", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}"},
      {"gemma4",
       "<|tool_call>call:weather{city:<|\"|>a <b> "
       "\"c\"<|\"|>,days:3,unit:<|\"|>C<|\"|>,area:[true]}"
       "<tool_call|><|tool_call>call:now{}<tool_call|>"},
      {"command-r7b",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", "
       "\"parameters\": {\"city\": \"Rome\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": "
       "\"now\", \"parameters\": {}}\n]<|END_ACTION|>"},
      {"phi4-mini", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>"},
      {"functools", "functools[{\"name\": \"now\", \"arguments\": {}}]"},
      {"glm4", "weather\n{\"city\": \"Rome\"}<|assistant|>now\n{}"},
      {"command-r", "Action: ```json\n[\n    {\"tool_name\": \"now\", \"parameters\": {}}\n]```"},
      {"nemotron", "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>"},
      {"gpt-oss",
       "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
       "{\"city\": \"Rome\"}"},
  };
  for (const Case& each : cases) {
    for (const ChatSyntax& row : chat_syntaxes()) {
      if (row.name != each.syntax) continue;
      const ToolUse use = two_tools(ToolChoice::kRequired);
      const qsf::GrammarRules rules = rules_of(*tool_grammar(row, use, ""));
      EXPECT_TRUE(qsf::SlowMatcher(rules).matches(each.text)) << each.text;
      EXPECT_FALSE(qsf::SlowMatcher(rules).matches("x" + each.text)) << each.text;
    }
  }
}

// Texts between tags end at the first marker, and hold all that only begins like it.
TEST(ToolGrammarAcceptsTest, BareTextsHoldNoMarker) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    if (row.name != "glm") continue;
    const ToolUse use = two_tools(ToolChoice::kRequired);
    const qsf::GrammarRules rules = rules_of(*tool_grammar(row, use, ""));
    for (const char* value :
         {"", "<", "</", "</arg_value", "<<//", "</arg_<</arg_value <", "</arg_key>"}) {
      const std::string text = "<tool_call>weather<arg_key>city</arg_key><arg_value>" +
                               std::string(value) + "</arg_value></tool_call>";
      EXPECT_TRUE(qsf::SlowMatcher(rules).matches(text)) << text;
    }
    const std::string marker =
        "<tool_call>weather<arg_key>city</arg_key><arg_value>a</arg_value>b</arg_value></"
        "tool_call>";
    EXPECT_FALSE(qsf::SlowMatcher(rules).matches(marker));
  }
}

}  // namespace
}  // namespace qsf_tools
