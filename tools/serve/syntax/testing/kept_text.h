// SPDX-License-Identifier: MIT
//
// Whether the parts of an answer hold all of its text.

#ifndef QSF_TOOLS_SERVE_SYNTAX_TESTING_KEPT_TEXT_H_
#define QSF_TOOLS_SERVE_SYNTAX_TESTING_KEPT_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/syntax/chat_syntax_table.h"

namespace qsf_tools::testing_support {

// Returns a text without what a parser may drop: blanks, and the markers around reasoning and
// around text. Dropped markers may leave a marker behind: what is left has none.
inline std::string text_without_markers(const ChatSyntax& syntax, std::string_view text) {
  std::vector<std::string_view> markers = {syntax.text_begin, syntax.text_end};
  for (const ReasoningMarkers& each : reasoning_markers()) {
    markers.insert(markers.end(), {each.begin, each.end});
  }
  if (is_bare(syntax.form) && !syntax.end.empty()) {
    markers.insert(markers.end(), {syntax.begin, syntax.end});
  }
  std::string left;
  for (const char c : text) {
    if (std::string_view(" \t\r\n").find(c) != std::string_view::npos) continue;
    left += c;
    for (const std::string_view marker : markers) {
      if (!marker.empty() && left.ends_with(marker)) left.resize(left.size() - marker.size());
    }
  }
  return left;
}

// Whether text and reasoning of `parts` are the answer, but for its calls and what
// text_without_markers() drops, in order. Text that is lost right beside a call passes for a part
// of that. Not for kChannels, whose headers are dropped.
inline bool keeps_text(const ChatSyntax& syntax, std::string_view answer,
                       const std::vector<AnswerPart>& parts) {
  std::vector<std::string> runs(1);
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kToolCall) {
      runs.emplace_back();
    } else {
      runs.back() += part.text;
    }
  }
  const std::string all = text_without_markers(syntax, answer);
  std::size_t at = 0;
  for (std::string& run : runs) {
    run = text_without_markers(syntax, run);
    at = all.find(run, at);
    if (at == std::string::npos) return false;
    at += run.size();
  }
  return runs.size() == 1 ? all == runs[0] : all.starts_with(runs[0]) && all.ends_with(runs.back());
}

}  // namespace qsf_tools::testing_support

#endif  // QSF_TOOLS_SERVE_SYNTAX_TESTING_KEPT_TEXT_H_
