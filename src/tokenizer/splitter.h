// SPDX-License-Identifier: MIT
//
// One split of the pre-tokeniser: a regular expression of the model, run unchanged by PCRE2.
//
// The expressions come from files, so both compiling and matching are bounded: no single-byte
// escapes, a limit on backtracking steps, and where a text makes an expression hit that limit, the
// rest of the piece is matched in windows of a few kilobytes instead (tokens may then differ from
// the reference at a window's edge; decoding is never affected).

#ifndef QSF_TOKENIZER_SPLITTER_H_
#define QSF_TOKENIZER_SPLITTER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_section.h"

struct pcre2_real_code_8;

namespace qsf {

// A stretch of a text, [begin, end) in bytes.
struct Piece {
  std::uint32_t begin;
  std::uint32_t end;
};

// The buffers of matching; one per running encode.
class SplitScratch {
 public:
  SplitScratch();
  SplitScratch(const SplitScratch&) = delete;
  SplitScratch& operator=(const SplitScratch&) = delete;
  ~SplitScratch();

 private:
  friend class Splitter;
  struct State;
  std::unique_ptr<State> state_;
};

class Splitter {
 public:
  // Fails  kUnsupported when PCRE2 refuses the expression
  static Result<Splitter> compile(const StepView& step);

  // Splits `piece` and appends the non-empty parts to `out`, in order.
  // Requires  text[piece] is valid UTF-8
  // Fails     kUnsupported when the expression needs more steps than the limit even in a window
  // Threads   any, each with its own scratch
  Status split(std::string_view text, Piece piece, SplitScratch& scratch,
               std::vector<Piece>& out) const;

  // Returns the heap that the compiled expression holds, machine code included.
  std::size_t code_bytes() const noexcept;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const noexcept;
  };

  Splitter() = default;

  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  SplitBehavior behavior_ = SplitBehavior::kIsolated;
  bool invert_ = false;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_SPLITTER_H_
