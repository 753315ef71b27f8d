// SPDX-License-Identifier: MIT
//
// A matcher that is slow and simple: it reads a whole text from the beginning each time, with
// recursion over the expressions of a grammar. For tests.

#ifndef QSF_GRAMMAR_TESTING_SLOW_MATCHER_H_
#define QSF_GRAMMAR_TESTING_SLOW_MATCHER_H_

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "grammar/rules.h"
#include "grammar/utf8_code_points.h"

namespace qsf {

class SlowMatcher {
 public:
  explicit SlowMatcher(const GrammarRules& rules) : rules_(rules) {}

  // Whether the text is one of the grammar.
  bool matches(std::string_view text) { return read(text).contains(text.size()); }
  // Whether it begins one, or is one.
  bool begins(std::string_view text) {
    const bool whole = matches(text);
    return whole || wants_more_;
  }

 private:
  using Ends = std::set<std::size_t>;

  Ends read(std::string_view text) {
    text_ = text;
    wants_more_ = false;
    known_.clear();
    return ends(rules_.definition(rules_.root), 0);
  }

  Ends ends(ExprId id, std::size_t at) {
    const auto known = known_.find({id, at});
    if (known != known_.end()) return known->second;
    const Ends found = find_ends(rules_.expression(id), at);
    known_[{id, at}] = found;
    return found;
  }

  Ends find_ends(const Expression& e, std::size_t at) {
    switch (e.kind) {
      case Expression::Kind::kLiteral: {
        const std::string_view bytes = rules_.literal_bytes(e);
        const std::string_view rest = text_.substr(at);
        if (rest.starts_with(bytes)) return {at + bytes.size()};
        if (bytes.starts_with(rest)) wants_more_ = true;
        return {};
      }
      case Expression::Kind::kClass: return class_ends(rules_.set_at(e.first), at);
      case Expression::Kind::kSequence: {
        Ends now = {at};
        for (const ExprId part : rules_.parts(e)) now = after(part, now);
        return now;
      }
      case Expression::Kind::kChoice: {
        Ends all;
        for (const ExprId part : rules_.parts(e)) all.merge(ends(part, at));
        return all;
      }
      case Expression::Kind::kRepeat: {
        Ends all;
        Ends now = {at};
        std::set<Ends> seen;
        for (std::uint32_t n = 0; n <= e.most && !now.empty(); ++n) {
          if (n >= e.count) {
            all.insert(now.begin(), now.end());
            if (!seen.insert(now).second) break;
          }
          if (n < e.most) now = after(e.first, now);
        }
        return all;
      }
      case Expression::Kind::kRule: return ends(rules_.definition(e.first), at);
    }
    return {};
  }

  Ends after(ExprId part, const Ends& now) {
    Ends next;
    for (const std::size_t at : now) next.merge(ends(part, at));
    return next;
  }

  Ends class_ends(const CharSet& set, std::size_t at) {
    const std::string_view rest = text_.substr(at);
    const std::size_t n = utf8_char_bytes(rest);
    if (n > 0) return set.contains(first_code_point(rest)) ? Ends{at + n} : Ends{};
    if (rest.empty()) wants_more_ = wants_more_ || !set.empty();
    if (rest.empty() || rest.size() > 3) return {};
    // Perhaps the text ends inside a character of the set: those that begin like this.
    const auto lead = static_cast<unsigned char>(rest[0]);
    const std::size_t n_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || rest.size() >= n_bytes) return {};
    std::uint32_t first = lead & (0xFFU >> (n_bytes + 1));
    std::uint32_t last = first;
    for (std::size_t i = 1; i < n_bytes; ++i) {
      const auto byte = i < rest.size() ? static_cast<unsigned char>(rest[i]) : 0x80U;
      if ((byte & 0xC0U) != 0x80U) return {};
      first = first << 6 | (byte & 0x3FU);
      last = last << 6 | (i < rest.size() ? byte & 0x3FU : 0x3FU);
    }
    const std::uint32_t least = n_bytes == 4 ? 0x10000 : n_bytes == 3 ? 0x800 : 0x80;
    first = std::max(first, least);
    last = std::min(last, kLastCodePoint);
    if (first > last) return {};
    for (const CharRange& range : set.ranges()) {
      if (range.first <= last && range.last >= first) wants_more_ = true;
    }
    return {};
  }

  const GrammarRules& rules_;
  std::string_view text_;
  bool wants_more_ = false;
  std::map<std::pair<ExprId, std::size_t>, Ends> known_;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_TESTING_SLOW_MATCHER_H_
