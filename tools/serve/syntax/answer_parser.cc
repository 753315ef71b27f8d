// SPDX-License-Identifier: MIT

#include <algorithm>
#include <optional>
#include <utility>

#include "tools/serve/syntax/call_reader.h"
#include "tools/serve/syntax/channel_parser.h"
#include "tools/serve/syntax/chat_syntax_table.h"
#include "tools/serve/syntax/marker_search.h"
#include "tools/serve/syntax/part_list.h"

namespace qsf_tools {

namespace {

// Takes an answer apart that has its calls between markers, or is one.
class MarkerParser {
 public:
  MarkerParser(const ChatSyntax& syntax, const std::vector<ToolDefinition>& tools,
               bool starts_in_reasoning)
      : syntax_(&syntax), tools_(&tools) {
    if (!tools.empty()) call_markers_ = call_markers(syntax);
    end_markers_ = text_stops_ = call_markers_;
    for (const std::string_view marker : {syntax.text_begin, syntax.text_end}) {
      if (!marker.empty()) text_stops_.push_back(marker);
    }
    if (!tools.empty() && has_marked_text()) text_stops_.push_back(syntax.end);
    if (starts_in_reasoning) begin_reasoning({});
  }

  // As ChannelParser::take.
  std::size_t take(std::string_view text, bool at_end, PartList& parts) {
    std::size_t n_taken = 0;
    for (;;) {
      const Mode mode = mode_;
      const std::size_t n = take_some(text.substr(n_taken), at_end, parts);
      n_taken += n;
      if (n > 0) blanks_ = blanks_of_next_ = {};
      if (n == 0 && mode == mode_) return n_taken;
    }
  }

 private:
  enum class Mode : unsigned char {
    kStart,  // of the answer, or behind its reasoning: blanks so far
    kText,
    kReasoning,
    kCall,       // `call_at_` bytes ahead
    kAfterCall,  // behind a call, or behind calls within reasoning: `calls_end_` bytes ahead
  };

  std::size_t take_some(std::string_view text, bool at_end, PartList& parts) {
    switch (mode_) {
      case Mode::kStart: return take_start(text, at_end, parts);
      case Mode::kText: return take_text(text, at_end, parts);
      case Mode::kReasoning: return take_reasoning(text, at_end, parts);
      case Mode::kCall: return take_call(text, at_end, parts);
      case Mode::kAfterCall: return take_after_call(text, at_end, parts);
    }
    return 0;
  }

  std::size_t take_start(std::string_view text, bool at_end, PartList& parts) {
    const std::size_t n_blanks = blanks_.end_of_blanks(text, 0);
    const std::string_view rest = text.substr(n_blanks);
    if (had_reasoning_ && n_blanks > 0) return n_blanks;
    if (rest.empty()) {
      if (at_end) parts.add(AnswerPart::Kind::kText, text);
      return at_end ? text.size() : 0;
    }
    MarkerFound found = MarkerFound::kNo;
    if (!had_reasoning_) {
      for (const ReasoningMarkers& markers : reasoning_markers()) {
        const MarkerFound each = marker_at_start(rest, markers.begin, at_end);
        found = std::max(found, each);
        if (each == MarkerFound::kYes) {
          begin_reasoning(markers.end);
          return n_blanks + markers.begin.size();
        }
      }
    }
    // Also before a call without a marker, which may begin as reasoning does.
    if (found == MarkerFound::kPart) return 0;
    const MarkerFound call = call_starts(rest, at_end);
    if (call == MarkerFound::kYes) {
      begin_call(n_blanks);
      return 0;
    }
    const MarkerFound shown = marker_at_start(rest, syntax_->text_begin, at_end);
    if (std::max(call, shown) == MarkerFound::kPart) return 0;
    mode_ = Mode::kText;
    return shown == MarkerFound::kYes ? n_blanks : 0;
  }

