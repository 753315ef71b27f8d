// SPDX-License-Identifier: MIT

#include "import/bert_steps.h"

#include <utility>

namespace qsf {

void add_bert_normalizer(const BertNormalizer& parts, TokenizerData& data) {
  const auto add = [&data](bool wanted, TextOp op) {
    if (!wanted) return;
    TextStep step;
    step.op = op;
    step.stage = TextStage::kNormalizer;
    data.steps.push_back(std::move(step));
  };
  add(parts.clean_text, TextOp::kCleanText);
  add(parts.space_ideographs, TextOp::kSpaceIdeographs);
  add(parts.strip_marks, TextOp::kStripMarks);
  add(parts.lowercase, TextOp::kLowercase);
}

void add_bert_splits(TokenizerData& data) {
  TextStep step;
  step.text = "\\s";
  step.behavior = SplitBehavior::kRemoved;
  data.steps.push_back(step);
  step.text = "[\\p{P}!-/:-@\\[-`{-~]";
  step.behavior = SplitBehavior::kIsolated;
  data.steps.push_back(std::move(step));
}

}  // namespace qsf
