// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/call_reader.h"

#include <algorithm>
#include <array>
#include <optional>

#include "tools/serve/syntax/tool_schema.h"

namespace qsf_tools {

namespace {

// A longer name is none. The marker behind it may come in pieces, which changes nothing: only text
// that is longer than both is refused without it.
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kMaxMarkerBytes = 64;

// Drops what surrounds a name: a prefix of the syntax, Kimi's number, and Mistral's id of the call.
std::string_view bare_name(const ChatSyntax& syntax, std::string_view text) {
  text = text.substr(0, text.find("[CALL_ID]"));
  text = trim(text);
  if (text.starts_with(syntax.before_name)) text.remove_prefix(syntax.before_name.size());
  const std::size_t colon = text.rfind(':');
  if (syntax.before_name == "functions." && colon != std::string_view::npos &&
      text.find_first_not_of("0123456789", colon + 1) == std::string_view::npos) {
    text = text.substr(0, colon);
  }
  return trim(text);
}

bool writes_literals(CallForm form) {
  return form == CallForm::kPython || form == CallForm::kBarePython || form == CallForm::kBraced;
}

}  // namespace

std::vector<std::string_view> call_markers(const ChatSyntax& syntax) {
  std::vector<std::string_view> markers;
  for (const std::string_view marker :
       {syntax.section_begin, syntax.begin,
        syntax.form == CallForm::kTagged ? syntax.name_begin : std::string_view()}) {
    if (!marker.empty()) markers.push_back(marker);
  }
  return markers;
}

MarkerFound bare_call_starts(const ChatSyntax& syntax, const std::vector<ToolDefinition>& tools,
                             std::string_view text, bool at_end) {
  if (syntax.form != CallForm::kBareNamed) {
    const std::string_view bare = bare_begin(syntax.form);
    return !bare.empty() && text.starts_with(bare) ? MarkerFound::kYes : MarkerFound::kNo;
  }
  MarkerFound best = MarkerFound::kNo;
  for (const ToolDefinition& each : tools) {
    const std::string_view name = std::string_view(each.name).substr(0, text.size());
    if (!text.starts_with(name)) continue;
    const bool is_whole = name.size() == each.name.size();
    best = std::max(best, is_whole
                              ? marker_at_start(text.substr(name.size()), syntax.separator, at_end)
                          : at_end ? MarkerFound::kNo
                                   : MarkerFound::kPart);
  }
  return best;
}

std::string tagged_value(std::string_view text, std::string_view schema) {
  const std::string_view types = json_member(schema, "type");
  const bool any = types.empty();  // also where a parameter is not described
  std::string_view value = trim(text);
  constexpr std::array<std::array<std::string_view, 2>, 3> kPythonWords = {
      {{"True", "true"}, {"False", "false"}, {"None", "null"}}};
  for (const auto& [python, json] : kPythonWords) {
    if (value == python && !any) value = json;
  }
  if (is_json(value) && (any || names_type(types, json_kind(value)))) {
    // A JSON string in the place of a string is what the string says: quotes are part of it.
    if (any || json_kind(value) != "string") return std::string(value);
  }
  return json_quoted(text);
}

CallReader::Outcome CallReader::read(std::string_view text, bool at_end) {
  while (!done_) {
    const Step step = advance(text, at_end);
    if (step == Step::kMore && !at_end) return Outcome::kMore;
    if (step == Step::kOn) continue;
    if (step == Step::kMore) at_ = text.size();  // cut short
    at_ = std::max<std::size_t>(at_, 1);
    return Outcome::kText;
  }
  return calls_.empty() ? Outcome::kText : Outcome::kCalls;
}

std::string_view CallReader::skip_blanks(std::string_view text) {
  at_ = std::min(text.find_first_not_of(" \t\r\n", at_), text.size());
  return text.substr(at_);
}

std::string_view CallReader::behind_blanks(std::string_view text, std::size_t from) {
  return text.substr(blanks_.end_of_blanks(text, from));
}

CallReader::Step CallReader::advance(std::string_view text, bool at_end) {
  switch (stage_) {
    case Stage::kOpening: return read_opening(text, at_end);
    case Stage::kName: return read_name(text);
    case Stage::kBeforeJson: {
      const std::string_view rest = skip_blanks(text);
      if (rest.empty()) return Step::kMore;
      if (!rest.starts_with('{')) return Step::kText;
      stage_ = Stage::kJson;
      return Step::kOn;
    }
    case Stage::kJson: return read_json(text);
    case Stage::kTag: return read_tag(text, at_end);
    case Stage::kValue: return read_value(text, at_end);
    case Stage::kFunction: return read_function(text);
    case Stage::kArguments: return read_arguments(text);
    case Stage::kNextCall: return read_next_call(text, at_end);
    case Stage::kAfterArguments: {
      const Step step = read_marker(text, trim(syntax_->after_arguments), at_end);
      if (step == Step::kOn) stage_ = Stage::kClosing;
      return step;
    }
    case Stage::kClosing: {
      const Step step = read_marker(text, syntax_->end, at_end);
      done_ = step == Step::kOn;
      return step;
    }
  }
  return Step::kText;
}

CallReader::Step CallReader::read_opening(std::string_view text, bool at_end) {
  const std::string_view rest = skip_blanks(text);
  if (rest.empty()) return Step::kMore;
  const bool tagged = syntax_->form == CallForm::kTagged;
  bool part = false;
  const auto take = [&](std::string_view marker) {
    const MarkerFound found = marker_at_start(rest, marker, at_end);
    part = part || found == MarkerFound::kPart;
    if (found == MarkerFound::kYes) at_ += marker.size();
    return found == MarkerFound::kYes;
  };
  if (at_ == 0 && take(syntax_->section_begin)) return Step::kOn;
  if (!begun_ && take(syntax_->begin)) {
    begun_ = true;
    const bool has_name_next = tagged && syntax_->name_begin.empty();
    const bool has_name =
        syntax_->form == CallForm::kNamed || syntax_->form == CallForm::kBareNamed;
    if (has_name || has_name_next) stage_ = Stage::kName;
    return Step::kOn;
  }
  if (begun_ && take(syntax_->before_array)) return Step::kOn;
  if (bare_call_starts(*syntax_, *tools_, rest, at_end) == MarkerFound::kYes &&
      syntax_->form == CallForm::kBareNamed) {
    stage_ = Stage::kName;
    return Step::kOn;
  }
  if (tagged && take(syntax_->name_begin)) {
    stage_ = Stage::kName;
    return Step::kOn;
  }
  const std::string_view bare = bare_begin(syntax_->form);
  const bool has_call_next = begun_ || (!bare.empty() && rest.starts_with(bare));
  if (has_call_next && writes_literals(syntax_->form)) return read_list_opening(text);
  if (has_call_next && (rest.starts_with('{') || rest.starts_with('['))) {
    stage_ = Stage::kJson;
    return Step::kOn;
  }
  return part ? Step::kMore : Step::kText;
}

// Tells calls of Python, in a list or without one, from those in JSON.
CallReader::Step CallReader::read_list_opening(std::string_view text) {
  const bool is_list = text[at_] == '[';
  const std::string_view first = is_list ? behind_blanks(text, at_ + 1) : text.substr(at_);
  if (first.empty()) return Step::kMore;
  if (first.starts_with('{')) {
    stage_ = Stage::kJson;
    return Step::kOn;
  }
  in_list_ = is_list;
  at_ = text.size() - first.size();
  stage_ = Stage::kFunction;
  return Step::kOn;
}

CallReader::Step CallReader::read_function(std::string_view text) {
  const bool is_braced = syntax_->form == CallForm::kBraced;
  std::string_view rest = text.substr(at_);
  const MarkerFound before = marker_at_start(rest, syntax_->before_name, /*at_end=*/false);
  if (before == MarkerFound::kPart) return Step::kMore;
  if (before == MarkerFound::kYes) rest.remove_prefix(syntax_->before_name.size());
  // Names are compared with those of the tools: they may hold any mark.
  const char bracket = is_braced ? '{' : '(';
  const std::string_view begin = trim_left(rest);
  const ToolDefinition* found = nullptr;
  bool may_go_on = begin.empty();
  std::size_t end = 0;  // of the name and the blanks behind it
  for (const ToolDefinition& each : *tools_) {
    if (begin.size() < each.name.size()) {
      may_go_on = may_go_on || each.name.starts_with(begin);
      continue;
    }
    if (!begin.starts_with(each.name)) continue;
    const std::string_view behind = trim_left(begin.substr(each.name.size()));
    may_go_on = may_go_on || behind.empty();
    const std::size_t n_bytes = rest.size() - behind.size();
    const bool is_longer = found == nullptr || each.name.size() > found->name.size();
    if (n_bytes > kMaxNameBytes || !behind.starts_with(bracket) || !is_longer) continue;
    found = &each;
    end = n_bytes;
  }
  if (may_go_on && rest.size() <= kMaxNameBytes) return Step::kMore;
  if (found == nullptr) return Step::kText;
  name_ = found->name;
  at_ = text.size() - rest.size() + end;
  std::vector<std::string> names;
  ToolSchema schema(found->parameters);
  for (JsonMemberText& each : schema.properties) names.push_back(std::move(each.name));
  argument_reader_.emplace(is_braced ? ':' : '=', syntax_->quote, names,
                           is_braced ? std::string_view(found->parameters) : std::string_view());
  stage_ = Stage::kArguments;
  return Step::kOn;
}

CallReader::Step CallReader::read_arguments(std::string_view text) {
  const ArgumentReader::Found found = argument_reader_->read(text.substr(at_));
  if (found == ArgumentReader::Found::kMore) return Step::kMore;
  at_ += argument_reader_->n_bytes();
  if (found == ArgumentReader::Found::kBad) return Step::kText;
  if (!add_call(name_, argument_reader_->take_json())) return Step::kText;
  // In braces each call has markers of its own.
  stage_ = syntax_->form == CallForm::kBraced ? Stage::kClosing : Stage::kNextCall;
  return Step::kOn;
}

// Behind a call of Python. All of what stands behind one marker are calls, or none is.
CallReader::Step CallReader::read_next_call(std::string_view text, bool at_end) {
  std::string_view rest = skip_blanks(text);
  if (rest.empty() && (in_list_ || !at_end)) return Step::kMore;
  const bool has_comma = rest.starts_with(',');
  if (has_comma) {
    rest = behind_blanks(text, at_ + 1);
    if (rest.empty()) return Step::kMore;
  }
  at_ = text.size() - rest.size();
  if (in_list_ && rest.starts_with(']')) {
    ++at_;
    stage_ = Stage::kClosing;
    return Step::kOn;
  }
  if (in_list_) {
    stage_ = Stage::kFunction;
    return has_comma ? Step::kOn : Step::kText;
  }
  const MarkerFound end = marker_at_start(rest, syntax_->end, at_end);
  if (end == MarkerFound::kPart) return Step::kMore;
  stage_ = end == MarkerFound::kYes || rest.empty() ? Stage::kClosing : Stage::kFunction;
  return Step::kOn;
}

CallReader::Step CallReader::read_name(std::string_view text) {
  std::string_view rest = text.substr(at_);
  if (syntax_->form == CallForm::kNamed) {
    // Mistral's older form: an array of calls.
    const std::string_view trimmed = trim_left(rest);
    if (trimmed.starts_with('[')) {
      at_ = text.size() - trimmed.size();
      stage_ = Stage::kJson;
      return Step::kOn;
    }
  }
  std::size_t end = std::string_view::npos;
  std::size_t n_marker = 0;
  const auto seek = [&](std::string_view marker, bool take) {
    if (marker.empty()) return;
    const std::size_t found = rest.find(marker);
    if (found < end) {
      end = found;
      n_marker = take ? marker.size() : 0;
    }
  };
  if (syntax_->form == CallForm::kNamed) {
    seek(trim(syntax_->separator), true);
  } else if (syntax_->form == CallForm::kBareNamed) {
    rest = skip_blanks(text);
    seek(syntax_->separator, true);
  } else if (!syntax_->name_end.empty()) {
    seek(syntax_->name_end, true);
  } else {
    rest = skip_blanks(text);
    seek("\n", false);
    seek(syntax_->key_begin, false);
    seek(syntax_->end, false);
  }
  if (end == std::string_view::npos && rest.size() <= kMaxNameBytes + kMaxMarkerBytes) {
    return Step::kMore;
  }
  if (end == std::string_view::npos || end > kMaxNameBytes) return Step::kText;
  name_ = bare_name(*syntax_, rest.substr(0, end));
  at_ = text.size() - rest.size() + end + n_marker;
  stage_ = syntax_->form == CallForm::kTagged ? Stage::kTag : Stage::kBeforeJson;
  return Step::kOn;
}

CallReader::Step CallReader::read_json(std::string_view text) {
  const std::string_view rest = text.substr(at_);
  switch (json_.find(rest)) {
    case JsonEndFinder::Found::kMore: return Step::kMore;
    case JsonEndFinder::Found::kBad: at_ += json_.n_bytes(); return Step::kText;
    case JsonEndFinder::Found::kEnd: break;
  }
  const std::string_view json = rest.substr(0, json_.n_bytes());
  at_ += json.size();
  stage_ = Stage::kAfterArguments;
  if (!is_json(json)) return Step::kOn;
  if (name_.empty()) {
    add_calls(json);
  } else {
    add_call(name_, std::string(json));
  }
  return Step::kOn;
}

CallReader::Step CallReader::read_tag(std::string_view text, bool at_end) {
  const std::string_view rest = skip_blanks(text);
  if (rest.empty()) return Step::kMore;
  const std::string_view last = syntax_->body_end.empty() ? syntax_->end : syntax_->body_end;
  const MarkerFound ends = marker_at_start(rest, last, at_end);
  if (ends == MarkerFound::kYes) {
    at_ += syntax_->body_end.empty() ? 0 : last.size();
    add_call(name_, "{" + arguments_ + "}");
    stage_ = Stage::kClosing;
    return Step::kOn;
  }
  const MarkerFound key = marker_at_start(rest, syntax_->key_begin, at_end);
  if (ends == MarkerFound::kPart || key == MarkerFound::kPart) return Step::kMore;
  if (key == MarkerFound::kNo) return Step::kText;

  const std::size_t key_at = syntax_->key_begin.size();
  const std::size_t key_end = rest.find(syntax_->key_end, key_at);
  if (key_end == std::string_view::npos && rest.size() <= kMaxNameBytes + kMaxMarkerBytes) {
    return Step::kMore;
  }
  if (key_end == std::string_view::npos || key_end > kMaxNameBytes) return Step::kText;
  const std::string_view after = rest.substr(key_end + syntax_->key_end.size());
  std::string_view value = after;
  if (!syntax_->value_begin.empty()) {
    value = behind_blanks(text, text.size() - after.size());
    const MarkerFound begins = value.empty() && !at_end
                                   ? MarkerFound::kPart
                                   : marker_at_start(value, syntax_->value_begin, at_end);
    if (begins == MarkerFound::kPart) return Step::kMore;
    if (begins == MarkerFound::kNo) return Step::kText;
    value.remove_prefix(syntax_->value_begin.size());
  }
  key_ = trim(rest.substr(key_at, key_end - key_at));
  at_ = search_at_ = text.size() - value.size();
  stage_ = Stage::kValue;
  return Step::kOn;
}

CallReader::Step CallReader::read_value(std::string_view text, bool at_end) {
  const std::string_view end = syntax_->value_end;
  const std::string_view last = syntax_->body_end.empty() ? syntax_->end : syntax_->body_end;
  for (;;) {
    const std::size_t found = text.find(end, search_at_);
    if (found == std::string_view::npos) {
      search_at_ = std::max(search_at_, text.size() - std::min(text.size(), end.size() - 1));
      return Step::kMore;
    }
    // The value may hold the marker, too: what ends it is followed by a tag.
    const std::string_view rest = behind_blanks(text, found + end.size());
    const MarkerFound key = marker_at_start(rest, syntax_->key_begin, at_end);
    const MarkerFound body = marker_at_start(rest, last, at_end);
    if (key == MarkerFound::kYes || body == MarkerFound::kYes) {
      std::string_view value = text.substr(at_, found - at_);
      if (syntax_->lines) {
        if (value.starts_with('\n')) value.remove_prefix(1);
        if (value.ends_with('\n')) value.remove_suffix(1);
      }
      const ToolDefinition* known = tool(name_);
      const std::string_view properties =
          known == nullptr ? "" : json_member(resolved_schema(known->parameters), "properties");
      if (!arguments_.empty()) arguments_ += ", ";
      arguments_ += json_quoted(key_);
      arguments_ += ": ";
      arguments_ += tagged_value(value, json_member(properties, key_));
      at_ = found + end.size();
      stage_ = Stage::kTag;
      return Step::kOn;
    }
    search_at_ = found;
    if (key == MarkerFound::kPart || body == MarkerFound::kPart) return Step::kMore;
    ++search_at_;
  }
}

CallReader::Step CallReader::read_marker(std::string_view text, std::string_view marker,
                                         bool at_end) {
  if (marker.empty()) return Step::kOn;
  const std::string_view rest = behind_blanks(text, at_);
  if (rest.empty() && !at_end) return Step::kMore;
  const MarkerFound found = marker_at_start(rest, marker, at_end);
  if (found == MarkerFound::kPart) return Step::kMore;
  if (found == MarkerFound::kYes) at_ = text.size() - rest.size() + marker.size();
  return Step::kOn;
}

bool CallReader::add_calls(std::string_view json) {
  if (json.starts_with('{')) return add_call(json);
  for (const std::string_view element : json_elements(json)) {
    if (!add_call(element)) {
      calls_.clear();
      return false;
    }
  }
  return true;
}

bool CallReader::add_call(std::string_view object) {
  const std::string_view function = json_member(object, "function");
  if (function.starts_with('{')) object = function;
  std::optional<std::string> name = json_string(json_member(object, syntax_->name_key));
  if (!name) name = json_string(json_member(object, "name"));
  if (!name) return false;
  std::string_view arguments = json_member(object, syntax_->arguments_key);
  for (const std::string_view key : {"arguments", "parameters"}) {
    if (arguments.empty()) arguments = json_member(object, key);
  }
  if (arguments.empty() || arguments == "null") arguments = "{}";
  return add_call(*name, json_string(arguments).value_or(std::string(arguments)));
}

bool CallReader::add_call(std::string name, std::string arguments) {
  // Those in a string or in tags were not looked at yet.
  JsonEndFinder object;
  const std::string_view text = trim(arguments);
  if (tool(name) == nullptr || !text.starts_with('{') || !is_json(text)) return false;
  if (object.find(text) != JsonEndFinder::Found::kEnd) return false;
  calls_.push_back({.name = std::move(name), .arguments = std::move(arguments)});
  return true;
}

const ToolDefinition* CallReader::tool(std::string_view name) const {
  const auto found = std::find_if(tools_->begin(), tools_->end(),
                                  [&](const ToolDefinition& each) { return each.name == name; });
  return found == tools_->end() ? nullptr : &*found;
}

}  // namespace qsf_tools
