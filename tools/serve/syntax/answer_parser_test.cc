// SPDX-License-Identifier: MIT
//
// Answers of each syntax, taken apart whole and in every cut.

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/syntax/chat_syntax_table.h"

namespace qsf_tools {
namespace {

using Lines = std::vector<std::string>;

const ChatSyntax& row_named(std::string_view name) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << name;
  return chat_syntaxes().back();
}

ToolUse weather_tools() {
  ToolUse use;
  use.tools.push_back({.name = "weather", .parameters = R"({"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "hourly": {"type": "boolean"},
      "places": {"type": "array", "items": {"type": "string"}}, "code": {"type": "string"},
      "maybe": {"type": ["string", "null"]}, "any": {}}})"});
  use.tools.push_back({.name = "now", .parameters = ""});
  return use;
}

void append(Lines& lines, const std::vector<AnswerPart>& parts) {
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kToolCall) {
      lines.push_back("call " + part.call.name + " " + part.call.arguments);
      continue;
    }
    EXPECT_FALSE(part.text.empty());
    const std::string kind = part.kind == AnswerPart::Kind::kText ? "text " : "think ";
    if (!lines.empty() && lines.back().starts_with(kind)) {
      lines.back() += part.text;
    } else {
      lines.push_back(kind + part.text);
    }
  }
}

struct Answer {
  std::string syntax;
  std::string text;
  Lines expected;
  bool in_reasoning = false;
  ToolChoice choice = ToolChoice::kAuto;
};

// Cuts the answer before each of these bytes.
Lines take_apart(const Answer& answer, const std::vector<std::size_t>& cuts) {
  ToolUse use = weather_tools();
  use.choice = answer.choice;
  AnswerParser parser(row_named(answer.syntax), use, answer.in_reasoning);
  Lines lines;
  std::size_t at = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t end = i < cuts.size() ? cuts[i] : answer.text.size();
    std::vector<AnswerPart> parts;
    parser.push(std::string_view(answer.text).substr(at, end - at), parts);
    append(lines, parts);
    at = end;
  }
  std::vector<AnswerPart> parts;
  parser.finish(parts);
  append(lines, parts);
  return lines;
}

std::vector<std::size_t> every_byte(std::size_t n) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 1; i < n; ++i) cuts.push_back(i);
  return cuts;
}

#define FW_BAR "\xEF\xBD\x9C"
#define FW_BLANK "\xE2\x96\x81"
#define DS(words) "<" FW_BAR words FW_BAR ">"
#define DS_CALLS_BEGIN DS("tool" FW_BLANK "calls" FW_BLANK "begin")
#define DS_CALLS_END DS("tool" FW_BLANK "calls" FW_BLANK "end")
#define DS_CALL_BEGIN DS("tool" FW_BLANK "call" FW_BLANK "begin")
#define DS_CALL_END DS("tool" FW_BLANK "call" FW_BLANK "end")
#define DS_SEP DS("tool" FW_BLANK "sep")

