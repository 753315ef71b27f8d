// SPDX-License-Identifier: MIT
//
// A conversation with calls of each family, there and back: what a template writes of the calls of
// an answer, the parser of that template takes apart again. Templates are those of models in
// testdata/chat, and short ones that write calls as further models' do.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/chat_messages.h"
#include "chat/chat_template.h"
#include "chat/chat_template_traits.h"
#include "tools/serve/syntax/chat_syntax.h"

namespace qsf_tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kNowSeconds = 1'740'000'000;

struct Family {
  std::string name;  // of a file, or of the models whose calls `source` writes
  std::string syntax;
  std::string source = {};
};

// A template that describes tools behind `system` and writes calls by the expression or statements
// `call`, in which `f` is the function.
std::string short_template(const std::string& system, const std::string& before_calls,
                           const std::string& call, const std::string& between,
                           const std::string& after_calls) {
  return "{% if tools %}" + system + "{{ tools | tojson }}\n{% endif %}{% for m in messages %}[" +
         "{{ m.role }}]{{ m.content or '' }}{% if m.tool_calls %}" + before_calls +
         "{% for c in m.tool_calls %}{% set f = c.function %}" + call + "{% if not loop.last %}" +
         between + "{% endif %}{% endfor %}" + after_calls + "{% endif %}<end>\n{% endfor %}" +
         "{% if add_generation_prompt %}[assistant]{% endif %}";
}

// Texts stand between quotes as they are.
std::string python_call(const std::string& quote, const std::string& other) {
  return "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={% if v is string %}" + quote +
         "{{ v }}" + quote + "{% else %}" + other +
         "{% endif %}{{ ', ' if not loop.last }}{% endfor %})";
}

std::string json_call(const std::string& name_key, const std::string& arguments_key) {
  return "{\"" + name_key + "\": \"{{ f.name }}\", \"" + arguments_key +
         "\": {{ f.arguments | tojson }}}";
}

