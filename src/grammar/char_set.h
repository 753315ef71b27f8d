// SPDX-License-Identifier: MIT
//
// CharSet: a set of Unicode code points, as ranges. Surrogates are never members.

#ifndef QSF_GRAMMAR_CHAR_SET_H_
#define QSF_GRAMMAR_CHAR_SET_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace qsf {

inline constexpr std::uint32_t kLastCodePoint = 0x10FFFF;

struct CharRange {
  std::uint32_t first;
  std::uint32_t last;  // included
  bool operator==(const CharRange&) const = default;
};

class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges);
  static CharSet all() { return CharSet({{0, kLastCodePoint}}); }

  // Adds a range. Requires  first <= last <= kLastCodePoint
  void add(std::uint32_t first, std::uint32_t last);
  void add(const CharSet& other);
  void add(std::uint32_t code_point) { add(code_point, code_point); }

  CharSet complement() const;
  CharSet without(const CharSet& other) const;

  bool contains(std::uint32_t code_point) const;
  bool contains(const CharSet& other) const { return other.without(*this).empty(); }
  bool empty() const { return ranges().empty(); }
  // Ascending and apart.
  std::span<const CharRange> ranges() const;

 private:
  mutable std::vector<CharRange> ranges_;
  mutable bool sorted_ = true;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_CHAR_SET_H_