const std::vector<Answer> kAnswers = {
    // Hermes, Qwen
    {"hermes", "Hello, world.", {"text Hello, world."}},
    {"hermes", "", {}},
    {"hermes", " \n", {"text  \n"}},
    {"hermes", " a", {"text  a"}},
    {"hermes",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
     {"call weather {\"city\": \"Rome\"}"}},
    {"hermes",
     "\nLet me see.\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"days\":1.0}}</tool_call>\n"
     "<tool_call>\n{\"arguments\": {}, \"name\": \"now\"}\n</tool_call>\n\nDone",
     {"text \nLet me see.\n", "call weather {\"days\":1.0}", "call now {}", "text Done"}},
    {"hermes", "<tool_call>{\"name\": \"now\"}</tool_call>", {"call now {}"}},
    {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": null}", {"call now {}"}},
    {"hermes",
     "<tool_call>[{\"name\": \"now\"}, {\"name\": \"weather\", \"parameters\": {}}]</tool_call>",
     {"call now {}", "call weather {}"}},
    {"hermes",
     "<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
     {"call now {\"a\": 1}"}},
    {"hermes",
     "<tool_call>{\"function\": {\"name\": \"now\", \"arguments\": {}}}</tool_call>",
     {"call now {}"}},
    {"hermes",
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"code\": \"}</tool_call>{\\\"\\\\\"}}"
     "</tool_call>.",
     {"call weather {\"code\": \"}</tool_call>{\\\"\\\\\"}", "text ."}},
    // no calls
    {"hermes",
     "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call> x",
     {"text <tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call> x"}},
    {"hermes", "<tool_call>[]</tool_call>", {"text <tool_call>[]</tool_call>"}},
    {"hermes",
     "<tool_call>[{\"name\": \"now\"}, 3]</tool_call>",
     {"text <tool_call>[{\"name\": \"now\"}, 3]</tool_call>"}},
    {"hermes",
     "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>",
     {"text <tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>"}},
    {"hermes",
     "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\" 1}}</tool_call>",
     {"text <tool_call>{\"name\": \"now\", \"arguments\": {\"a\" 1}}</tool_call>"}},
    {"hermes",
     "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"",
     {"text <tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \""}},
    {"hermes",
     "<tool_call>{\"name\": 'now'}</tool_call>",
     {"text <tool_call>{\"name\": 'now'}</tool_call>"}},
    {"hermes",
     "The tag <tool_call> begins one, <tool_cal",
     {"text The tag <tool_call> begins one, <tool_cal"}},
    {"hermes", "<tool_call>", {"text <tool_call>"}},
    {"hermes",
     "<tool_call><tool_call>{\"name\": \"now\"}</tool_call>",
     {"text <tool_call>", "call now {}"}},
    {"hermes",
     "<tool_call>{\"name\": \"now\"}</tool_call>",
     {"text <tool_call>{\"name\": \"now\"}</tool_call>"},
     false,
     ToolChoice::kNone},
    // reasoning
    {"hermes", "<think>\nHm, 2.\n\n</think>\n\nTwo.", {"think Hm, 2.", "text Two."}},
    {"hermes", "\n<think>a</think>", {"think a"}},
    {"hermes", "<think>\n\n</think>\n\nTwo.", {"text Two."}},
    {"hermes",
     "Hm.\n</think>\n\n<tool_call>{\"name\": \"now\"}</tool_call>",
     {"think Hm.", "call now {}"},
     true},
    {"hermes", "\n\n</think>\n\n", {}, true},
    {"hermes", "cut short \n", {"think cut short"}, true},
    {"hermes", "x <think>y</think>", {"text x <think>y</think>"}},
    {"hermes", "<thinking>y", {"text <thinking>y"}},
    {"hermes", "[THINK]a[/THINK]b", {"think a", "text b"}},
    {"hermes",
     "<think>I may <tool_call>{\"name\": \"now\"}</tool_call> or not.</think>No.",
     {"think I may <tool_call>{\"name\": \"now\"}</tool_call> or not.", "text No."}},
    {"hermes",
     "<think>So \n<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_call>{\"name\": \"now\"}"
     "</tool_call>\n",
     {"think So", "call now {}", "call now {}"}},
    {"hermes",
     "<think>So \n<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_call>{\"name\":",
     {"think So \n<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_call>{\"name\":"}},
    {"hermes", "<think>a<tool_call> b</think>c", {"think a<tool_call> b", "text c"}},
    {"hermes",
     "<think>a<tool_call>{\"name\": \"now\"}</tool_call></think>c",
     {"think a<tool_call>{\"name\": \"now\"}</tool_call>", "text c"}},
    {"hermes",
     "<think>a<tool_call>{\"name\": \"now\"}</tool_call> b\n<tool_call>{\"name\": \"weather\"}"
     "</tool_call>",
     {"think a<tool_call>{\"name\": \"now\"}</tool_call> b", "call weather {}"}},
    // Qwen3-Coder
    {"qwen-xml",
     "Ok.\n<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n<parameter=hourly>\nTrue\n</parameter>\n</function>\n</"
     "tool_call>",
     {"text Ok.\n", "call weather {\"city\": \"New\\nYork\", \"days\": 3, \"hourly\": true}"}},
    {"qwen-xml", "<function=now>\n</function>", {"call now {}"}},
    {"qwen-xml", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>", {"call now {}"}},
    {"qwen-xml",
     "<tool_call>\n<function=weather>\n<parameter=code>\n\"a\"</parameter> "
     "</function></tool_call>\n"
     "</parameter>\n<parameter=places>\n[\"a\", \"b\"]\n</parameter>\n</function>\n</tool_call>",
     {"call weather {\"code\": \"\\\"a\\\"\"}",
      "text </parameter>\n<parameter=places>\n[\"a\", \"b\"]\n"
      "</parameter>\n</function>\n</tool_call>"}},
    {"qwen-xml",
     "<tool_call>\n<function=weather>\n<parameter=code>\nx </parameter> "
     "y</tool_call>\n</parameter>\n"
     "<parameter=maybe>\nnull\n</parameter>\n<parameter=any>\n[1]\n</parameter>\n"
     "<parameter=unknown>\nsome "
     "text\n</parameter>\n<parameter=days>\nthree\n</parameter></function>",
     {"call weather {\"code\": \"x </parameter> y</tool_call>\", \"maybe\": null, \"any\": [1], "
      "\"unknown\": \"some text\", \"days\": \"three\"}"}},
    {"qwen-xml",
     "<tool_call>\n<function=other>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
     {"text "
      "<tool_call>\n<function=other>\n<parameter=a>\n1\n</parameter>\n</function>\n</"
      "tool_call>"}},
    {"qwen-xml",
     "<tool_call>\n<function=weather>\n<parameter=city>\nRo",
     {"text <tool_call>\n<function=weather>\n<parameter=city>\nRo"}},
    {"qwen-xml",
     "<tool_call>\n<function=weather>\nRome</function>",
     {"text <tool_call>\n<function=weather>\nRome</function>"}},
    // GLM
    {"glm",
     "<think>hm</think>Look:\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</"
     "arg_value>\n"
     "<arg_key>places</arg_key>\n<arg_value>[\"x\", {\"y\": "
     "1}]</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
     {"think hm", "text Look:\n",
      "call weather {\"city\": \"Rome\", \"places\": [\"x\", {\"y\": 1}]}", "call now {}"}},
    {"glm",
     "<tool_call>weather<arg_key>days</arg_key><arg_value>2</arg_value><arg_key>code</arg_key>"
     "<arg_value>a</arg_value>b</arg_value></tool_call>",
     {"call weather {\"days\": 2, \"code\": \"a</arg_value>b\"}"}},
    {"glm",
     "<tool_call>weather<arg_key>days</arg_key>2</tool_call>",
     {"text <tool_call>weather<arg_key>days</arg_key>2</tool_call>"}},
    // GLM 4
    {"glm4", "\nweather\n{\"city\": \"Rome\"}", {"call weather {\"city\": \"Rome\"}"}},
    {"glm4",
     "<think>Hm</think>now\n{}<|assistant|>weather\n{\"days\": 2}\nnow\n{}",
     {"think Hm", "call now {}", "call weather {\"days\": 2}", "call now {}"}},
    {"glm4", "I look.<|assistant|>now\n {}", {"text I look.", "call now {}"}},
    {"glm4", "now\n{} Ok", {"call now {}", "text Ok"}},
    {"glm4", "now", {"text now"}},
    {"glm4", "now\n", {"text now\n"}},
    {"glm4", "nowhere\n{}", {"text nowhere\n{}"}},
    {"glm4", "now\nthat", {"text now\nthat"}},
    {"glm4", "now {}", {"text now {}"}},
    {"glm4", "other\n{}", {"text other\n{}"}},
    {"glm4", "now\n{}", {"text now\n{}"}, false, ToolChoice::kNone},
    // Llama 3
    {"llama3",
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}",
     {"call weather {\"city\": \"Rome\"}"}},
    {"llama3",
     "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
     {"call now {}"}},
    {"llama3",
     "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}",
     {"call now {}", "call now {}"}},
    {"llama3", "{\"name\": \"now\", \"parameters\": {}}; done", {"call now {}", "text ; done"}},
    {"llama3", "{\"city\": \"Rome\"} is JSON", {"text {\"city\": \"Rome\"} is JSON"}},
    {"llama3", "{not JSON", {"text {not JSON"}},
    {"llama3",
     "As JSON: {\"name\": \"now\", \"parameters\": {}}",
     {"text As JSON: {\"name\": \"now\", \"parameters\": {}}"}},
    {"llama3", "<|python_tag|>print(1)", {"text <|python_tag|>print(1)"}},
    // Mistral
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"days\": 1}, \"id\": "
     "\"abcdefghi\"}, "
     "{\"name\": \"now\", \"arguments\": {}}]",
     {"call weather {\"days\": 1}", "call now {}"}},
    {"mistral", "a [TOOL", {"text a [TOOL"}},
    {"mistral", "[TOOL_CALLS][TOOL_CALLS]", {"text [TOOL_CALLS][TOOL_CALLS]"}},
    {"mistral-args",
     "Ok[TOOL_CALLS]weather[ARGS]{\"city\": \"[TOOL_CALLS]\"}[TOOL_CALLS]now[CALL_ID]x[ARGS]{}",
     {"text Ok", "call weather {\"city\": \"[TOOL_CALLS]\"}", "call now {}"}},
    {"mistral-args",
     "[THINK]So.[/THINK][TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]",
     {"think So.", "call now {}"}},
    {"mistral-args", "[TOOL_CALLS]weather[ARGS]none", {"text [TOOL_CALLS]weather[ARGS]none"}},
    {"granite", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", {"call now {}"}},
    // LFM2
    {"lfm2",
     "Ok.<|tool_call_start|>[weather(city='Rome', days=3, hourly=True, places=[\"a\", 'b'])]"
     "<|tool_call_end|>I look.",
     {"text Ok.",
      "call weather {\"city\": \"Rome\", \"days\": 3, \"hourly\": true, \"places\": [\"a\", "
      "\"b\"]}",
      "text I look."}},
    {"lfm2",
     "<think>So.</think><|tool_call_start|>[now(), weather(city=\"[now()]<|tool_call_end|>\")]",
     {"think So.", "call now {}", "call weather {\"city\": \"[now()]<|tool_call_end|>\"}"}},
    {"lfm2", "<|tool_call_start|>now()<|tool_call_end|>", {"call now {}"}},
    {"lfm2", "<|tool_call_start|> [ now ( ) , ] <|tool_call_end|>", {"call now {}"}},
    {"lfm2",
     "<|tool_call_start|>[{\"name\": \"weather\", \"arguments\": {\"days\": 1}}]<|tool_call_end|>",
     {"call weather {\"days\": 1}"}},
    {"lfm2",
     "<|tool_call_start|>[now(), other(a=1)]<|tool_call_end|>",
     {"text <|tool_call_start|>[now(), other(a=1)]<|tool_call_end|>"}},
    {"lfm2",
     "<|tool_call_start|>[weather(city=Rome)]<|tool_call_end|>",
     {"text <|tool_call_start|>[weather(city=Rome)]<|tool_call_end|>"}},
    {"lfm2",
     "<|tool_call_start|>[now() now()]<|tool_call_end|>",
     {"text <|tool_call_start|>[now() now()]<|tool_call_end|>"}},
    {"lfm2", "<|tool_call_start|>[weather(city='Ro", {"text <|tool_call_start|>[weather(city='Ro"}},
    {"lfm2", "<|tool_call_start|>[now()", {"text <|tool_call_start|>[now()"}},
    {"lfm2", "<|tool_call_start|>[]", {"text <|tool_call_start|>[]"}},
    {"lfm2",
     R"x(<|tool_call_start|>[weather(city="a]b", code='c)d'), weather(code="[1, (2")])x"
     R"x(<|tool_call_end|>[x])x",
     {R"x(call weather {"city": "a]b", "code": "c)d"})x", R"x(call weather {"code": "[1, (2"})x",
      "text [x]"}},
    {"lfm2",
     R"x(<|tool_call_start|>[weather(code="C:\\"), weather(code='"\'"'), now()])x",
     {R"x(call weather {"code": "C:\\"})x", R"x(call weather {"code": "\"'\""})x", "call now {}"}},
    // OLMo 3
    {"olmo3",
     "Two calls.\n<function_calls>\nweather(city='Rome's', maybe=null, hourly=false)\nnow()\n"
     "</function_calls>",
     {"text Two calls.\n",
      "call weather {\"city\": \"Rome's\", \"maybe\": null, \"hourly\": false}", "call now {}"}},
    {"olmo3",
     "<function_calls>now(), weather(any={\"a\": [1]})",
     {"call now {}", "call weather {\"any\": {\"a\": [1]}}"}},
    {"olmo3",
     "<function_calls>\nnow()\nthat is all\n</function_calls>",
     {"text <function_calls>\nnow()\nthat is all\n</function_calls>"}},
    // Llama 4
    {"llama4-python",
     "[weather(city=\"Rome\", days=\"3\"), now()]",
     {"call weather {\"city\": \"Rome\", \"days\": \"3\"}", "call now {}"}},
    {"llama4-python",
     R"x([weather(city="a]b", code="\"), now()]"), now()] Ok)x",
     {R"x(call weather {"city": "a]b", "code": "\"), now()]"})x", "call now {}", "text Ok"}},
    {"llama4-python", "<|python_start|>[now()]<|python_end|>", {"call now {}"}},
    {"llama4-python", "[{\"name\": \"now\", \"parameters\": {}}]", {"call now {}"}},
    {"llama4-python", "[now()] is a call", {"call now {}", "text is a call"}},
    {"llama4-python", "See [now()].", {"text See [now()]."}},
    {"llama4-python", "[now](http://x)", {"text [now](http://x)"}},
    {"llama4-python", "[THINK]So.[/THINK][now()]", {"think So.", "call now {}"}},
    {"llama4-python", "[1, 2]", {"text [1, 2]"}},
    {"llama4", "{\"name\": \"now\", \"parameters\": {}}", {"call now {}"}},
    {"llama4",
     "<|python_start|>{\"name\": \"weather\", \"parameters\": {\"days\": 1}}<|python_end|>",
     {"call weather {\"days\": 1}"}},
    {"llama4",
     "<|python_start|><|python_end|>{\"name\": \"now\", \"parameters\": {}}",
     {"call now {}"}},
    {"llama4",
     "<|python_start|>I look.<|python_end|>{\"name\": \"weather\", \"parameters\": {\"days\": 1}}"
     "{\"name\": \"now\", \"parameters\": {}}",
     {"text I look.", "call weather {\"days\": 1}", "call now {}"}},
    {"llama4",
     "<|python_start|>{\"a\": 1}<|python_end|>\n{\"name\": \"now\", \"parameters\": {}} Ok.",
     {"text {\"a\": 1}", "call now {}", "text Ok."}},
    {"llama4", "<|python_start|>{1, 2}<|python_end|> {3}", {"text {1, 2}{3}"}},
    {"llama4", "<|python_start|>print(1)", {"text print(1)"}},
    {"llama4",
     "<|python_start|>{}<|python_end|>",
     {"text <|python_start|>{}<|python_end|>"},
     false,
     ToolChoice::kNone},
    {"llama4-python",
     "<|python_start|>[1]<|python_end|>[weather(days=1)]",
     {"text [1]", "call weather {\"days\": 1}"}},
    // Gemma 4
    {"gemma4",
     "<|channel>thought\nHm.\n<channel|>Ok.<|tool_call>call:weather{city:<|\"|>Rome's}<tool_call|>"
     "<|\"|>,days:3,hourly:true,any:{a:[1,<|\"|>b<|\"|>]}}<tool_call|><|tool_call>call:now{}"
     "<tool_call|>",
     {"think Hm.", "text Ok.",
      "call weather {\"city\": \"Rome's}<tool_call|>\", \"days\": 3, \"hourly\": true, "
      "\"any\": {\"a\": [1, \"b\"]}}",
      "call now {}"}},
    {"gemma4", "<|channel>thought\n<channel|>Two.", {"text Two."}},
    {"gemma4", "<|tool_call>now{}", {"call now {}"}},
    {"gemma4",
     "<|tool_call>call:now{}<|tool_call>call:weather{days:1}<tool_call|>",
     {"call now {}", "call weather {\"days\": 1}"}},
    {"gemma4", "<|tool_call>call:now{} Done.", {"call now {}", "text Done."}},
    {"gemma4",
     "<|tool_call>call:other{a:1}<tool_call|>",
     {"text <|tool_call>call:other{a:1}<tool_call|>"}},
    {"gemma4",
     "<|tool_call>call:weather{city:Rome}<tool_call|>",
     {"text <|tool_call>call:weather{city:Rome}<tool_call|>"}},
    {"gemma4",
     "<|tool_call>call:weather{city:<|\"|>Ro",
     {"text <|tool_call>call:weather{city:<|\"|>Ro"}},
    {"function-gemma",
     "<start_function_call>call:weather{city:<escape>Rome<escape>}<end_function_call>",
     {"call weather {\"city\": \"Rome\"}"}},
    {"gemma4",
     "<|tool_call>call:weather{city:true,code:007,days:3,hourly:True,maybe:None,any:null,places:[1]"
     "}"
     "<tool_call|>",
     {"call weather {\"city\": \"true\", \"code\": \"007\", \"days\": 3, \"hourly\": true, "
      "\"maybe\": null, \"any\": null, \"places\": [\"1\"]}"}},
    {"function-gemma",
     "<start_function_call>call:weather{hourly:false,city:<escape>false<escape>}"
     "<end_function_call>",
     {"call weather {\"hourly\": false, \"city\": \"false\"}"}},
    // Command R
    {"command-r",
     "Action: ```json\n[\n    {\n        \"tool_name\": \"weather\",\n        \"parameters\": {\n"
     "            \"city\": \"```\"\n        }\n    },\n    {\"tool_name\": \"now\", "
     "\"parameters\": {}}\n]\n```",
     {"call weather {\n            \"city\": \"```\"\n        }", "call now {}"}},
    {"command-r",
     "I look. Action:```json [{\"tool_name\": \"now\", \"parameters\": {}}]``` Ok",
     {"text I look. ", "call now {}", "text Ok"}},
    {"command-r", "Action:[{\"tool_name\": \"now\"}]", {"call now {}"}},
    {"command-r", "Action: run ```json", {"text Action: run ```json"}},
    {"command-r", "```json\n[1]\n```", {"text ```json\n[1]\n```"}},
    {"command-r",
     "Action: ```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]\n```",
     {"text Action: ```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]\n```"}},
    // Command R7B
    {"command-r7b",
     "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}},\n    {\"tool_call_id\": "
     "\"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
     {"think I look.", "call weather {\"city\": \"Rome\"}", "call now {}"}},
    {"command-r7b",
     " <|START_RESPONSE|>It is <co>warm</co: 0:[1]>.<|END_RESPONSE|>",
     {"text It is <co>warm</co: 0:[1]>."}},
    {"command-r7b",
     "Well. <|START_RESPONSE|>Warm.<|END_RESPONSE|>",
     {"text Well. Warm."},
     false,
     ToolChoice::kNone},
    {"command-r7b",
     "Hm.<|END_THINKING|>\n<|START_RESPONSE|>Two <|START_RESP",
     {"think Hm.", "text Two <|START_RESP"},
     true},
    {"command-r7b",
     "<|START_ACTION|>[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]<|END_ACTION|>",
     {"text <|START_ACTION|>[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]"
      "<|END_ACTION|>"}},
    {"hermes", "<|START_RESPONSE|>a", {"text <|START_RESPONSE|>a"}},
    // Phi-4-mini
    {"functools",
     "functools[{\"name\": \"weather\", \"arguments\": {\"days\": 1}}, {\"name\": \"now\", "
     "\"arguments\": {}}]",
     {"call weather {\"days\": 1}", "call now {}"}},
    {"functools", " functools[{\"name\": \"now\"}] ", {"call now {}"}},
    {"functools",
     "Write import functools, then functools[0] or functools",
     {"text Write import functools, then functools[0] or functools"}},
    {"phi4-mini",
     "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>",
     {"call now {}"}},
    {"phi4-mini",
     "<|tool_call|>{\"name\": \"now\", \"arguments\": {}}<|/tool_call|>.",
     {"call now {}", "text ."}},
    // Nemotron
    {"nemotron",
     "So.\n</think>\n\n<TOOLCALL>[{\"name\": \"weather\", \"arguments\": {\"days\": 1}}, "
     "{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>",
     {"think So.", "call weather {\"days\": 1}", "call now {}"},
     true},
    {"nemotron", "<TOOLCALL>[{\"name\": \"now\"", {"text <TOOLCALL>[{\"name\": \"now\""}},
    // Kimi
    {"kimi",
     "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_"
     "begin|>"
     "{\"city\": "
     "\"Rome\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     {"text Ok", "call weather {\"city\": \"Rome\"}", "call now {}"}},
    {"kimi",
     "<think>x<|tool_calls_section_begin|><|tool_call_begin|>functions.now:1<|tool_call_argument_"
     "begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     {"think x", "call now {}"}},
    {"kimi",
     "<|tool_call_begin|>functions.weather:12<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_call_begin|>now:3<|tool_call_argument_begin|>{}",
     {"call weather {}", "call now {}"}},
    {"kimi", "<|tool_calls_section_begin|>none", {"text <|tool_calls_section_begin|>none"}},
    // DeepSeek
    {"deepseek-r1",
     "Hm.</think>\n\nOk" DS_CALLS_BEGIN DS_CALL_BEGIN "function" DS_SEP "weather\n```json\n"
     "{\"city\": \"```\"}\n```" DS_CALL_END "\n" DS_CALL_BEGIN "function" DS_SEP
     "now\n```json\n{}\n```" DS_CALL_END DS_CALLS_END,
     {"think Hm.", "text Ok", "call weather {\"city\": \"```\"}", "call now {}"},
     true},
    {"deepseek-v3.1",
     DS_CALLS_BEGIN DS_CALL_BEGIN "weather" DS_SEP "{\"days\": 1}" DS_CALL_END DS_CALL_BEGIN
                                  "now" DS_SEP "{}" DS_CALL_END DS_CALLS_END "!",
     {"call weather {\"days\": 1}", "call now {}", "text !"}},
    {"deepseek-v3.1",
     DS_CALLS_BEGIN DS_CALL_BEGIN "other" DS_SEP "{}" DS_CALL_END DS_CALLS_END,
     {"text " DS_CALLS_BEGIN DS_CALL_BEGIN "other" DS_SEP "{}" DS_CALL_END DS_CALLS_END}},
    // gpt-oss
    {"gpt-oss",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Two.",
     {"think Hm.", "text Two."}},
    {"gpt-oss",
     "<|channel|>analysis<|message|>Call it.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.weather <|constrain|>json<|message|>{\"city\": \"<|end|>\"}",
     {"think Call it.", "call weather {\"city\": \"<|end|>\"}"}},
    {"gpt-oss",
     " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
     {"call now {}"}},
    {"gpt-oss",
     "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant to=functions.now"
     "<|channel|>commentary json<|message|>{} "
     "\n<|call|><|start|>assistant<|channel|>final<|message|>Done.<|return|>",
     {"text I will look.", "call now {}", "text \n\nDone."}},
    {"gpt-oss", "Plain text", {"text Plain text"}},
    {"gpt-oss",
     "<|channel|>commentary to=functions.now<|message|>{} That is all.<|call|>",
     {"call now {}", "text That is all."}},
    {"gpt-oss",
     "<|channel|>commentary to=functions.other json<|message|>{\"a\": 1}",
     {"text {\"a\": 1}"}},
    {"gpt-oss",
     "<|channel|>commentary to=functions.now json<|message|>{\"a\": ",
     {"text {\"a\": "}},
    {"gpt-oss",
     "<|channel|>commentary to=functions.now json<|message|>{}",
     {"text {}"},
     false,
     ToolChoice::kNone},
    {"gpt-oss", "<|channel|>comm", {}},
    {"gpt-oss",
     "Hm.<|end|><|start|>assistant<|channel|>final<|message|>2",
     {"think Hm.", "text 2"},
     true},
    {"gpt-oss",
     "<|channel|>analysis<|message|>a<|end|><|channel|>analysis<|message|>b<|end|>",
     {"think a\n\nb"}},
};