std::vector<Family> families() {
  std::vector<Family> all;
  for (const auto& [name, syntax] :
       std::vector<std::pair<const char*, const char*>>{{"gemma-4-it", "gemma4"},
                                                        {"glm-4.6", "glm"},
                                                        {"glm-5.1", "glm"},
                                                        {"gpt-oss", "gpt-oss"},
                                                        {"deepseek-r1", "deepseek-r1"},
                                                        {"deepseek-v3.1", "deepseek-v3.1"},
                                                        {"hermes-3-tool-use", "hermes"},
                                                        {"kimi-k2-thinking", "kimi"},
                                                        {"llama-3.1-instruct", "llama3"},
                                                        {"llama-3.2-instruct", "llama3"},
                                                        {"ministral-3-reasoning", "mistral-args"},
                                                        {"mistral-small-3.2", "mistral-args"},
                                                        {"mistral-nemo-instruct", "mistral"},
                                                        {"qwen2.5-instruct", "hermes"},
                                                        {"qwen3", "hermes"},
                                                        {"qwen3-coder", "qwen-xml"},
                                                        {"qwen3.5", "qwen-xml"}}) {
    all.push_back({name, syntax});
  }
  const std::string start = "<|im_start|>";
  all.push_back({"LFM2.5", "lfm2",
                 short_template(start + "List of tools: ", "<|tool_call_start|>[",
                                python_call("'", "{{ v | string }}"), ", ", "]<|tool_call_end|>")});
  all.push_back(
      {"OLMo 3", "olmo3",
       short_template(start + "<functions>", "<function_calls>\n",
                      python_call("'", "{{ v | tojson }}"), "\n", "\n</function_calls>")});
  const std::string header = "<|header_start|>";
  all.push_back({"Llama 4 with lists", "llama4-python",
                 short_template(header + "[func_name1(param1=value1)]", "[",
                                python_call("\"", "{{ v | tojson }}"), ", ", "]")});
  all.push_back({"Llama 4 with JSON", "llama4",
                 short_template(header, "<|python_start|><|python_end|>",
                                json_call("name", "parameters"), "", "")});
  all.push_back({"Command R7B", "command-r7b",
                 short_template("<|START_RESPONSE|>",
                                "<|START_THINKING|>So.<|END_THINKING|>"
                                "<|START_ACTION|>[\n    ",
                                "{\"tool_call_id\": \"{{ loop.index0 }}\", " +
                                    json_call("tool_name", "parameters").substr(1),
                                ",\n    ", "\n]<|END_ACTION|>")});
  all.push_back({"Command R", "command-r",
                 short_template("<|CHATBOT_TOKEN|>", "Action:\n```json\n[\n    ",
                                json_call("tool_name", "parameters"), ",\n    ", "\n]```")});
  all.push_back(
      {"GLM 4 0414", "glm4",
       short_template("[gMASK]<sop># \xE5\x8F\xAF\xE7\x94\xA8\xE5\xB7\xA5\xE5\x85\xB7", "",
                      "{{ f.name }}\n{{ f.arguments | tojson }}", "<|assistant|>", "")});
  all.push_back(
      {"Phi-4-mini, asked for functools", "functools",
       short_template("functools[", "functools[", json_call("name", "arguments"), ", ", "]")});
  all.push_back({"Phi-4-mini", "phi4-mini",
                 short_template("<|tool|><|/tool|>", "",
                                "<|tool_call|>" + json_call("name", "arguments") + "<|/tool_call|>",
                                "", "")});
  all.push_back({"Nemotron Nano 2", "nemotron",
                 short_template("<AVAILABLE_TOOLS>", "<TOOLCALL>[", json_call("name", "arguments"),
                                ", ", "]</TOOLCALL>")});
  all.push_back({"Granite 4, EXAONE 4, Falcon-H1, SmolLM 3", "hermes",
                 short_template("<tools>", "",
                                "<tool_call>\n" + json_call("name", "arguments") + "\n</tool_call>",
                                "\n", "")});
  all.push_back({"Nemotron 3 Nano", "qwen-xml",
                 short_template("<tools>", "",
                                "<tool_call>\n<function={{ f.name }}>\n{% for k, v in "
                                "f.arguments.items() %}<parameter={{ k }}>\n{{ v if v is string "
                                "else v | tojson }}\n</parameter>\n{% endfor %}</function>\n"
                                "</tool_call>",
                                "\n", "")});
  return all;
}

std::string source_of(const Family& family) {
  if (!family.source.empty()) return family.source;
  std::ifstream file(std::string(QSF_SOURCE_DIR) + "/testdata/chat/" + family.name + ".jinja");
  EXPECT_TRUE(file.good()) << family.name;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Call {
  std::string name;
  Json arguments;
};

// Texts with what is a mark in some syntax, and values of each kind.
std::vector<Call> two_calls() {
  return {{"get_weather", {{"place", "Kyoto \xE4\xBA\xAC's \"old\" town, (x=[1])"}, {"days", 2}}},
          {"sum", {{"values", {1, -2.5}}, {"mode", {{"exact", true}, {"note", "a: b"}}}}}};
}

Json tools() {
  return Json::parse(R"([
      {"type": "function", "function": {"name": "get_weather", "description": "Tells it.",
       "parameters": {"type": "object", "properties": {
         "place": {"type": "string", "description": "A town"}, "days": {"type": "integer",
         "description": "How many"}}, "required": ["place"]}}},
      {"type": "function", "function": {"name": "sum", "description": "Adds.",
       "parameters": {"type": "object", "properties": {
         "values": {"type": "array", "items": {"type": "number"}, "description": "Terms"},
         "mode": {"type": "object", "properties": {}, "description": "Details"}},
       "required": []}}}])");
}

ToolUse tool_use() {
  ToolUse use;
  for (const Json& tool : tools()) {
    const Json& function = tool.at("function");
    use.tools.push_back(
        {.name = function.at("name"), .parameters = function.at("parameters").dump()});
  }
  return use;
}

