// SPDX-License-Identifier: MIT

#include "tokenizer/text_steps.h"

#include <algorithm>
#include <utility>

#include "tokenizer/added_matcher.h"
#include "tokenizer/character_steps.h"
#include "tokenizer/nfc.h"
#include "tokenizer/utf8.h"

namespace qsf {

namespace {

constexpr std::size_t kMaxGrowth = 16;
constexpr std::size_t kGrowthSlack = 4096;
constexpr std::size_t kMaxStepBytes = std::size_t{1} << 31;

void collapse_spaces(std::string& text, std::string* marks) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && (kept == 0 || text[kept - 1] == ' ')) {
      if (marks != nullptr && kept > 0) (*marks)[kept - 1] &= (*marks)[i];
      continue;
    }
    if (marks != nullptr) (*marks)[kept] = (*marks)[i];
    text[kept++] = text[i];
  }
  if (kept > 0 && text[kept - 1] == ' ') --kept;
  text.resize(kept);
  if (marks != nullptr) marks->resize(kept);
}

// Returns false when the result would exceed `limit` bytes.
bool replace_all(std::string_view wanted, std::string_view by, std::size_t limit,
                 TextScratch& scratch, std::string& text, std::string* marks) {
  std::size_t at = text.find(wanted);
  if (at == std::string::npos) return true;
  std::string& spare = scratch.spare;
  std::string& spare_marks = scratch.spare_marks;
  spare.clear();
  spare_marks.clear();
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find(wanted, done)) {
    if (spare.size() + (at - done) + by.size() > limit) return false;
    spare.append(text, done, at - done).append(by);
    if (marks != nullptr) {
      const bool allowed = SpecialMask(*marks).allows(at, at + wanted.size());
      spare_marks.append(*marks, done, at - done)
          .append(by.size(), allowed ? SpecialMask::kMarked : SpecialMask::kUnmarked);
    }
    done = at + wanted.size();
  }
  spare.append(text, done);
  text.swap(spare);
  if (marks != nullptr) {
    spare_marks.append(*marks, done);
    marks->swap(spare_marks);
  }
  return text.size() <= limit;
}

}  // namespace

Result<TextSteps> TextSteps::create(const SectionView& section) {
  TextSteps steps;
  steps.nfc_ = section.has(kSectionNfc);
  for (std::uint32_t i = 0; i < section.n_steps(); ++i) {
    const StepView step = section.step(i);
    if (step.op != TextOp::kSplit) {
      steps.transforms_.push_back(step);
      continue;
    }
    QSF_ASSIGN_OR_RETURN(Splitter splitter, Splitter::compile(step));
    steps.splitters_.push_back(std::move(splitter));
  }
  return steps;
}

bool TextSteps::transforms(TextStage stage) const noexcept {
  if (nfc_ && stage == TextStage::kNormalizer) return true;
  return std::any_of(transforms_.begin(), transforms_.end(),
                     [stage](const StepView& step) { return step.stage == stage; });
}

std::size_t TextSteps::code_bytes() const noexcept {
  std::size_t sum = 0;
  for (const Splitter& splitter : splitters_) sum += splitter.code_bytes();
  return sum;
}

Status TextSteps::transform(TextStage stage, bool at_start, TextScratch& scratch, std::string& text,
                            std::string* marks) const {
  const std::size_t limit = std::min(text.size() * kMaxGrowth + kGrowthSlack, kMaxStepBytes);
  if (nfc_ && stage == TextStage::kNormalizer) normalize_nfc(text, marks);
  for (const StepView& step : transforms_) {
    if (step.stage != stage) continue;
    bool fits = true;
    switch (step.op) {
      case TextOp::kPrepend:
        if (text.empty() || ((step.flags & kStepFirstOnly) != 0 && !at_start)) break;
        if ((step.flags & kStepUnlessPresent) != 0 && text.starts_with(step.text)) break;
        fits = text.size() + step.text.size() <= limit;
        if (!fits) break;
        text.insert(0, step.text);
        if (marks != nullptr) marks->insert(0, step.text.size(), marks->front());
        break;
      case TextOp::kReplace:
        fits = replace_all(step.text, step.replacement, limit, scratch, text, marks);
        break;
      case TextOp::kCollapseSpaces: collapse_spaces(text, marks); break;
      case TextOp::kCleanText: clean_text(text, marks); break;
      case TextOp::kSpaceIdeographs: space_ideographs(text, marks); break;
      case TextOp::kStripMarks: strip_marks(text, marks); break;
      case TextOp::kLowercase: lowercase(text, marks); break;
      case TextOp::kSplit: break;
    }
    if (!fits || text.size() > limit) {
      return unsupported("tokenizer: the normaliser makes more than %zu bytes from a text of %zu",
                         limit, (limit - std::min(limit, kGrowthSlack)) / kMaxGrowth);
    }
  }
  return ok_status();
}

Status TextSteps::split(std::string_view text, TextScratch& scratch,
                        std::vector<Piece>& pieces) const {
  pieces.clear();
  if (text.empty()) return ok_status();
  const Piece whole{0, static_cast<std::uint32_t>(text.size())};
  if (splitters_.empty()) {
    pieces.push_back(whole);
    return ok_status();
  }
  for (Piece rest = whole; rest.begin < rest.end;) {
    // A run of valid text, through all splits.
    const auto valid_end = static_cast<std::uint32_t>(valid_utf8_end(text, rest.begin));
    if (valid_end > rest.begin) {
      scratch.valid.assign(1, {rest.begin, valid_end});
      for (const Splitter& splitter : splitters_) {
        scratch.next.clear();
        for (const Piece piece : scratch.valid) {
          QSF_RETURN_IF_ERROR(splitter.split(text, piece, scratch.split, scratch.next));
        }
        scratch.valid.swap(scratch.next);
      }
      pieces.insert(pieces.end(), scratch.valid.begin(), scratch.valid.end());
    }
    // The run of invalid bytes behind it, as it is.
    std::uint32_t invalid_end = valid_end;
    while (invalid_end < rest.end) {
      const Utf8Char next = decode_utf8(text, invalid_end);
      if (next.valid) break;
      invalid_end += next.n_bytes;
    }
    if (invalid_end > valid_end) pieces.push_back({valid_end, invalid_end});
    rest.begin = invalid_end;
  }
  return ok_status();
}

}  // namespace qsf