  std::size_t take_text(std::string_view text, bool at_end, PartList& parts) {
    const MarkerPlace place = find_marker(text, text_stops_, at_end);
    parts.add(AnswerPart::Kind::kText, text.substr(0, place.at));
    if (place.marker.empty()) return place.at;
    if (place.marker == syntax_->text_begin || place.marker == syntax_->text_end) {
      return place.at + place.marker.size();
    }
    if (has_marked_text() && place.marker == syntax_->end) {
      mode_ = Mode::kAfterCall;  // where calls without a marker may begin
      return place.at + place.marker.size();
    }
    begin_call(0);
    return place.at;
  }

  std::size_t take_reasoning(std::string_view text, bool at_end, PartList& parts) {
    const std::size_t n_blanks = blanks_.end_of_blanks(text, 0);
    if (n_blanks == text.size() && !at_end) return 0;
    MarkerPlace place = find_marker(text.substr(n_blanks), end_markers_, at_end);
    place.at += n_blanks;
    const std::string_view shown = trim_right(text.substr(0, place.at));
    add_reasoning(shown, parts);
    if (place.marker.empty()) return at_end ? text.size() : shown.size();
    if (ends_reasoning(place.marker)) {
      had_reasoning_ = true;
      in_reasoning_ = false;
      mode_ = Mode::kStart;
      return place.at + place.marker.size();
    }
    begin_call(place.at - shown.size());
    return shown.size();
  }

  std::size_t take_call(std::string_view text, bool at_end, PartList& parts) {
    const CallReader::Outcome outcome = call_->read(text.substr(call_at_), at_end);
    if (outcome == CallReader::Outcome::kMore) return 0;
    const std::size_t n_bytes = call_at_ + call_->n_bytes();
    if (outcome == CallReader::Outcome::kText) {
      if (in_reasoning_) {
        return give_up_calls(text.substr(0, n_bytes), parts);
      }
      std::string_view shown = text.substr(0, n_bytes);
      mode_ = Mode::kText;
      if (has_marked_text() && text.substr(call_at_).starts_with(syntax_->begin)) {
        shown = shown.substr(call_at_ + syntax_->begin.size());
        if (shown.ends_with(syntax_->end)) {
          shown.remove_suffix(syntax_->end.size());
          mode_ = Mode::kAfterCall;
        }
      }
      parts.add(AnswerPart::Kind::kText, shown);
      return n_bytes;
    }
    mode_ = Mode::kAfterCall;
    if (in_reasoning_) {
      for (ToolCall& call : call_->take_calls()) calls_.push_back(std::move(call));
      calls_end_ = n_bytes;
      return 0;
    }
    parts.add_calls(call_->take_calls());
    return n_bytes;
  }

  std::size_t take_after_call(std::string_view text, bool at_end, PartList& parts) {
    const std::size_t at = blanks_.end_of_blanks(text, calls_end_);
    const std::string_view rest = text.substr(at);
    if (at > 0 && !in_reasoning_) return at;
    if (rest.empty()) {
      if (!at_end) return 0;
      parts.add_calls(std::exchange(calls_, {}));
      calls_end_ = 0;
      return text.size();
    }
    const MarkerFound section = marker_at_start(rest, syntax_->section_end, at_end);
    if (section == MarkerFound::kYes) {
      const std::size_t n_bytes = at + syntax_->section_end.size();
      if (!in_reasoning_) return n_bytes;
      calls_end_ = n_bytes;
      return take_after_call(text, at_end, parts);
    }
    std::string_view next = rest;
    if (syntax_->form == CallForm::kBareJson && rest.starts_with(';')) {
      next = text.substr(blanks_of_next_.end_of_blanks(text, at + 1));
      if (next.empty() && !at_end) return 0;
    }
    const MarkerFound call = call_starts(next, at_end);
    if (call == MarkerFound::kYes) {
      begin_call(text.size() - next.size());
      return 0;
    }
    if (call == MarkerFound::kPart || section == MarkerFound::kPart) return 0;
    if (!in_reasoning_) {
      mode_ = Mode::kText;
      return at;
    }
    return give_up_calls(text.substr(0, calls_end_), parts);
  }

