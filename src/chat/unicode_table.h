// SPDX-License-Identifier: MIT
//
// What Python's str knows of characters: upper, lower and title case, and which can be printed.
//
// The C library's functions follow the locale and its own version of Unicode; a template's output
// may follow neither.

#ifndef QSF_CHAT_UNICODE_TABLE_H_
#define QSF_CHAT_UNICODE_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qsf::jinja {

enum class LetterCase : std::uint8_t { kLower, kUpper, kTitle };

// One rule of case: every `stride`-th code point from `first` to `last` becomes itself plus delta.
struct CaseRange {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t stride;
  std::int32_t delta;
};

// A code point that becomes several.
struct CaseExpansion {
  std::uint32_t code_point;
  std::string_view text;
};

struct CodePointRange {
  std::uint32_t first;
  std::uint32_t last;
};

// Appends `code_point` in another case.
// Requires  code_point is one
void append_case(std::uint32_t code_point, LetterCase to, std::string& out);

// Python's str.isprintable of one character.
bool is_printable(std::uint32_t code_point);

// Unicode's Cased and Case_Ignorable: what decides where a word begins, and which sigma ends it.
bool is_cased(std::uint32_t code_point);
bool is_case_ignorable(std::uint32_t code_point);

// Python's str.isupper and islower of one character, without regard to what has no case.
bool is_upper(std::uint32_t code_point);
bool is_lower(std::uint32_t code_point);

// The tables themselves, in unicode_case_data.cc and unicode_set_data.cc. Those of title case hold
// what is not as in upper case.
std::span<const CaseRange> case_ranges(LetterCase to);
std::span<const CaseExpansion> case_expansions(LetterCase to);
std::span<const CodePointRange> unprintable_ranges();
std::span<const CodePointRange> cased_ranges();
std::span<const CodePointRange> case_ignorable_ranges();
std::span<const CodePointRange> upper_ranges();
std::span<const CodePointRange> lower_ranges();

}  // namespace qsf::jinja

#endif  // QSF_CHAT_UNICODE_TABLE_H_
