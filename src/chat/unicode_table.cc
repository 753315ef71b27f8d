// SPDX-License-Identifier: MIT

#include "chat/unicode_table.h"

#include <algorithm>

#include "chat/jinja_text.h"

namespace qsf::jinja {
namespace {

// The range that may hold `code_point`, end() when none does.
template <typename Range>
auto find_range(std::span<const Range> ranges, std::uint32_t code_point) {
  const auto found =
      std::lower_bound(ranges.begin(), ranges.end(), code_point,
                       [](const Range& range, std::uint32_t c) { return range.last < c; });
  return found != ranges.end() && found->first <= code_point ? found : ranges.end();
}

bool contains(std::span<const CodePointRange> ranges, std::uint32_t code_point) {
  return find_range(ranges, code_point) != ranges.end();
}

// Returns false, and appends nothing, where the tables of that case do not name the code point.
bool append_by_rule(std::uint32_t code_point, LetterCase to, std::string& out) {
  const auto expansions = case_expansions(to);
  const auto expansion = std::lower_bound(
      expansions.begin(), expansions.end(), code_point,
      [](const CaseExpansion& entry, std::uint32_t c) { return entry.code_point < c; });
  if (expansion != expansions.end() && expansion->code_point == code_point) {
    out += expansion->text;
    return true;
  }
  const auto ranges = case_ranges(to);
  const auto range = find_range(ranges, code_point);
  if (range == ranges.end() || (code_point - range->first) % range->stride != 0) return false;
  append_utf8(static_cast<std::uint32_t>(static_cast<std::int32_t>(code_point) + range->delta),
              out);
  return true;
}

}  // namespace

void append_case(std::uint32_t code_point, LetterCase to, std::string& out) {
  if (append_by_rule(code_point, to, out)) return;
  if (to == LetterCase::kTitle && append_by_rule(code_point, LetterCase::kUpper, out)) return;
  append_utf8(code_point, out);
}

bool is_printable(std::uint32_t code_point) {
  return !contains(unprintable_ranges(), code_point);
}

bool is_cased(std::uint32_t code_point) {
  return contains(cased_ranges(), code_point);
}

bool is_case_ignorable(std::uint32_t code_point) {
  return contains(case_ignorable_ranges(), code_point);
}

bool is_upper(std::uint32_t code_point) {
  return contains(upper_ranges(), code_point);
}

bool is_lower(std::uint32_t code_point) {
  return contains(lower_ranges(), code_point);
}

}  // namespace qsf::jinja
