// SPDX-License-Identifier: MIT
//
// The parts that one piece of text completed, neighbours of one kind joined.

#ifndef QSF_TOOLS_SERVE_SYNTAX_PART_LIST_H_
#define QSF_TOOLS_SERVE_SYNTAX_PART_LIST_H_

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/serve/syntax/chat_syntax.h"

namespace qsf_tools {

class PartList {
 public:
  // Appends to `parts`, and joins nothing with those that are in it.
  explicit PartList(std::vector<AnswerPart>& parts) : parts_(&parts), n_before_(parts.size()) {}

  void add(AnswerPart::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (parts_->size() == n_before_ || parts_->back().kind != kind) {
      parts_->push_back({.kind = kind, .text = {}, .call = {}});
    }
    parts_->back().text += text;
  }
  void add_calls(std::vector<ToolCall> calls) {
    for (ToolCall& call : calls) {
      parts_->push_back({.kind = AnswerPart::Kind::kToolCall, .text = {}, .call = std::move(call)});
    }
  }

 private:
  std::vector<AnswerPart>* parts_;
  std::size_t n_before_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_PART_LIST_H_
