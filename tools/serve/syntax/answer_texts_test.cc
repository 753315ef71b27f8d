// SPDX-License-Identifier: MIT
//
// Random answers of the markers of each syntax, cut and mixed: what is no call is text, whole and
// byte by byte.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/syntax/chat_syntax_table.h"
#include "tools/serve/syntax/testing/kept_text.h"

namespace qsf_tools {
namespace {

ToolUse texts_tools(ToolChoice choice) {
  ToolUse use;
  use.tools.push_back({.name = "weather", .parameters = R"({"properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}}})"});
  use.tools.push_back({.name = "now", .parameters = ""});
  use.choice = choice;
  return use;
}

std::vector<std::string> markers_of(const ChatSyntax& row) {
  std::vector<std::string> markers;
  for (const std::string_view marker :
       {row.section_begin, row.section_end, row.begin, row.end, row.before_array, row.before_name,
        row.separator, row.after_arguments, row.name_begin, row.name_end, row.key_begin,
        row.key_end, row.value_begin, row.value_end, row.body_end, row.quote, row.text_begin,
        row.text_end}) {
    if (!marker.empty()) markers.emplace_back(marker);
  }
  for (const ReasoningMarkers& each : reasoning_markers()) {
    markers.emplace_back(each.begin);
    markers.emplace_back(each.end);
  }
  if (row.form == CallForm::kChannels) {
    for (const std::string_view marker :
         {ChannelMarkers::kStart, ChannelMarkers::kChannel, ChannelMarkers::kMessage,
          ChannelMarkers::kEnd, ChannelMarkers::kCall, ChannelMarkers::kReturn,
          ChannelMarkers::kConstrain, ChannelMarkers::kRecipient}) {
      markers.emplace_back(marker);
    }
  }
  return markers;
}

// What calls are made of.
const std::vector<std::string>& pieces_of_calls() {
  static const std::vector<std::string> kPieces = {"{\"name\": \"now\", \"arguments\": {}}",
                                                   "[{\"tool_name\": \"now\", \"parameters\": {}}]",
                                                   "now()",
                                                   "[now()]",
                                                   "[weather(city='a]b', days=2)]",
                                                   "call:now{}",
                                                   "now{}",
                                                   "now\n{}",
                                                   "now",
                                                   "weather",
                                                   "{\"city\": \"Rome\"}",
                                                   "{}",
                                                   "commentary to=functions.now<|message|>{}",
                                                   " ",
                                                   "\n",
                                                   "\\",
                                                   "'",
                                                   "\"",
                                                   "[",
                                                   "(",
                                                   ";"};
  return kPieces;
}

std::string whole_call(const ChatSyntax& row) {
  std::string call;
  switch (row.form) {
    case CallForm::kJson: call = R"({"name": "now", "arguments": {}})"; break;
    case CallForm::kArray:
    case CallForm::kBareJson:
      call = "{\"" + std::string(row.name_key) + R"(": "now"})";
      if (row.form == CallForm::kArray) call = "[" + call + "]";
      break;
    case CallForm::kNamed: call = "now"; break;
    case CallForm::kBareNamed: call = "now\n{}"; break;
    case CallForm::kTagged:
      call = std::string(row.name_begin) + "now" + std::string(row.name_end);
      break;
    case CallForm::kChannels: return "<|channel|>commentary to=functions.now<|message|>{}<|call|>";
    case CallForm::kPython:
    case CallForm::kBarePython: call = "[now(), weather(city='a]b)')]"; break;
    case CallForm::kBraced: call = "call:now{}"; break;
  }
  const auto text = [](std::string_view marker) { return std::string(marker); };
  if (row.form == CallForm::kNamed) {
    call = text(row.before_name) + call + text(row.separator) + "{}" + text(row.after_arguments);
  }
  return text(row.section_begin) + text(row.begin) + text(row.before_array) + call +
         text(row.body_end) + text(row.end) + text(row.section_end);
}

std::vector<AnswerPart> parts_by(const ChatSyntax& row, const ToolUse& use, bool in_reasoning,
                                 const std::string& answer, std::size_t n_push) {
  AnswerParser parser(row, use, in_reasoning);
  std::vector<AnswerPart> parts;
  for (std::size_t at = 0; at < answer.size(); at += n_push) {
    parser.push(std::string_view(answer).substr(at, n_push), parts);
  }
  parser.finish(parts);
  return parts;
}

