// SPDX-License-Identifier: MIT

#include <algorithm>

#include "tools/serve/syntax/chat_syntax_table.h"

namespace qsf_tools {

namespace {

// DeepSeek's markers have U+FF5C for bars and U+2581 for blanks.
#define QSF_BAR "\xEF\xBD\x9C"
#define QSF_BLANK "\xE2\x96\x81"
// The heading of GLM's tools, in Chinese.
#define QSF_AVAILABLE_TOOLS "\xE5\x8F\xAF\xE7\x94\xA8\xE5\xB7\xA5\xE5\x85\xB7"

// Rows whose evidence is part of another row's evidence come after that row.
constexpr ChatSyntax kSyntaxes[] = {
    // gpt-oss (the "harmony" format)
    {.name = "gpt-oss",
     .evidence = {"<|channel|>", "<|message|>"},
     .form = CallForm::kChannels,
     .begin = ChannelMarkers::kRecipient},
    // GLM 4.5 to 5.1
    {.name = "glm",
     .evidence = {"<arg_key>", "<tool_call>"},
     .form = CallForm::kTagged,
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>"},
    // Qwen3-Coder, Qwen3.5
    {.name = "qwen-xml",
     .evidence = {"<function=", "<parameter="},
     .form = CallForm::kTagged,
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .name_begin = "<function=",
     .name_end = ">",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>",
     .body_end = "</function>",
     .lines = true,
     .between = "\n"},
    // GLM 4 until 4.5
    {.name = "glm4",
     .evidence = {"[gMASK]<sop>", QSF_AVAILABLE_TOOLS},
     .form = CallForm::kBareNamed,
     .begin = "<|assistant|>",
     .separator = "\n",
     .between = "<|assistant|>"},
    {.name = "kimi",
     .evidence = {"<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"},
     .form = CallForm::kNamed,
     .section_begin = "<|tool_calls_section_begin|>",
     .section_end = "<|tool_calls_section_end|>",
     .begin = "<|tool_call_begin|>",
     .end = "<|tool_call_end|>",
     .before_name = "functions.",
     .separator = "<|tool_call_argument_begin|>"},
    // DeepSeek V3 and R1
    {.name = "deepseek-r1",
     .evidence = {"tool" QSF_BLANK "call" QSF_BLANK "begin", "```json"},
     .form = CallForm::kNamed,
     .section_begin = "<" QSF_BAR "tool" QSF_BLANK "calls" QSF_BLANK "begin" QSF_BAR ">",
     .section_end = "<" QSF_BAR "tool" QSF_BLANK "calls" QSF_BLANK "end" QSF_BAR ">",
     .begin = "<" QSF_BAR "tool" QSF_BLANK "call" QSF_BLANK "begin" QSF_BAR ">",
     .end = "<" QSF_BAR "tool" QSF_BLANK "call" QSF_BLANK "end" QSF_BAR ">",
     .before_name = "function<" QSF_BAR "tool" QSF_BLANK "sep" QSF_BAR ">",
     .separator = "\n```json\n",
     .after_arguments = "\n```",
     .between = "\n"},
    {.name = "deepseek-v3.1",
     .evidence = {"tool" QSF_BLANK "call" QSF_BLANK "begin"},
     .form = CallForm::kNamed,
     .section_begin = "<" QSF_BAR "tool" QSF_BLANK "calls" QSF_BLANK "begin" QSF_BAR ">",
     .section_end = "<" QSF_BAR "tool" QSF_BLANK "calls" QSF_BLANK "end" QSF_BAR ">",
     .begin = "<" QSF_BAR "tool" QSF_BLANK "call" QSF_BLANK "begin" QSF_BAR ">",
     .end = "<" QSF_BAR "tool" QSF_BLANK "call" QSF_BLANK "end" QSF_BAR ">",
     .separator = "<" QSF_BAR "tool" QSF_BLANK "sep" QSF_BAR ">"},
    // Gemma 4
    {.name = "gemma4",
     .evidence = {"<|tool_call>", "<|turn>"},
     .form = CallForm::kBraced,
     .begin = "<|tool_call>",
     .end = "<tool_call|>",
     .before_name = "call:",
     .quote = "<|\"|>"},
    // Gemma 3 270M, tuned for calls
    {.name = "function-gemma",
     .evidence = {"<start_function_call>", "<escape>"},
     .form = CallForm::kBraced,
     .begin = "<start_function_call>",
     .end = "<end_function_call>",
     .before_name = "call:",
     .quote = "<escape>"},
    // Command R7B, Command A
    {.name = "command-r7b",
     .evidence = {"<|START_ACTION|>", "<|START_RESPONSE|>"},
     .form = CallForm::kArray,
     .begin = "<|START_ACTION|>",
     .end = "<|END_ACTION|>",
     .id_key = "tool_call_id",
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .text_begin = "<|START_RESPONSE|>",
     .text_end = "<|END_RESPONSE|>",
     .list_begin = "[\n    ",
     .list_end = "\n]",
     .between = ",\n    "},
    // Command R, Command R+ and Aya Expanse, asked for actions
    {.name = "command-r",
     .evidence = {"<|CHATBOT_TOKEN|>", "Action:"},
     .form = CallForm::kArray,
     .begin = "Action:",
     .end = "```",
     .begins_with_word = true,
     .before_array = "```json",
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .list_begin = " ```json\n[\n    ",
     .list_end = "\n]",
     .between = ",\n    "},
    // Mistral Small 3.2, Devstral, Magistral, Ministral 3
    {.name = "mistral-args",
     .evidence = {"[TOOL_CALLS]", "[ARGS]"},
     .form = CallForm::kNamed,
     .begin = "[TOOL_CALLS]",
     .separator = "[ARGS]"},
    // Mistral before that
    {.name = "mistral",
     .evidence = {"[TOOL_CALLS]"},
     .form = CallForm::kArray,
     .begin = "[TOOL_CALLS]",
     .list_begin = "[",
     .list_end = "]",
     .between = ", "},
    // Phi-4-mini, asked for this marker; Firefunction 2
    {.name = "functools",
     .evidence = {"functools["},
     .form = CallForm::kArray,
     .begin = "functools",
     .begins_with_word = true,
     .list_begin = "[",
     .list_end = "]",
     .between = ", "},
    // Phi-4-mini; templates without the marker of calls describe no tools
    {.name = "phi4-mini",
     .evidence = {"<|/tool|>", "<|tool_call|>"},
     .form = CallForm::kArray,
     .begin = "<|tool_call|>",
     .end = "<|/tool_call|>",
     .list_begin = "[",
     .list_end = "]",
     .between = ", "},
    // Nemotron-H, Nemotron Nano 2
    {.name = "nemotron",
     .evidence = {"<TOOLCALL>"},
     .form = CallForm::kArray,
     .begin = "<TOOLCALL>",
     .end = "</TOOLCALL>",
     .list_begin = "[",
     .list_end = "]",
     .between = ", "},
    {.name = "granite",
     .evidence = {"<|tool_call|>"},
     .form = CallForm::kArray,
     .begin = "<|tool_call|>",
     .list_begin = "[",
     .list_end = "]",
     .between = ", "},
    // LFM2 and 2.5; some of their templates name no marker
    {.name = "lfm2",
     .evidence = {"List of tools: ", "<|im_start|>"},
     .form = CallForm::kPython,
     .begin = "<|tool_call_start|>",
     .end = "<|tool_call_end|>",
     .list_begin = "[",
     .list_end = "]",
     .between = ", "},
    // OLMo 3
    {.name = "olmo3",
     .evidence = {"<function_calls>", "<functions>"},
     .form = CallForm::kPython,
     .begin = "<function_calls>",
     .end = "</function_calls>",
     .list_begin = "\n",
     .list_end = "\n",
     .between = "\n"},
    // Llama 4, asked for lists of calls
    {.name = "llama4-python",
     .evidence = {"<|header_start|>", "[func_name1("},
     .form = CallForm::kBarePython,
     .begin = "<|python_start|>",
     .end = "<|python_end|>",
     .list_begin = "[",
     .list_end = "]",
     .between = ", "},
    // Llama 4, asked for JSON
    {.name = "llama4",
     .evidence = {"<|header_start|>", "\"parameters\": "},
     .form = CallForm::kBareJson,
     .begin = "<|python_start|>",
     .end = "<|python_end|>",
     .arguments_key = "parameters"},
    // Llama 3.1 to 3.3
    {.name = "llama3",
     .evidence = {"<|start_header_id|>", "\"parameters\": "},
     .form = CallForm::kBareJson,
     .begin = "<|python_tag|>",
     .arguments_key = "parameters",
     .between = "; "},
    // Hermes, Qwen2.5, Qwen3
    {.name = "hermes",
     .form = CallForm::kJson,
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .between = "\n"},
};
#undef QSF_BAR
#undef QSF_BLANK
#undef QSF_AVAILABLE_TOOLS

constexpr ReasoningMarkers kReasoningMarkers[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|channel>thought", "<channel|>"},          // Gemma 4
    {"<|START_THINKING|>", "<|END_THINKING|>"}};  // Command R7B

constexpr std::string_view kAnalysis = "<|channel|>analysis<|message|>";
constexpr std::string_view kFinal = "<|channel|>final<|message|>";

}  // namespace

std::span<const ChatSyntax> chat_syntaxes() noexcept {
  return kSyntaxes;
}
std::span<const ReasoningMarkers> reasoning_markers() noexcept {
  return kReasoningMarkers;
}

std::string_view opened_reasoning_end(std::string_view prompt) noexcept {
  const std::size_t last = prompt.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) return {};
  const std::string_view trimmed = prompt.substr(0, last + 1);
  for (const ReasoningMarkers& markers : kReasoningMarkers) {
    if (trimmed.ends_with(markers.begin)) return markers.end;
  }
  return {};
}

const ChatSyntax* detect_chat_syntax(std::string_view chat_template) {
  return std::find_if(std::begin(kSyntaxes), std::end(kSyntaxes) - 1, [&](const ChatSyntax& row) {
    return std::all_of(row.evidence.begin(), row.evidence.end(), [&](std::string_view text) {
      return chat_template.find(text) != std::string_view::npos;
    });
  });
}

const ChatSyntax* described_tools_syntax() noexcept {
  return std::end(kSyntaxes) - 1;
}

std::string_view chat_syntax_name(const ChatSyntax& syntax) noexcept {
  return syntax.name;
}

bool ends_in_reasoning(const ChatSyntax& syntax, std::string_view prompt) {
  if (syntax.form == CallForm::kChannels) return prompt.ends_with(kAnalysis);
  return !opened_reasoning_end(prompt).empty();
}

std::string_view answer_trigger(const ChatSyntax& syntax, std::string_view prompt) {
  if (syntax.form == CallForm::kChannels) return prompt.ends_with(kFinal) ? "" : kFinal;
  if (!syntax.text_begin.empty()) {
    return prompt.ends_with(syntax.text_begin) ? std::string_view() : syntax.text_begin;
  }
  return opened_reasoning_end(prompt);
}

}  // namespace qsf_tools