// As a client sends it: arguments are text.
Json messages_with(const std::vector<Call>& calls) {
  Json messages = Json::array({{{"role", "user"}, {"content", "Hello"}}});
  if (calls.empty()) return messages;
  Json answer = {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array()}};
  for (const Call& call : calls) {
    answer["tool_calls"].push_back(
        {{"id", "functions." + call.name + ":" + std::to_string(answer["tool_calls"].size())},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments.dump()}}}});
  }
  messages.push_back(answer);
  return messages;
}

std::string rendered(const qsf::ChatTemplate& chat, const qsf::ChatTemplateTraits& traits,
                     const std::vector<Call>& calls) {
  auto messages = qsf::parse_chat_json(messages_with(calls).dump(), "messages");
  auto described = qsf::parse_chat_json(tools().dump(), "tools");
  const auto adapted =
      qsf::adapt_chat(std::move(messages).value(), std::move(described).value(), traits, false);
  if (!adapted) {
    ADD_FAILURE() << adapted.error().message();
    return {};
  }
  const auto pieces = chat.render({.json_messages = &adapted->messages,
                                   .tools = adapted->tools ? &*adapted->tools : nullptr,
                                   .add_generation_prompt = calls.empty(),
                                   .bos_token = "<s>",
                                   .eos_token = "</s>",
                                   .now_seconds = kNowSeconds});
  if (!pieces) {
    ADD_FAILURE() << pieces.error().message();
    return {};
  }
  std::string text;
  for (const qsf::ChatPiece& piece : *pieces) text += piece.text;
  return text;
}

std::vector<ToolCall> calls_in(const ChatSyntax& syntax, const std::string& answer,
                               std::size_t n_push) {
  const ToolUse use = tool_use();
  AnswerParser parser(syntax, use, /*starts_in_reasoning=*/false);
  std::vector<AnswerPart> parts;
  for (std::size_t at = 0; at < answer.size(); at += n_push) {
    parser.push(std::string_view(answer).substr(at, n_push), parts);
  }
  parser.finish(parts);
  std::vector<ToolCall> calls;
  for (AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kToolCall) calls.push_back(std::move(part.call));
  }
  return calls;
}

void expect_calls_back(const Family& family) {
  const std::string source = source_of(family);
  const ChatSyntax& syntax = *detect_chat_syntax(source);
  EXPECT_EQ(chat_syntax_name(syntax), family.syntax);
  const auto chat = qsf::ChatTemplate::parse(source);
  ASSERT_TRUE(chat) << chat.error().message();
  const auto traits = qsf::find_chat_template_traits(*chat, "<s>", "</s>", kNowSeconds);
  ASSERT_TRUE(traits.takes_calls);
  std::vector<Call> calls = two_calls();
  if (traits.single_calls) calls.pop_back();
  const std::string prompt = rendered(*chat, traits, {});
  const std::string whole = rendered(*chat, traits, calls);
  // A prompt may open what an answer of the past does not have, with a marker that begins alike.
  auto n_same = static_cast<std::size_t>(
      std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).first -
      prompt.begin());
  while (n_same > 0 && (whole[n_same - 1] == '<' || whole[n_same - 1] == '|')) --n_same;
  const std::string answer = whole.substr(n_same);
  const ChatSyntax& written = traits.takes_tools ? syntax : *described_tools_syntax();
  for (const std::size_t n_push : {answer.size(), std::size_t{1}}) {
    const std::vector<ToolCall> found = calls_in(written, answer, n_push);
    ASSERT_EQ(found.size(), calls.size()) << answer;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(found[i].name, calls[i].name);
      EXPECT_EQ(nlohmann::json::parse(found[i].arguments), nlohmann::json(calls[i].arguments))
          << answer;
    }
  }
}

TEST(FamilyConversationsTest, CallsThatATemplateWritesAreFoundAgain) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    expect_calls_back(family);
  }
}

}  // namespace
}  // namespace qsf_tools
