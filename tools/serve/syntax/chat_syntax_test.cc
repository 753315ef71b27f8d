// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/chat_syntax.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tools/serve/syntax/chat_syntax_table.h"

namespace qsf_tools {
namespace {

std::string name_of(std::string_view chat_template) {
  return std::string(chat_syntax_name(*detect_chat_syntax(chat_template)));
}

std::string name_of_file(const std::string& name) {
  std::ifstream file(std::string(QSF_SOURCE_DIR) + "/testdata/chat/" + name + ".jinja");
  EXPECT_TRUE(file.good()) << name;
  return name_of(std::string(std::istreambuf_iterator<char>(file), {}));
}

const ChatSyntax& syntax_named(std::string_view name) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << name;
  return chat_syntaxes().back();
}

TEST(ChatSyntaxTest, PublishedTemplatesAreKnown) {
  EXPECT_EQ(name_of_file("qwen2.5-instruct"), "hermes");
  EXPECT_EQ(name_of_file("qwen3"), "hermes");
  EXPECT_EQ(name_of_file("hermes-2-pro-llama-3"), "hermes");
  EXPECT_EQ(name_of_file("smollm2-instruct"), "hermes");
  EXPECT_EQ(name_of_file("qwen3.5"), "qwen-xml");
  EXPECT_EQ(name_of_file("qwen3-coder"), "qwen-xml");
  EXPECT_EQ(name_of_file("glm-4.6"), "glm");
  EXPECT_EQ(name_of_file("glm-5.1"), "glm");
  EXPECT_EQ(name_of_file("gpt-oss"), "gpt-oss");
  EXPECT_EQ(name_of_file("kimi-k2-thinking"), "kimi");
  EXPECT_EQ(name_of_file("deepseek-r1"), "deepseek-r1");
  EXPECT_EQ(name_of_file("deepseek-v3.1"), "deepseek-v3.1");
  EXPECT_EQ(name_of_file("mistral-7b-instruct-v0.3"), "mistral");
  EXPECT_EQ(name_of_file("mistral-nemo-instruct"), "mistral");
  EXPECT_EQ(name_of_file("mistral-small-3.2"), "mistral-args");
  EXPECT_EQ(name_of_file("ministral-3-reasoning"), "mistral-args");
  EXPECT_EQ(name_of_file("granite-3.0-instruct"), "granite");
  EXPECT_EQ(name_of_file("granite-3.3-instruct"), "granite");
  EXPECT_EQ(name_of_file("llama-3.1-instruct"), "llama3");
  EXPECT_EQ(name_of_file("llama-3.2-vision"), "llama3");
}

// The parts of further templates that tell them apart, as their sources write them.
TEST(ChatSyntaxTest, MarkersOfFurtherTemplates) {
  EXPECT_EQ(name_of("{{- '<|start|>assistant<|channel|>final<|message|>' }}"), "gpt-oss");
  EXPECT_EQ(name_of("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>"), "glm");
  EXPECT_EQ(name_of("'\\n<tool_call>\\n<function=' + name + '>\\n<parameter=' + n + '>'"),
            "qwen-xml");
  EXPECT_EQ(name_of("'[TOOL_CALLS]' + tool['function']['name'] + '[ARGS]' + arguments"),
            "mistral-args");
  EXPECT_EQ(name_of("'<\xEF\xBD\x9Ctool\xE2\x96\x81"
                    "calls\xE2\x96\x81"
                    "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
                    "call\xE2\x96\x81"
                    "begin\xEF\xBD\x9C>'"),
            "deepseek-v3.1");
}

TEST(ChatSyntaxTest, TemplatesWithCallsOfPython) {
  EXPECT_EQ(name_of("'<|im_start|>system' + 'List of tools: <|tool_list_start|>['"), "lfm2");
  EXPECT_EQ(name_of("'<|im_start|>' 'List of tools: [' '<|tool_call_start|>['"), "lfm2");
  EXPECT_EQ(name_of("'within <functions></functions>' '<function_calls>' '<|im_start|>'"), "olmo3");
  EXPECT_EQ(name_of("'Use exact format: [func_name1(param1=value1)]' '<|header_start|>'"),
            "llama4-python");
  EXPECT_EQ(name_of("'<|header_start|>' '\"parameters\": '"), "llama4");
}

TEST(ChatSyntaxTest, TemplatesWithMarkersOfTheirOwn) {
  EXPECT_EQ(name_of_file("gemma-4-it"), "gemma4");
  EXPECT_EQ(name_of("'<start_function_call>call:' '<escape>'"), "function-gemma");
  EXPECT_EQ(name_of("'<|START_THINKING|>' '<|START_ACTION|>[' '<|START_RESPONSE|>'"),
            "command-r7b");
  EXPECT_EQ(name_of("'<|tool|>' '<|/tool|>' '<|tool_call|>{\"name\"'"), "phi4-mini");
  EXPECT_EQ(name_of("'<|tool|>' + message['tools'] + '<|/tool|>'"), "hermes");
  EXPECT_EQ(name_of("'<AVAILABLE_TOOLS>[' '<TOOLCALL>['"), "nemotron");
  EXPECT_EQ(name_of("'a single JSON list formatted as functools[{\"name\": '"), "functools");
  EXPECT_EQ(name_of("[gMASK]<sop># \xE5\x8F\xAF\xE7\x94\xA8\xE5\xB7\xA5\xE5\x85\xB7"), "glm4");
  EXPECT_EQ(name_of("'<|SYSTEM_TOKEN|>Write \\'Action:\\' ' '<|CHATBOT_TOKEN|>'"), "command-r");
}

TEST(ChatSyntaxTest, UnknownTemplatesAreHermes) {
  EXPECT_EQ(name_of(""), "hermes");
  EXPECT_EQ(name_of("{{ messages }}"), "hermes");
  EXPECT_EQ(name_of_file("llama-2-chat"), "hermes");
  EXPECT_EQ(name_of_file("llama-3-instruct"), "hermes");
  EXPECT_EQ(chat_syntax_name(*described_tools_syntax()), "hermes");
}

TEST(ChatSyntaxTest, EveryRowIsFoundByItsEvidence) {
  for (const ChatSyntax& row : chat_syntaxes()) {
    std::string source;
    for (const std::string_view text : row.evidence) source += text;
    EXPECT_EQ(name_of(source), row.name);
  }
}

TEST(ChatSyntaxTest, PromptsThatOpenReasoning) {
  const ChatSyntax& hermes = syntax_named("hermes");
  EXPECT_TRUE(ends_in_reasoning(hermes, "<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(ends_in_reasoning(hermes, "<|assistant|><think>"));
  EXPECT_TRUE(ends_in_reasoning(hermes, "[/INST][THINK]"));
  EXPECT_FALSE(ends_in_reasoning(hermes, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_reasoning(hermes, "<think> is a tag<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(ends_in_reasoning(hermes, ""));
  EXPECT_FALSE(ends_in_reasoning(hermes, " \n"));
  const ChatSyntax& gpt_oss = syntax_named("gpt-oss");
  EXPECT_FALSE(ends_in_reasoning(gpt_oss, "<|start|>assistant"));
  EXPECT_TRUE(ends_in_reasoning(gpt_oss, "<|start|>assistant<|channel|>analysis<|message|>"));
}

TEST(ChatSyntaxTest, ConstraintsBeginBehindReasoning) {
  EXPECT_EQ(answer_trigger(syntax_named("hermes"), "assistant\n"), "");
  EXPECT_EQ(answer_trigger(syntax_named("hermes"), "assistant\n<think>\n"), "</think>");
  EXPECT_EQ(answer_trigger(syntax_named("mistral"), "[/INST][THINK]"), "[/THINK]");
  EXPECT_EQ(answer_trigger(syntax_named("gemma4"), "model\n<|channel>thought\n"), "<channel|>");
  EXPECT_EQ(answer_trigger(syntax_named("gemma4"), "model\n<|channel>thought\n<channel|>"), "");
  EXPECT_EQ(answer_trigger(syntax_named("command-r7b"), "<|CHATBOT_TOKEN|>"), "<|START_RESPONSE|>");
  EXPECT_EQ(answer_trigger(syntax_named("command-r7b"), "<|CHATBOT_TOKEN|><|START_RESPONSE|>"), "");
  EXPECT_EQ(answer_trigger(syntax_named("gpt-oss"), "<|start|>assistant"),
            "<|channel|>final<|message|>");
  EXPECT_EQ(answer_trigger(syntax_named("gpt-oss"), "assistant<|channel|>final<|message|>"), "");
}

}  // namespace
}  // namespace qsf_tools
