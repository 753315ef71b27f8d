// SPDX-License-Identifier: MIT

#include "tokenizer/character_steps.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/added_matcher.h"
#include "tokenizer/utf8.h"

namespace qsf {

namespace {

// The text that a step writes, with its marks where it has any.
class MarkedOutput {
 public:
  MarkedOutput(std::string& text, std::string* marks) : text_(text), marks_(marks) {
    out_.reserve(text.size());
    if (marks != nullptr) out_marks_.reserve(marks->size());
  }

  // The mark of bytes [begin, end) of the text.
  char mark_of(std::size_t begin, std::size_t end) const {
    if (marks_ == nullptr) return SpecialMask::kUnmarked;
    return SpecialMask(*marks_).allows(begin, end) ? SpecialMask::kMarked : SpecialMask::kUnmarked;
  }
  void add(std::string_view bytes, char mark) {
    out_.append(bytes);
    if (marks_ != nullptr) out_marks_.append(bytes.size(), mark);
  }
  void add(std::uint32_t code_point, char mark) {
    utf8proc_uint8_t bytes[4];
    const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
    add({reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n)}, mark);
  }
  void finish() {
    text_ = std::move(out_);
    if (marks_ != nullptr) *marks_ = std::move(out_marks_);
  }

 private:
  std::string& text_;
  std::string* marks_;
  std::string out_;
  std::string out_marks_;
};

// Calls change(character, its bytes, their mark, output) for each character and bytes that are
// none.
template <typename Change>
void change_characters(std::string& text, std::string* marks, const Change& change) {
  MarkedOutput out(text, marks);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    const std::size_t end = at + next.n_bytes;
    change(next, std::string_view(text).substr(at, next.n_bytes), out.mark_of(at, end), out);
    at = end;
  }
  out.finish();
}

utf8proc_category_t category_of(std::uint32_t code_point) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_dropped(std::uint32_t c) noexcept {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const utf8proc_category_t category = category_of(c);
  return c == 0 || c == 0xFFFDU || category == UTF8PROC_CATEGORY_CC ||
         category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

bool is_ideograph(std::uint32_t c) noexcept {
  struct Block {
    std::uint32_t first;
    std::uint32_t last;
  };
  constexpr Block kBlocks[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                               {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                               {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const Block& block) { return c >= block.first && c <= block.last; });
}

}  // namespace

void clean_text(std::string& text, std::string* marks) {
  change_characters(text, marks,
                    [](Utf8Char c, std::string_view bytes, char mark, MarkedOutput& out) {
                      if (!c.valid || is_dropped(c.code_point)) return;
                      out.add(is_unicode_space(c.code_point) ? " " : bytes, mark);
                    });
}

void space_ideographs(std::string& text, std::string* marks) {
  change_characters(text, marks,
                    [](Utf8Char c, std::string_view bytes, char mark, MarkedOutput& out) {
                      const bool spaced = c.valid && is_ideograph(c.code_point);
                      if (spaced) out.add(" ", mark);
                      out.add(bytes, mark);
                      if (spaced) out.add(" ", mark);
                    });
}

void lowercase(std::string& text, std::string* marks) {
  constexpr std::uint32_t kDottedCapital = 0x130;  // the one that becomes two characters
  change_characters(
      text, marks, [](Utf8Char c, std::string_view bytes, char mark, MarkedOutput& out) {
        if (!c.valid) {
          out.add(bytes, mark);
        } else if (c.code_point == kDottedCapital) {
          out.add("i\xCC\x87", mark);
        } else {
          const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point));
          out.add(static_cast<std::uint32_t>(lower), mark);
        }
      });
}

void strip_marks(std::string& text, std::string* marks) {
  struct Character {
    std::uint32_t code_point;
    utf8proc_propval_t combining;
    char mark;
  };
  constexpr auto kDecomposed = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  constexpr std::size_t kLongest = 32;  // of one character's decomposition, which has 4
  std::vector<Character> run;           // of combining characters that stay
  const auto flush = [&run](MarkedOutput& out) {
    std::stable_sort(run.begin(), run.end(), [](const Character& a, const Character& b) {
      return a.combining < b.combining;
    });
    for (const Character& c : run) out.add(c.code_point, c.mark);
    run.clear();
  };
  MarkedOutput out(text, marks);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    const std::size_t end = at + next.n_bytes;
    const char mark = out.mark_of(at, end);
    const std::string_view bytes = std::string_view(text).substr(at, next.n_bytes);
    at = end;
    if (!next.valid) {
      flush(out);
      out.add(bytes, mark);
      continue;
    }
    utf8proc_int32_t parts[kLongest];
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code_point), parts,
                                           kLongest, kDecomposed, nullptr);
    for (utf8proc_ssize_t i = 0; i < std::clamp<utf8proc_ssize_t>(n, 0, kLongest); ++i) {
      const utf8proc_property_t* property = utf8proc_get_property(parts[i]);
      if (property->category == UTF8PROC_CATEGORY_MN) continue;
      if (property->combining_class == 0) flush(out);
      run.push_back({static_cast<std::uint32_t>(parts[i]), property->combining_class, mark});
      if (property->combining_class == 0) flush(out);
    }
  }
  flush(out);
  out.finish();
}

}  // namespace qsf
