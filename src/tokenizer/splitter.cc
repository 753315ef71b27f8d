// SPDX-License-Identifier: MIT

#include "tokenizer/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <string>

#include "tokenizer/utf8.h"

namespace qsf {

namespace {

// Backtracking steps of one match. Real expressions need a handful per character they pass over.
constexpr std::uint32_t kMatchLimit = 2'000'000;
constexpr std::uint32_t kHeapLimitKib = 16 * 1024;  // of PCRE2's interpreter
constexpr std::size_t kJitStackBytes = 512 * 1024;
constexpr std::size_t kWindowBytes = 1024;
constexpr std::size_t kMaxPatternBytes = 64 * 1024;

struct ContextDeleter {
  void operator()(pcre2_compile_context* p) const noexcept { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const noexcept { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
  void operator()(pcre2_jit_stack* p) const noexcept { pcre2_jit_stack_free(p); }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, ContextDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, ContextDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, ContextDeleter>;
using JitStack = std::unique_ptr<pcre2_jit_stack, ContextDeleter>;

bool is_limit_error(int rc) noexcept {
  return rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_JIT_STACKLIMIT ||
         rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT;
}

std::string error_text(int code) {
  PCRE2_UCHAR buffer[128];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return "unknown error";
  return reinterpret_cast<const char*>(buffer);
}

// Returns `pattern` for a message: its beginning, with unprintable bytes replaced.
std::string printable(std::string_view pattern) {
  std::string text(pattern.substr(0, 60));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return pattern.size() > 60 ? text + "..." : text;
}

// A run of matching or not matching text that ends at `end`; it begins where the last one ended.
struct Run {
  std::uint32_t end;
  bool is_match;
};

// Turns runs into pieces as `behavior` says.
class PieceBuilder {
 public:
  PieceBuilder(SplitBehavior behavior, std::uint32_t begin, std::vector<Piece>& out)
      : behavior_(behavior), begin_(begin), out_(out), first_(out.size()) {}

  void add(Run run) {
    const Piece piece{begin_, run.end};
    begin_ = run.end;
    if (piece.begin == piece.end) return;
    const bool has_last = out_.size() > first_;
    bool join = false;
    bool drop = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kRemoved: drop = run.is_match; break;
      case SplitBehavior::kMergedWithPrevious: join = run.is_match && !last_matched_; break;
      // A match waits for the text after it; of several matches in a row only the last is joined.
      case SplitBehavior::kMergedWithNext: join = last_matched_ && !run.is_match; break;
      case SplitBehavior::kContiguous: join = run.is_match == last_matched_; break;
    }
    if (join && has_last) {
      out_.back().end = piece.end;
    } else if (!drop) {
      out_.push_back(piece);
    }
    last_matched_ = run.is_match;
  }

 private:
  SplitBehavior behavior_;
  std::uint32_t begin_;
  std::vector<Piece>& out_;
  std::size_t first_;
  bool last_matched_ = false;
};

}  // namespace

struct SplitScratch::State {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)};
};

SplitScratch::SplitScratch() : state_(std::make_unique<State>()) {
  if (state_->context != nullptr) {
    pcre2_set_match_limit(state_->context.get(), kMatchLimit);
    pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  }
}

SplitScratch::~SplitScratch() = default;

void Splitter::FreeCode::operator()(pcre2_real_code_8* code) const noexcept {
  pcre2_code_free(code);
}

Result<Splitter> Splitter::compile(const StepView& step) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return internal_error("pre-tokeniser: PCRE2 has no memory");
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  // The engines for which these expressions were written end a line only at \n.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  Splitter splitter;
  splitter.code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(step.text.data()), step.text.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &error_at, context.get()));
  if (splitter.code_ == nullptr) {
    return unsupported("pre-tokeniser: expression \"%s\": %s at byte %zu",
                       printable(step.text).c_str(), error_text(error).c_str(), error_at);
  }
  // Machine code is an optimisation: where it cannot be had, the interpreter does the same work.
  static_cast<void>(pcre2_jit_compile(splitter.code_.get(), PCRE2_JIT_COMPLETE));
  splitter.behavior_ = step.behavior;
  splitter.invert_ = (step.flags & kStepInvert) != 0;
  return splitter;
}

std::size_t Splitter::code_bytes() const noexcept {
  std::size_t code = 0;
  std::size_t jit = 0;
  static_cast<void>(pcre2_pattern_info(code_.get(), PCRE2_INFO_SIZE, &code));
  static_cast<void>(pcre2_pattern_info(code_.get(), PCRE2_INFO_JITSIZE, &jit));
  return code + jit;
}

Status Splitter::split(std::string_view text, Piece piece, SplitScratch& scratch,
                       std::vector<Piece>& out) const {
  SplitScratch::State& state = *scratch.state_;
  if (state.data == nullptr || state.context == nullptr) {
    return internal_error("pre-tokeniser: PCRE2 has no memory");
  }
  // The subject is only the piece: look-arounds end at its edges.
  const std::string_view subject = text.substr(piece.begin, piece.end - piece.begin);
  const auto* start = reinterpret_cast<PCRE2_SPTR>(subject.data());
  PieceBuilder builder(behavior_, piece.begin, out);
  bool windowed = false;
  std::size_t from = 0;
  std::size_t last_end = 0;
  while (from < subject.size()) {
    std::size_t end = subject.size();
    if (windowed) {
      end = std::min(end, from + kWindowBytes);
      while (end < subject.size() && is_utf8_continuation(subject[end])) ++end;
    }
    const int rc = pcre2_match(code_.get(), start, end, from, PCRE2_NO_UTF_CHECK, state.data.get(),
                               state.context.get());
    if (rc == PCRE2_ERROR_NOMATCH) {
      from = end;
      continue;
    }
    if (is_limit_error(rc) && !windowed) {
      windowed = true;
      continue;
    }
    if (rc < 0) {
      return unsupported("pre-tokeniser: an expression failed on this text: %s",
                         error_text(rc).c_str());
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data.get());
    if (range[0] < from || range[1] < range[0] || range[1] > end) {
      return unsupported(
          "pre-tokeniser: an expression moves its match's start (\\K in a look-around)");
    }
    if (range[0] > last_end)
      builder.add({piece.begin + static_cast<std::uint32_t>(range[0]), invert_});
    if (range[1] > range[0])
      builder.add({piece.begin + static_cast<std::uint32_t>(range[1]), !invert_});
    last_end = range[1];
    from = range[1];
    if (range[0] == range[1]) {  // empty: a cut without text; look on behind the next character
      do {
        ++from;
      } while (from < subject.size() && is_utf8_continuation(subject[from]));
    }
  }
  if (last_end < subject.size()) builder.add({piece.end, invert_});
  return ok_status();
}

}  // namespace qsf