  // What looked like calls within reasoning is reasoning.
  std::size_t give_up_calls(std::string_view text, PartList& parts) {
    calls_.clear();
    calls_end_ = 0;
    mode_ = Mode::kReasoning;
    const std::string_view shown = trim_right(text);
    add_reasoning(shown, parts);
    return shown.size();
  }

  // Llama 4: what stands between the markers of a call is text where it is no call, and calls
  // follow it.
  bool has_marked_text() const {
    return !bare_begin(syntax_->form).empty() && !syntax_->end.empty();
  }

  static bool ends_reasoning(std::string_view marker) {
    const auto all = reasoning_markers();
    return std::any_of(all.begin(), all.end(),
                       [&](const ReasoningMarkers& markers) { return markers.end == marker; });
  }

  // Whether a call begins with this text, at a place where one without a marker may.
  MarkerFound call_starts(std::string_view text, bool at_end) const {
    if (tools_->empty()) return MarkerFound::kNo;
    return std::max(bare_call_starts(*syntax_, *tools_, text, at_end),
                    marker_at_start(text, call_markers_, at_end));
  }

  void begin_call(std::size_t at) {
    call_.emplace(*syntax_, *tools_);
    call_at_ = at;
    mode_ = Mode::kCall;
  }

  // `end` empty: the prompt opened it, with either marker.
  void begin_reasoning(std::string_view end) {
    for (const ReasoningMarkers& markers : reasoning_markers()) {
      if (end.empty() || end == markers.end) end_markers_.push_back(markers.end);
    }
    in_reasoning_ = true;
    mode_ = Mode::kReasoning;
  }

  void add_reasoning(std::string_view text, PartList& parts) {
    if (!reasoning_shown_) text = trim_left(text);
    reasoning_shown_ = reasoning_shown_ || !text.empty();
    parts.add(AnswerPart::Kind::kReasoning, text);
  }

  const ChatSyntax* syntax_;
  const std::vector<ToolDefinition>* tools_;
  std::vector<std::string_view> call_markers_;
  std::vector<std::string_view> text_stops_;   // calls, and what is around the text
  std::vector<std::string_view> end_markers_;  // of reasoning: its end, and calls
  Mode mode_ = Mode::kStart;
  bool in_reasoning_ = false;
  bool had_reasoning_ = false;
  bool reasoning_shown_ = false;
  std::optional<CallReader> call_;
  std::size_t call_at_ = 0;
  std::size_t calls_end_ = 0;
  BlankSkipper blanks_;          // that are held
  BlankSkipper blanks_of_next_;  // behind what separates calls
  std::vector<ToolCall> calls_;  // within reasoning, to which nothing was added since
};

}  // namespace

struct AnswerParser::State {
  State(const ChatSyntax& syntax, const ToolUse& use, bool starts_in_reasoning)
      : tools(use.choice == ToolChoice::kNone ? std::vector<ToolDefinition>() : use.tools) {
    if (syntax.form == CallForm::kChannels) {
      channels.emplace(tools, starts_in_reasoning);
    } else {
      markers.emplace(syntax, tools, starts_in_reasoning);
    }
  }
  void take(bool at_end, std::vector<AnswerPart>& parts) {
    PartList list(parts);
    held.erase(0,
               channels ? channels->take(held, at_end, list) : markers->take(held, at_end, list));
  }

  const std::vector<ToolDefinition> tools;
  std::optional<ChannelParser> channels;  // one of these
  std::optional<MarkerParser> markers;
  std::string held;
};

AnswerParser::AnswerParser(const ChatSyntax& syntax, const ToolUse& use, bool starts_in_reasoning)
    : state_(std::make_unique<State>(syntax, use, starts_in_reasoning)) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

void AnswerParser::push(std::string_view text, std::vector<AnswerPart>& parts) {
  state_->held += text;
  state_->take(/*at_end=*/false, parts);
}

void AnswerParser::finish(std::vector<AnswerPart>& parts) {
  state_->take(/*at_end=*/true, parts);
}

}  // namespace qsf_tools
