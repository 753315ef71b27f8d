// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/channel_parser.h"

#include <algorithm>
#include <array>

#include "tools/serve/syntax/chat_syntax_table.h"

namespace qsf_tools {

namespace {

using Channel = ChannelMarkers;

constexpr std::size_t kMaxHeaderBytes = 512;
// What a message may begin with: the first one of an answer goes on behind "<|start|>assistant".
constexpr std::array kHeaderBegins = {Channel::kStart, Channel::kChannel, Channel::kRecipient};
constexpr std::array kBodyEnds = {Channel::kEnd, Channel::kCall, Channel::kReturn, Channel::kStart,
                                  Channel::kChannel};

std::string_view word_behind(std::string_view header, std::string_view marker) {
  const std::size_t at = header.find(marker);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + marker.size());
  return rest.substr(0, rest.find_first_of(" \n<"));
}

}  // namespace

ChannelParser::ChannelParser(const std::vector<ToolDefinition>& tools, bool starts_in_reasoning)
    : tools_(&tools) {
  if (starts_in_reasoning) begin_body(AnswerPart::Kind::kReasoning);
}

std::size_t ChannelParser::take(std::string_view text, bool at_end, PartList& parts) {
  std::size_t n_taken = 0;
  for (;;) {
    const Mode mode = mode_;
    const std::size_t n = take_some(text.substr(n_taken), at_end, parts);
    n_taken += n;
    if (n > 0) blanks_ = {};
    if (n == 0 && mode == mode_) return n_taken;
  }
}

std::size_t ChannelParser::take_some(std::string_view text, bool at_end, PartList& parts) {
  switch (mode_) {
    case Mode::kBetween: {
      const MarkerFound found = marker_at_start(text, kHeaderBegins, at_end);
      if (found == MarkerFound::kPart) return 0;
      if (found == MarkerFound::kYes) {
        mode_ = Mode::kHeader;
      } else if (!text.empty()) {
        begin_body(AnswerPart::Kind::kText);
      }
      return 0;
    }
    case Mode::kHeader: {
      const std::size_t end = text.find(Channel::kMessage);
      const bool is_whole = end != std::string_view::npos && end <= kMaxHeaderBytes;
      if (is_whole) {
        read_header(text.substr(0, end));
        return end + Channel::kMessage.size();
      }
      if (end != std::string_view::npos ||
          text.size() > kMaxHeaderBytes + Channel::kMessage.size()) {
        begin_body(AnswerPart::Kind::kText);
        // The marker that it began with is text, or it would be a header again.
        parts.add(AnswerPart::Kind::kText, text.substr(0, 1));
        return 1;
      }
      // A header that was cut short says nothing to anyone.
      return at_end ? text.size() : 0;
    }
    case Mode::kBody:
    case Mode::kAfterCall: return take_body(text, at_end, parts);
    case Mode::kCall: return take_call(text, at_end, parts);
  }
  return 0;
}

void ChannelParser::read_header(std::string_view header) {
  const std::string_view name = word_behind(header, Channel::kRecipient);
  const bool is_tool = std::any_of(tools_->begin(), tools_->end(),
                                   [&](const ToolDefinition& tool) { return tool.name == name; });
  if (!name.empty() && is_tool) {
    name_ = name;
    json_ = {};
    mode_ = Mode::kCall;
  } else if (word_behind(header, Channel::kChannel) == "analysis") {
    begin_body(AnswerPart::Kind::kReasoning);
  } else {
    begin_body(AnswerPart::Kind::kText);
  }
}

void ChannelParser::begin_body(AnswerPart::Kind kind) {
  kind_ = kind;
  mode_ = Mode::kBody;
  needs_break_ = had_kind();
}

std::size_t ChannelParser::take_body(std::string_view text, bool at_end, PartList& parts) {
  const MarkerPlace place = find_marker(text, kBodyEnds, at_end);
  if (mode_ == Mode::kAfterCall) {
    const std::size_t n_blanks = blanks_.end_of_blanks(text.substr(0, place.at), 0);
    if (n_blanks < place.at) begin_body(AnswerPart::Kind::kText);
    if (n_blanks < place.at || place.marker.empty()) return n_blanks;
  }
  if (place.at > 0 && mode_ == Mode::kBody) {
    // Messages of one kind are paragraphs.
    if (needs_break_) parts.add(kind_, "\n\n");
    needs_break_ = false;
    had_kind() = true;
    parts.add(kind_, text.substr(0, place.at));
  }
  if (place.marker.empty()) return place.at;
  mode_ = Mode::kBetween;
  const bool begins_next = place.marker == Channel::kStart || place.marker == Channel::kChannel;
  return place.at + (begins_next ? 0 : place.marker.size());
}

std::size_t ChannelParser::take_call(std::string_view text, bool at_end, PartList& parts) {
  const std::string_view rest = text.substr(blanks_.end_of_blanks(text, 0));
  if (rest.empty() && !at_end) return 0;
  const JsonEndFinder::Found found = json_.find(rest);
  if (found == JsonEndFinder::Found::kMore && !at_end) return 0;
  const std::string_view json = rest.substr(0, json_.n_bytes());
  if (found != JsonEndFinder::Found::kEnd || !json.starts_with('{') || !is_json(json)) {
    begin_body(AnswerPart::Kind::kText);
    return 0;
  }
  parts.add_calls({{.name = name_, .arguments = std::string(json)}});
  mode_ = Mode::kAfterCall;
  return text.size() - rest.size() + json.size();
}

}  // namespace qsf_tools
