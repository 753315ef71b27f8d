// SPDX-License-Identifier: MIT

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/syntax/chat_syntax_table.h"

namespace qsf_tools {
namespace {

using testing::HasSubstr;

constexpr char kSchema[] =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["days"]})";

const ChatSyntax& row_of(std::string_view name) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << name;
  return chat_syntaxes().back();
}

ToolUse one_tool(ToolChoice choice, bool parallel) {
  ToolUse use;
  use.tools.push_back({.name = "weather", .parameters = kSchema});
  use.choice = choice;
  use.parallel = parallel;
  return use;
}

std::string grammar_of(std::string_view syntax, ToolChoice choice, bool parallel,
                       std::string_view trigger = "", std::string_view prompt = "") {
  const std::optional<ToolGrammar> made =
      tool_grammar(row_of(syntax), one_tool(choice, parallel), prompt);
  if (!made) return "nothing";
  EXPECT_EQ(made->trigger, trigger) << syntax;
  return made->grammar;
}

std::string json(const std::string& schema = kSchema) {
  return " %json " + schema + " ";
}

TEST(ToolGrammarTest, RequiredCallsOfEachSyntax) {
  const auto required = [](std::string_view syntax) {
    return grammar_of(syntax, ToolChoice::kRequired, /*parallel=*/false);
  };
  EXPECT_EQ(required("hermes"), R"(tool-0 ::= "\n{\"name\": \"weather\", \"arguments\": ")" +
                                    json() +
                                    R"("}\n</tool_call>"
call ::= tool-0
root ::= "<tool_call>" call
)");
  EXPECT_EQ(required("mistral"), R"(tool-0 ::= "{\"name\": \"weather\", \"arguments\": ")" +
                                     json() +
                                     R"("}"
call ::= tool-0
root ::= "[TOOL_CALLS]" "[" call "]"
)");
  EXPECT_EQ(required("mistral-args"), R"(tool-0 ::= "weather" "[ARGS]")" + json() + R"(
call ::= tool-0
root ::= "[TOOL_CALLS]" call
)");
  EXPECT_EQ(required("llama3"), R"(tool-0 ::= "{\"name\": \"weather\", \"parameters\": ")" +
                                    json() +
                                    R"("}"
call ::= tool-0
root ::= call
)");
  EXPECT_EQ(required("kimi"),
            R"(tool-0 ::= "functions.weather" ":" [0-9]+ "<|tool_call_argument_begin|>")" + json() +
                R"("<|tool_call_end|>"
call ::= tool-0
root ::= "<|tool_calls_section_begin|>" "<|tool_call_begin|>" call "<|tool_calls_section_end|>"
)");
  EXPECT_EQ(
      required("gpt-oss"),
      R"(tool-0 ::= "<|channel|>commentary to=functions.weather" " " "<|constrain|>"? "json<|message|>")" +
          json() + R"(
call ::= tool-0
root ::= call
)");
}

TEST(ToolGrammarTest, TaggedArguments) {
  const std::string grammar = grammar_of("qwen-xml", ToolChoice::kRequired, /*parallel=*/false);
  EXPECT_NE(grammar.find(R"(tool-0-0 ::= "<parameter=city>\n" text "\n</parameter>\n")"),
            std::string::npos)
      << grammar;
  EXPECT_NE(
      grammar.find(
          R"(tool-0-1 ::= "<parameter=days>\n" %json {"type": "integer"} "\n</parameter>\n")"),
      std::string::npos)
      << grammar;
  EXPECT_NE(
      grammar.find(
          R"(tool-0 ::= "\n<function=weather>\n" tool-0-0? tool-0-1 "</function>\n</tool_call>")"),
      std::string::npos)
      << grammar;
  EXPECT_NE(grammar_of("glm", ToolChoice::kRequired, false)
                .find(R"(tool-0 ::= "weather" "\n"? tool-0-0? tool-0-1 "</tool_call>")"),
            std::string::npos);
}