TEST(AnswerParserTest, TakesAnswersApart) {
  for (const Answer& answer : kAnswers) {
    EXPECT_EQ(take_apart(answer, {}), answer.expected) << answer.syntax << ": " << answer.text;
  }
}

// Whole, in two pieces at every place, byte by byte, and in random pieces.
void expect_same_in_all_cuts(const Answer& answer, std::mt19937& random) {
  const Lines whole = take_apart(answer, {});
  const std::size_t n = answer.text.size();
  ASSERT_EQ(take_apart(answer, every_byte(n)), whole) << answer.syntax << ": " << answer.text;
  for (std::size_t at = 1; at < n; ++at) {
    ASSERT_EQ(take_apart(answer, {at}), whole) << answer.syntax << ": " << answer.text << at;
  }
  for (int round = 0; round < 5; ++round) {
    std::vector<std::size_t> cuts;
    for (std::size_t at = 1; at < n; ++at) {
      if (random() % 8 == 0) cuts.push_back(at);
    }
    ASSERT_EQ(take_apart(answer, cuts), whole) << answer.syntax << ": " << answer.text;
  }
}

TEST(AnswerParserTest, CutsChangeNothing) {
  std::mt19937 random(30);
  for (const Answer& answer : kAnswers) expect_same_in_all_cuts(answer, random);
}

