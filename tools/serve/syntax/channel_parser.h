// SPDX-License-Identifier: MIT
//
// Takes an answer of gpt-oss apart: messages in channels (its "harmony" format).
//
// An answer is messages `<|start|>assistant<|channel|>CHANNEL<|message|>TEXT<|end|>`, the first one
// without its start. The channel `analysis` is reasoning; a message to=functions.NAME, before or
// after its channel, calls a function with its text; every other one is the answer.
//
// Based on:  openai/harmony, docs/format.md

#ifndef QSF_TOOLS_SERVE_SYNTAX_CHANNEL_PARSER_H_
#define QSF_TOOLS_SERVE_SYNTAX_CHANNEL_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/syntax/json_text.h"
#include "tools/serve/syntax/marker_search.h"
#include "tools/serve/syntax/part_list.h"

namespace qsf_tools {

class ChannelParser {
 public:
  // `tools` outlives it; none: no calls.
  ChannelParser(const std::vector<ToolDefinition>& tools, bool starts_in_reasoning);

  // Takes what it can from the front of `text` and returns how many bytes that was; `at_end`: all.
  std::size_t take(std::string_view text, bool at_end, PartList& parts);

 private:
  enum class Mode : unsigned char { kBetween, kHeader, kBody, kCall, kAfterCall };

  std::size_t take_some(std::string_view text, bool at_end, PartList& parts);
  void read_header(std::string_view header);
  std::size_t take_body(std::string_view text, bool at_end, PartList& parts);
  std::size_t take_call(std::string_view text, bool at_end, PartList& parts);
  void begin_body(AnswerPart::Kind kind);
  bool& had_kind() { return kind_ == AnswerPart::Kind::kReasoning ? had_reasoning_ : had_text_; }

  const std::vector<ToolDefinition>* tools_;
  Mode mode_ = Mode::kBetween;
  AnswerPart::Kind kind_ = AnswerPart::Kind::kText;
  std::string name_;  // of the function
  JsonEndFinder json_;
  BlankSkipper blanks_;    // before it
  bool had_text_ = false;  // a message before
  bool had_reasoning_ = false;
  bool needs_break_ = false;  // before the next text of this message
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_CHANNEL_PARSER_H_