// Commas stand between the arguments that are there.
TEST(ToolGrammarTest, ArgumentsOfPython) {
  ToolUse use = one_tool(ToolChoice::kRequired, /*parallel=*/true);
  use.tools[0].parameters =
      R"({"properties": {"a": {"type": "number"}, "b": {"type": "boolean"}, "c": {}, "d": {}},
          "required": ["c"]})";
  EXPECT_EQ(tool_grammar(row_of("lfm2"), use, "")->grammar,
            R"gbnf(tool-0-0 ::= "a=" %json {"type": "number"}
tool-0-1 ::= "b=" ("True" | "False" | %json {"type": "boolean"})
tool-0-more-1 ::= (", " tool-0-1)? tool-0-more-2
tool-0-2 ::= "c=" %json {}
tool-0-more-2 ::= ", " tool-0-2 tool-0-more-3
tool-0-3 ::= "d=" %json {}
tool-0-more-3 ::= (", " tool-0-3)?
tool-0 ::= "weather(" (tool-0-0 tool-0-more-1 | tool-0-1 tool-0-more-2 | tool-0-2 tool-0-more-3) ")"
call ::= tool-0
root ::= "<|tool_call_start|>" "[" call (", " call)* "]<|tool_call_end|>"
)gbnf");
  use.tools[0].parameters = R"({"properties": {"a": {}}})";
  EXPECT_NE(tool_grammar(row_of("olmo3"), use, "")
                ->grammar.find(R"gbnf(tool-0 ::= "weather(" (tool-0-0)? ")")gbnf"),
            std::string::npos);
  EXPECT_EQ(grammar_of("llama4-python", ToolChoice::kAuto, /*parallel=*/true), "nothing");
  EXPECT_EQ(grammar_of("llama4", ToolChoice::kAuto, /*parallel=*/true), "nothing");
}

// Parameters may be described elsewhere, by their names alone, or not at all.
TEST(ToolGrammarTest, SchemasWithoutProperties) {
  ToolUse use = one_tool(ToolChoice::kRequired, /*parallel=*/false);
  const auto grammar = [&](std::string_view row, const char* schema) {
    use.tools[0].parameters = schema;
    const std::string all = tool_grammar(row_of(row), use, "")->grammar;
    return all.substr(0, all.find("call ::= "));
  };
  const char* const kReference =
      R"({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/B"}},
          "required": ["a"]}, "B": {"type": "null"}}})";
  EXPECT_THAT(grammar("lfm2", kReference),
              HasSubstr(R"(tool-0-0 ::= "a=" %json {"$defs": {"B": {"type": "null"}}, )"));
  EXPECT_THAT(grammar("lfm2", kReference), HasSubstr(R"gbnf("weather(" (tool-0-0) ")")gbnf"));
  EXPECT_EQ(grammar("lfm2", R"({"type": "object", "required": ["b"]})"),
            R"gbnf(tool-0-0 ::= "b=" %json {}
tool-0-other ::= any-name "=" %json {}
tool-0-more-1 ::= (", " tool-0-other)*
tool-0 ::= "weather(" (tool-0-0 tool-0-more-1) ")"
)gbnf");
  EXPECT_EQ(grammar("gemma4", R"({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})"),
            R"gbnf(tool-0-other ::= any-name ":" %json {}
tool-0-more-0 ::= ("," tool-0-other)*
tool-0 ::= "call:weather{" (tool-0-other tool-0-more-0)? "}<tool_call|>"
)gbnf");
  EXPECT_EQ(
      grammar("qwen-xml", R"({"additionalProperties": {"type": "integer"}})"),
      R"gbnf(tool-0-other ::= "<parameter=" any-name ">\n" %json {"type": "integer"} "\n</parameter>\n"
tool-0 ::= "\n<function=weather>\n" tool-0-other* "</function>\n</tool_call>"
)gbnf");
  for (const char* none : {"", R"({"properties": {}})", R"({"additionalProperties": false})",
                           R"({"properties": {}, "additionalProperties": true})"}) {
    EXPECT_EQ(grammar("lfm2", none), "tool-0 ::= \"weather(\" \"\" \")\"\n") << none;
  }
  // References that lead nowhere, or in circles.
  for (const char* wrong : {R"({"$ref": "#/a"})", R"({"$ref": "#"})", R"({"$ref": 1})",
                            R"({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})"}) {
    EXPECT_THAT(grammar("lfm2", wrong), HasSubstr("any-name")) << wrong;
  }
}

TEST(ToolGrammarTest, TextsBetweenMarkersThatMayBeNothing) {
  ToolUse use = one_tool(ToolChoice::kRequired, /*parallel=*/false);
  use.tools[0].parameters =
      R"({"properties": {"a": {"type": ["string", "null"], "enum": ["C", null]},
          "b": {"type": ["null", "string"]}, "c": {"type": "string"}}})";
  const std::string gemma = tool_grammar(row_of("gemma4"), use, "")->grammar;
  EXPECT_THAT(gemma, HasSubstr(R"(tool-0-0 ::= "a:" ("<|\"|>C<|\"|>" | "null"))"));
  EXPECT_THAT(gemma, HasSubstr(R"(tool-0-1 ::= "b:" ("<|\"|>" text "<|\"|>" | "null"))"));
  EXPECT_THAT(gemma, HasSubstr("tool-0-2 ::= \"c:\" \"<|\\\"|>\" text \"<|\\\"|>\"\n"));
}