TEST(AnswerParserTest, EveryPrefixInEveryCut) {
  std::mt19937 random(31);
  for (const Answer& answer : kAnswers) {
    for (std::size_t n = 0; n < answer.text.size(); n += 1 + random() % 4) {
      Answer prefix = answer;
      prefix.text.resize(n);
      ASSERT_EQ(take_apart(prefix, every_byte(n)), take_apart(prefix, {}))
          << answer.syntax << ": " << prefix.text;
    }
  }
}

// Answers of pieces that mean something to some syntax, in any order.
TEST(AnswerParserTest, RandomAnswersInAllCuts) {
  const std::vector<std::string> common = {"a",
                                           " ",
                                           "\n",
                                           "<",
                                           "<think>",
                                           "</think>",
                                           "[THINK]",
                                           "[/THINK]",
                                           "<|channel>thought",
                                           "<channel|>",
                                           "<|START_THINKING|>",
                                           "<|END_THINKING|>",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "\"",
                                           "\\",
                                           ":",
                                           ",",
                                           ";",
                                           "{\"name\": \"now\"}",
                                           "\"name\": \"now\"",
                                           "{}",
                                           "now",
                                           "functions.now:0",
                                           "</",
                                           "```",
                                           "weather",
                                           "\n```json\n",
                                           "[CALL_ID]",
                                           "analysis",
                                           "final",
                                           "json",
                                           "commentary",
                                           "assistant",
                                           "True",
                                           "city",
                                           "now(",
                                           "weather(city='",
                                           "')",
                                           ")",
                                           "days=1"};
  std::mt19937 random(32);
  for (const ChatSyntax& row : chat_syntaxes()) {
    std::vector<std::string> pieces = common;
    for (const std::string_view marker :
         {row.section_begin, row.section_end, row.begin, row.end, row.before_name, row.separator,
          row.after_arguments, row.name_begin, row.name_end, row.key_begin, row.key_end,
          row.value_begin, row.value_end, row.body_end, row.quote, row.text_begin, row.text_end}) {
      for (int weight = 0; weight < 3 && !marker.empty(); ++weight) pieces.emplace_back(marker);
    }
    if (row.form == CallForm::kChannels) {
      for (const std::string_view marker :
           {ChannelMarkers::kStart, ChannelMarkers::kChannel, ChannelMarkers::kMessage,
            ChannelMarkers::kEnd, ChannelMarkers::kCall, ChannelMarkers::kReturn}) {
        for (int weight = 0; weight < 4; ++weight) pieces.emplace_back(marker);
      }
    }
    for (int round = 0; round < 300; ++round) {
      Answer answer = {std::string(row.name), "", {}, random() % 3 == 0};
      for (std::size_t n = 1 + random() % 14; n > 0; --n) {
        answer.text += pieces[random() % pieces.size()];
      }
      expect_same_in_all_cuts(answer, random);
      if (HasFatalFailure()) return;
    }
  }
}