// Neighbours of one kind joined: how text is divided depends on the cuts.
std::string shown_parts(const std::vector<AnswerPart>& parts) {
  std::string all;
  AnswerPart::Kind last = AnswerPart::Kind::kToolCall;
  for (const AnswerPart& part : parts) {
    const bool is_call = part.kind == AnswerPart::Kind::kToolCall;
    if (is_call || part.kind != last) all += "\n#" + std::to_string(static_cast<int>(part.kind));
    all += is_call ? part.call.name + part.call.arguments : part.text;
    last = part.kind;
  }
  return all;
}

// What a message to a function or a header begins, up to where that ends.
bool is_in_header(const std::string& answer, std::size_t at) {
  const std::string before = answer.substr(0, at);
  const auto last = [&](std::string_view marker) {
    const std::size_t found = before.rfind(marker);
    return found == std::string::npos ? 0 : found + 1;
  };
  const std::size_t begin = std::max({last(ChannelMarkers::kStart), last(ChannelMarkers::kChannel),
                                      last(ChannelMarkers::kRecipient)});
  return begin > last(ChannelMarkers::kMessage);
}

std::string random_answer(const std::vector<std::string>& markers, const std::string& call,
                          std::mt19937& random) {
  const auto one_of = [&](const std::vector<std::string>& all) {
    return all[random() % all.size()];
  };
  const auto cut = [&](const std::string& text) {
    return text.substr(0, 1 + random() % text.size());
  };
  std::string answer;
  for (std::size_t n = 1 + random() % 12; n > 0; --n) {
    switch (random() % 6) {
      case 0:
      case 1: answer += "word" + std::to_string(n) + "."; break;
      case 2: answer += one_of(pieces_of_calls()); break;
      case 3: answer += one_of(markers); break;
      case 4: answer += cut(one_of(markers)); break;
      default: answer += random() % 3 == 0 ? cut(call) : call; break;
    }
  }
  return answer;
}

TEST(AnswerTextsTest, NothingButCallsIsTaken) {
  std::mt19937 random(51);
  std::vector<std::string> others;
  for (const ChatSyntax& row : chat_syntaxes()) {
    for (std::string& marker : markers_of(row)) others.push_back(std::move(marker));
  }
  for (const ChatSyntax& row : chat_syntaxes()) {
    std::vector<std::string> markers = markers_of(row);
    const std::size_t n_own = markers.size();
    // Beside its own, as often, those of the others.
    for (std::size_t n = 0; n < n_own; ++n) {
      markers.push_back(others[random() % others.size()]);
    }
    const std::string call = whole_call(row);
    int n_calls = 0;
    for (int round = 0; round < 500; ++round) {
      const ToolUse use = texts_tools(round % 8 == 0 ? ToolChoice::kNone : ToolChoice::kAuto);
      const bool in_reasoning = random() % 4 == 0;
      const std::string answer = random_answer(markers, call, random);
      const auto whole = parts_by(row, use, in_reasoning, answer, answer.size());
      const std::string shown = shown_parts(whole);
      ASSERT_EQ(shown_parts(parts_by(row, use, in_reasoning, answer, 1)), shown)
          << row.name << ": " << answer;
      n_calls += shown.find("\n#2") != std::string::npos ? 1 : 0;
      if (row.form != CallForm::kChannels) {
        ASSERT_TRUE(testing_support::keeps_text(row, answer, whole))
            << row.name << ": " << answer << "\nas" << shown;
      }
      for (std::size_t at = 0; (at = answer.find("word", at)) != std::string::npos; ++at) {
        if (row.form == CallForm::kChannels && is_in_header(answer, at)) continue;
        const std::string word = answer.substr(at, answer.find('.', at) + 1 - at);
        ASSERT_NE(shown.find(word), std::string::npos)
            << row.name << ": " << answer << "\nas" << shown;
      }
    }
    EXPECT_GT(n_calls, 100) << row.name;
  }
}

}  // namespace
}  // namespace qsf_tools