TEST(ToolGrammarTest, PartsOfSchemasKeepTheirDefinitions) {
  ToolUse use = one_tool(ToolChoice::kRequired, false);
  use.tools[0].parameters =
      R"({"$defs": {"D": {"type": "number"}}, "properties": {"a": {"$ref": "#/$defs/D"}, "b": {},
          "c": {"type": "string", "enum": ["x", "y\"z"]}}})";
  const std::string grammar = tool_grammar(row_of("glm"), use, "")->grammar;
  EXPECT_NE(grammar.find(R"(%json {"$defs": {"D": {"type": "number"}}, "$ref": "#/$defs/D"} )"),
            std::string::npos)
      << grammar;
  // Only where there are references.
  EXPECT_NE(grammar.find(R"(%json {} )"), std::string::npos) << grammar;
  EXPECT_NE(grammar.find(R"(("x" | "y\"z"))"), std::string::npos) << grammar;
}

// With the definitions that they need alone, each of many parameters may refer to some.
TEST(ToolGrammarTest, DefinitionsThatParametersNeed) {
  ToolUse use = one_tool(ToolChoice::kRequired, false);
  use.tools[0].parameters =
      R"({"$defs": {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {"$ref": "#/definitions/C"},
          "D": {"$ref": "#/$defs/D"}, "x/y": {}}, "definitions": {"C": {"type": "null"}},
          "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/definitions/C/type"},
          "d": {"anyOf": [{"$ref": "#/$defs/D"}]}, "e": {"$ref": "#/$defs/x~1y"},
          "f": {"$ref": "#/$defs/E", "$defs": {"E": {}}}}})";
  const std::string grammar = tool_grammar(row_of("lfm2"), use, "")->grammar;
  const std::string a =
      R"("A": {"items": {"$ref": "#/$defs/B"}}, "B": {"$ref": "#/definitions/C"})";
  const std::string c = R"("definitions": {"C": {"type": "null"}})";
  const std::string d = R"("D": {"$ref": "#/$defs/D"})";
  EXPECT_THAT(grammar, HasSubstr("\"a=\" %json {\"$defs\": {" + a + "}, " + c + ", \"$ref\": "));
  EXPECT_THAT(grammar, HasSubstr("\"b=\" %json {" + c + ", \"$ref\": "));
  EXPECT_THAT(grammar, HasSubstr("\"d=\" %json {\"$defs\": {" + d + "}, \"anyOf\": "));
  EXPECT_THAT(grammar,
              HasSubstr("\"e=\" %json {\"$defs\": {" + a + ", " + d + R"(, "x/y": {}}, )"));
  EXPECT_THAT(grammar, HasSubstr(R"("f=" %json {"$ref": "#/$defs/E", "$defs")"));
}

// Definitions that each of many parameters refers to are written up to the bound, not for each.
TEST(ToolGrammarTest, LargeDefinitionsOfManyParameters) {
  constexpr std::size_t kDefinitionBytes = 500'000;
  ToolUse use = one_tool(ToolChoice::kRequired, false);
  std::string& schema = use.tools[0].parameters;
  schema = R"({"$defs": {"D": {"const": ")" + std::string(kDefinitionBytes, 'd') +
           R"("}}, "properties": {)";
  for (int i = 0; i < 400; ++i) {
    schema += (i > 0 ? ", \"p" : "\"p") + std::to_string(i) + R"(": {"$ref": "#/$defs/D"})";
  }
  schema += "}}";
  for (const ChatSyntax& row : chat_syntaxes()) {
    const std::size_t n_bytes = tool_grammar(row, use, "")->grammar.size();
    EXPECT_GT(n_bytes, kMaxToolGrammarBytes) << row.name;
    EXPECT_LT(n_bytes, 2 * kDefinitionBytes) << row.name;
  }
  // Those that none refers to are no part of the grammars that write parameters one by one.
  for (std::size_t at = 0; (at = schema.find("$ref", at)) != std::string::npos;) {
    schema.replace(at, 4, "title");
  }
  for (const std::string_view row : {"glm", "qwen-xml", "lfm2", "gemma4"}) {
    EXPECT_LT(tool_grammar(row_of(row), use, "")->grammar.size(), kMaxToolGrammarBytes) << row;
  }
}