// Names and headers that never end are given up at the same byte in every cut.
TEST(AnswerParserTest, LongNamesAreText) {
  std::mt19937 random(33);
  for (const std::size_t n : {255U, 256U, 257U, 300U, 330U, 511U, 512U, 513U, 600U}) {
    const std::string name(n, 'n');
    expect_same_in_all_cuts({"glm", "<tool_call>" + name + "</tool_call>", {}}, random);
    expect_same_in_all_cuts({"mistral-args", "[TOOL_CALLS]" + name + "[ARGS]{}", {}}, random);
    expect_same_in_all_cuts({"lfm2", "<|tool_call_start|>[" + name + "()]", {}}, random);
    expect_same_in_all_cuts(
        {"qwen-xml",
         "<tool_call><function=now><parameter=" + name + ">1</parameter></function>",
         {}},
        random);
    expect_same_in_all_cuts(
        {"glm",
         "<tool_call>now<arg_key>" + name + "</arg_key><arg_value>1</arg_value></tool_call>",
         {}},
        random);
    expect_same_in_all_cuts({"gpt-oss", "<|channel|>" + name + "<|message|>x", {}}, random);
  }
}

// What is certain is delivered at once.
TEST(AnswerParserTest, HoldsBackNoMoreThanNeeded) {
  AnswerParser parser(row_named("hermes"), weather_tools(), false);
  std::vector<AnswerPart> parts;
  parser.push("Hi <", parts);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].text, "Hi ");
  parts.clear();
  parser.push("b> ", parts);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].text, "<b> ");
  parts.clear();
  parser.push("<tool_call>{\"name\": \"now\"}</tool_call>", parts);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].call.name, "now");
}

