// SPDX-License-Identifier: MIT
//
// Text preparation: the steps of a tokenizer section, from a segment of text to the pieces the
// model encodes one by one.
//
// Text may be any bytes. Steps that replace text work on bytes; expressions see valid UTF-8 only:
// the text is cut at invalid bytes first, and each run of those is a piece of its own.

#ifndef QSF_TOKENIZER_TEXT_STEPS_H_
#define QSF_TOKENIZER_TEXT_STEPS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {

// Buffers of one running encode, kept between its segments.
struct TextScratch {
  SplitScratch split;
  std::string spare;
  std::string spare_marks;
  std::vector<Piece> valid;
  std::vector<Piece> next;
};

class TextSteps {
 public:
  TextSteps() = default;
  // Compiles every split. Fails  kUnsupported: PCRE2 refuses an expression
  static Result<TextSteps> create(const SectionView& section);

  // Applies the steps of one stage that change text, in place. `at_start`: the segment begins where
  // the whole text begins. `marks`, unless null, has one mark for each byte of the text (see
  // SpecialMask) and is changed with it: a replacement is marked if its whole source was. Fails
  // kUnsupported when the text would grow to more than 16 times its size plus 4 KiB, or past 2 GiB
  Status transform(TextStage stage, bool at_start, TextScratch& scratch, std::string& text,
                   std::string* marks) const;

  // Cuts `text` by all splits and fills `pieces`, none empty.
  Status split(std::string_view text, TextScratch& scratch, std::vector<Piece>& pieces) const;

  // True when split() may return more than one piece.
  bool splits() const noexcept { return !splitters_.empty(); }
  // True when `stage` has steps that change text.
  bool transforms(TextStage stage) const noexcept;
  // Returns the heap that the compiled expressions hold.
  std::size_t code_bytes() const noexcept;

 private:
  bool nfc_ = false;  // first of the normaliser
  std::vector<StepView> transforms_;
  std::vector<Splitter> splitters_;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_TEXT_STEPS_H_