// The time that a schema takes grows with its length: read again for each parameter, this one took
// longer than a test may.
TEST(ToolGrammarTest, ManyParametersThatAreRequired) {
  ToolUse use = one_tool(ToolChoice::kRequired, false);
  std::string required;
  for (int i = 0; i < 150'000; ++i) {
    required += (i > 0 ? ", \"p" : "\"p") + std::to_string(i) + "\"";
  }
  std::string& schema = use.tools[0].parameters;
  schema = "{\"properties\": {";
  for (int i = 0; i < 2'000; ++i) {
    schema += (i > 0 ? ", \"p" : "\"p") + std::to_string(i) + "\": {}";
  }
  schema += "}, \"required\": [" + required + "]}";
  for (const std::string_view row : {"glm", "qwen-xml", "lfm2", "gemma4"}) {
    const std::string grammar = tool_grammar(row_of(row), use, "")->grammar;
    EXPECT_NE(grammar.find("tool-0-1999 ::= "), std::string::npos) << row;
    EXPECT_EQ(grammar.find("tool-0-1999?"), std::string::npos) << row;
  }
}

TEST(ToolGrammarTest, TriggersWhereTheModelChooses) {
  EXPECT_EQ(grammar_of("hermes", ToolChoice::kAuto, /*parallel=*/true, "<tool_call>"),
            R"(tool-0 ::= "\n{\"name\": \"weather\", \"arguments\": ")" + json() +
                R"("}\n</tool_call>"
call ::= tool-0
root ::= call ("\n<tool_call>" call)*
)");
  EXPECT_EQ(grammar_of("mistral", ToolChoice::kAuto, /*parallel=*/true, "[TOOL_CALLS]"),
            R"(tool-0 ::= "{\"name\": \"weather\", \"arguments\": ")" + json() + R"("}"
call ::= tool-0
root ::= "[" call (", " call)* "]"
)");
  EXPECT_EQ(
      grammar_of("gpt-oss", ToolChoice::kAuto, /*parallel=*/true, " to=functions."),
      R"(tool-0 ::= "weather" "<|channel|>commentary"? " " "<|constrain|>"? "json<|message|>")" +
          json() + R"(
call ::= tool-0
root ::= call
)");
  for (const char* row : {"llama3", "llama4-python", "glm4", "functools", "command-r"}) {
    EXPECT_EQ(grammar_of(row, ToolChoice::kAuto, /*parallel=*/true), "nothing") << row;
  }
  EXPECT_EQ(grammar_of("hermes", ToolChoice::kNone, /*parallel=*/true), "nothing");
}

TEST(ToolGrammarTest, RequiredCallsWaitForReasoning) {
  const std::string hermes =
      grammar_of("hermes", ToolChoice::kRequired, false, "</think>", "assistant\n<think>\n");
  EXPECT_NE(hermes.find(R"(root ::= [ \n]{0,4} "<tool_call>" call)"), std::string::npos) << hermes;
  const std::string command = grammar_of("command-r7b", ToolChoice::kRequired, false,
                                         "<|END_THINKING|>", "<|CHATBOT_TOKEN|><|START_THINKING|>");
  EXPECT_NE(command.find(R"(root ::= [ \n]{0,4} "<|START_ACTION|>" )"), std::string::npos)
      << command;
  const std::string gpt_oss = grammar_of("gpt-oss", ToolChoice::kRequired, false, "<|end|>",
                                         "<|channel|>analysis<|message|>");
  EXPECT_NE(gpt_oss.find(R"(root ::= "<|start|>assistant" call)"), std::string::npos) << gpt_oss;
}

TEST(ToolGrammarTest, NamedToolsAlone) {
  ToolUse use = one_tool(ToolChoice::kNamed, false);
  use.tools.push_back({.name = "a\"b", .parameters = ""});
  use.named = "a\"b";
  const std::string grammar = tool_grammar(row_of("hermes"), use, "")->grammar;
  EXPECT_EQ(grammar.find("weather"), std::string::npos);
  EXPECT_NE(grammar.find(R"(\"name\": \"a\\\"b\")"), std::string::npos) << grammar;
  EXPECT_NE(
      grammar.find(R"(%json {"type": "object", "properties": {}, "additionalProperties": false})"),
      std::string::npos);
  use.named = "c";
  EXPECT_FALSE(tool_grammar(row_of("hermes"), use, ""));
  EXPECT_EQ(tool_schema_grammar({.name = "x", .parameters = "{}"}), "root ::= %json {}\n");
}

}  // namespace
}  // namespace qsf_tools