// Calls are read in time that grows with their length.
TEST(AnswerParserTest, LongArgumentsByteByByte) {
  const std::string code(200'000, 'x');
  for (const auto& [syntax, before, after] :
       {std::array<std::string, 3>{"lfm2", "<|tool_call_start|>[weather(code='", "')]"},
        std::array<std::string, 3>{
            "hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"code\": \"",
            "\"}}</tool_call>"},
        std::array<std::string, 3>{"qwen-xml", "<tool_call><function=weather><parameter=code>",
                                   "</parameter></function></tool_call>"}}) {
    const Answer answer = {syntax, before + code + after, {}};
    const Lines lines = take_apart(answer, every_byte(answer.text.size()));
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_TRUE(lines[0].starts_with("call weather ")) << lines[0].substr(0, 50);
    EXPECT_GT(lines[0].size(), code.size());
  }
}

// So are blanks, which models that go wrong write without end: read again with each token, these
// took longer than a test may.
TEST(AnswerParserTest, ManyBlanksByteByByte) {
  const std::string blanks(600'000, ' ');
  for (const auto& [syntax, before] : std::vector<std::array<std::string, 2>>{
           {"hermes", ""},
           {"hermes", "<think>"},
           {"hermes", "<tool_call>"},
           {"hermes", "<tool_call>{\"name\": \"now\"}"},
           {"hermes", "<tool_call>{\"name\": \"now\"}</tool_call>"},
           {"hermes", "<think><tool_call>{\"name\": \"now\"}</tool_call>"},
           {"glm", "<tool_call>"},
           {"glm", "<tool_call>weather\n"},
           {"glm", "<tool_call>weather<arg_key>city</arg_key>"},
           {"glm", "<tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value>"},
           {"llama3", "{\"name\": \"now\", \"parameters\": {}};"},
           {"kimi", "<|tool_calls_section_begin|>"},
           {"kimi", "<|tool_call_begin|>functions.now<|tool_call_argument_begin|>"},
           {"lfm2", "<|tool_call_start|>["},
           {"lfm2", "<|tool_call_start|>[now("},
           {"lfm2", "<|tool_call_start|>[now()"},
           {"lfm2", "<|tool_call_start|>[now(),"},
           {"gemma4", "<|tool_call>call:now{}"},
           {"gpt-oss", "<|channel|>commentary to=functions.now<|message|>"}}) {
    AnswerParser parser(row_named(syntax), weather_tools(), /*starts_in_reasoning=*/false);
    std::vector<AnswerPart> parts;
    parser.push(before, parts);
    for (std::size_t at = 0; at < blanks.size(); ++at) parser.push(" ", parts);
    parser.finish(parts);
  }
}

TEST(AnswerParserTest, DeepArgumentsAreText) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  Answer answer = {
      "hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": " + deep + "}}", {}};
  EXPECT_EQ(take_apart(answer, {}), Lines{"text " + answer.text});
  answer = {"qwen-xml", "<function=now><parameter=a>" + deep + "</parameter></function>", {}};
  EXPECT_EQ(take_apart(answer, {}), Lines{"text " + answer.text});
}

}  // namespace
}  // namespace qsf_tools
