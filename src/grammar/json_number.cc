// SPDX-License-Identifier: MIT

#include "grammar/json_number.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace qsf {

namespace {

constexpr std::size_t kMaxBoundDigits = 400;

void strip_leading_zeros(std::string& digits) {
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
}

// Whole numbers as digits without leading zeros; "" is 0.
int compare_whole(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

std::string plus_one(std::string digits) {
  for (std::size_t i = digits.size(); i > 0; --i) {
    if (digits[i - 1] != '9') {
      ++digits[i - 1];
      return digits;
    }
    digits[i - 1] = '0';
  }
  return "1" + digits;
}

// Requires  digits is not 0
std::string minus_one(std::string digits) {
  std::size_t i = digits.size();
  for (; digits[i - 1] == '0'; --i) digits[i - 1] = '9';
  --digits[i - 1];
  strip_leading_zeros(digits);
  return digits;
}

// A bound of the distance from 0.
struct Magnitude {
  std::string whole;
  std::string fraction;
  bool exclusive = false;
};

class NumberWriter {
 public:
  explicit NumberWriter(GrammarRules& rules) : rules_(rules) {}

  ExprId digits(std::uint32_t least, std::uint32_t most) {
    return rules_.repeat(digit('0', '9'), least, most);
  }

  // Whole numbers from `least` to `most`, both included.
  ExprId whole(std::string least, std::string most) {
    if (most.size() > kMaxNumberDigits) most = std::string(kMaxNumberDigits, '9');
    if (least.empty()) least = "0";
    if (most.empty()) most = "0";
    std::vector<ExprId> choices;
    for (std::size_t n = least.size(); n <= most.size(); ++n) {
      std::string from = n == 1 ? "0" : "1" + std::string(n - 1, '0');
      std::string to = std::string(n, '9');
      if (n == least.size()) from = least;
      if (n == most.size()) to = most;
      if (from <= to) choices.push_back(between(from, to, 0, true, true));
    }
    return rules_.choice(choices);
  }

  // Numbers from `least` to `most`, which may be null.
  ExprId number(const Magnitude& least, const Magnitude* most) {
    std::vector<ExprId> choices;
    const bool same = most != nullptr && least.whole == most->whole;
    if (most == nullptr || compare_whole(least.whole, most->whole) <= 0) {
      add_at(choices, least.whole, &least, same ? most : nullptr);
    }
    if (most != nullptr && compare_whole(least.whole, most->whole) < 0) {
      add_at(choices, most->whole, nullptr, most);
    }
    const std::string from = plus_one(least.whole);
    std::string to(kMaxNumberDigits, '9');
    if (most != nullptr) to = most->whole.empty() ? "" : minus_one(most->whole);
    if (compare_whole(from, to) <= 0) {
      const ExprId any_fraction =
          rules_.optional(rules_.sequence({rules_.literal("."), digits(1, kMaxNumberDigits)}));
      choices.push_back(rules_.sequence({whole(from, to), any_fraction}));
    }
    return rules_.choice(choices);
  }

 private:
  ExprId digit(char first, char last) {
    if (first == last) return rules_.literal(std::string_view(&first, 1));
    CharSet set;
    set.add(static_cast<unsigned char>(first), static_cast<unsigned char>(last));
    return rules_.char_class(set);
  }

  // Digits from `i` on of a number between two of the same length. `low` and `high`: the digits
  // before are those of the bound.
  ExprId between(std::string_view from, std::string_view to, std::size_t i, bool low, bool high) {
    const auto n_left = static_cast<std::uint32_t>(from.size() - i);
    if (n_left == 0) return rules_.empty();
    if (!low && !high) return digits(n_left, n_left);
    char first = low ? from[i] : '0';
    char last = high ? to[i] : '9';
    std::vector<ExprId> choices;
    if (low && high && first == last) {
      return rules_.sequence({digit(first, last), between(from, to, i + 1, true, true)});
    }
    if (low) {
      choices.push_back(
          rules_.sequence({digit(first, first), between(from, to, i + 1, true, false)}));
      ++first;
    }
    if (high) {
      choices.push_back(
          rules_.sequence({digit(last, last), between(from, to, i + 1, false, true)}));
      --last;
    }
    if (first <= last) {
      choices.push_back(rules_.sequence({digit(first, last), digits(n_left - 1, n_left - 1)}));
    }
    return rules_.choice(choices);
  }

  // Numbers with this whole part, whose fraction is bounded.
  void add_at(std::vector<ExprId>& choices, const std::string& whole_part, const Magnitude* low,
              const Magnitude* high) {
    if (whole_part.size() > kMaxNumberDigits) return;
    const ExprId front = rules_.literal(whole_part.empty() ? "0" : whole_part);
    if (may_end(0, low, high)) choices.push_back(front);
    std::optional<ExprId> rest = fraction(0, low, high);
    if (rest.has_value()) choices.push_back(rules_.sequence({front, rules_.literal("."), *rest}));
  }

  // Whether a fraction of `i` digits, those of the bounds that are given, is within both.
  static bool may_end(std::size_t i, const Magnitude* low, const Magnitude* high) {
    if (low != nullptr && (i < low->fraction.size() || low->exclusive)) return false;
    return high == nullptr || i < high->fraction.size() || !high->exclusive;
  }

  // The digits from `i` on, at least one; the digits before are those of the bounds that are given.
  std::optional<ExprId> fraction(std::uint32_t i, const Magnitude* low, const Magnitude* high) {
    if (i == kMaxNumberDigits) return std::nullopt;
    const std::uint32_t n_left = kMaxNumberDigits - i;
    if (low != nullptr && i >= low->fraction.size() && !low->exclusive) low = nullptr;
    if (low == nullptr && high == nullptr) return digits(1, n_left);
    const auto digit_of = [i](const Magnitude& bound) {
      return i < bound.fraction.size() ? bound.fraction[i] : '0';
    };
    char first = low != nullptr ? digit_of(*low) : '0';
    char last = high != nullptr ? digit_of(*high) : '9';
    std::vector<ExprId> choices;
    const auto add = [&](char c, const Magnitude* next_low, const Magnitude* next_high) {
      const bool ends = may_end(i + 1, next_low, next_high);
      const std::optional<ExprId> rest = fraction(i + 1, next_low, next_high);
      if (!rest.has_value() && !ends) return;
      if (!rest.has_value()) return choices.push_back(digit(c, c));
      choices.push_back(rules_.sequence({digit(c, c), ends ? rules_.optional(*rest) : *rest}));
    };
    if (low != nullptr && high != nullptr && first == last) {
      add(first, low, high);
      first = '9';
      last = '0';
    } else {
      if (low != nullptr && first <= last) add(first++, low, nullptr);
      if (high != nullptr && first <= last) add(last--, nullptr, high);
    }
    if (first <= last) {
      choices.push_back(rules_.sequence({digit(first, last), digits(0, n_left - 1)}));
    }
    if (choices.empty()) return std::nullopt;
    return rules_.choice(choices);
  }

  GrammarRules& rules_;
};

Magnitude magnitude(const NumberBound& bound) {
  return {bound.value.whole, bound.value.fraction, bound.exclusive};
}

// The least whole number that is at least, and the greatest that is at most, the bound's magnitude.
std::string rounded_up(const NumberBound& bound) {
  const bool up = bound.exclusive || !bound.value.fraction.empty();
  return up ? plus_one(bound.value.whole) : bound.value.whole;
}
std::optional<std::string> rounded_down(const NumberBound& bound) {
  const bool down = bound.exclusive && bound.value.fraction.empty();
  if (!down) return bound.value.whole;
  if (bound.value.whole.empty()) return std::nullopt;
  return minus_one(bound.value.whole);
}

bool is_negative(const Decimal& value) {
  return value.negative && !value.is_zero();
}

}  // namespace

std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal out;
  std::size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    out.negative = true;
    ++at;
  }
  const auto take_digits = [&](std::string& to) {
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') to.push_back(text[at++]);
  };
  take_digits(out.whole);
  if (at < text.size() && text[at] == '.') {
    ++at;
    take_digits(out.fraction);
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    const bool left = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    std::size_t places = 0;
    while (at < text.size() && places <= kMaxBoundDigits) {
      places = places * 10 + static_cast<std::size_t>(text[at++] - '0');
    }
    if (places > kMaxBoundDigits) return std::nullopt;
    std::string& from = left ? out.whole : out.fraction;
    if (from.size() < places) from.insert(left ? 0 : from.size(), places - from.size(), '0');
    if (left) {
      out.fraction.insert(0, from, from.size() - places, places);
      from.resize(from.size() - places);
    } else {
      out.whole.append(from, 0, places);
      from.erase(0, places);
    }
  }
  if (out.whole.size() + out.fraction.size() > 2 * kMaxBoundDigits) return std::nullopt;
  strip_leading_zeros(out.whole);
  out.fraction.resize(out.fraction.find_last_not_of('0') + 1);  // npos + 1 is 0
  return out;
}

int compare(const Decimal& a, const Decimal& b) {
  if (is_negative(a) != is_negative(b)) return is_negative(a) ? -1 : 1;
  const int whole = compare_whole(a.whole, b.whole);
  const int order = whole != 0 ? whole : a.fraction.compare(b.fraction);
  return is_negative(a) ? -order : order;
}

ExprId json_integer(GrammarRules& rules, const std::optional<NumberBound>& least,
                    const std::optional<NumberBound>& most) {
  NumberWriter writer(rules);
  const std::string largest(kMaxNumberDigits, '9');
  if (!least.has_value() && !most.has_value()) {
    return rules.sequence({rules.optional(rules.literal("-")), writer.whole("", largest)});
  }
  std::vector<ExprId> choices;
  if (!most.has_value() || !is_negative(most->value)) {
    const std::string from =
        least.has_value() && !is_negative(least->value) ? rounded_up(*least) : "";
    const std::optional<std::string> to = most.has_value() ? rounded_down(*most) : largest;
    if (to.has_value() && compare_whole(from, *to) <= 0) choices.push_back(writer.whole(from, *to));
  }
  if (!least.has_value() || is_negative(least->value)) {
    std::string from = most.has_value() && is_negative(most->value) ? rounded_up(*most) : "1";
    if (from.empty()) from = "1";
    const std::optional<std::string> to = least.has_value() ? rounded_down(*least) : largest;
    if (to.has_value() && compare_whole(from, *to) <= 0) {
      choices.push_back(rules.sequence({rules.literal("-"), writer.whole(from, *to)}));
    }
  }
  return rules.choice(choices);
}

ExprId json_number(GrammarRules& rules, const std::optional<NumberBound>& least,
                   const std::optional<NumberBound>& most) {
  NumberWriter writer(rules);
  if (!least.has_value() && !most.has_value()) {
    const ExprId fraction =
        rules.sequence({rules.literal("."), writer.digits(1, kMaxNumberDigits)});
    const ExprId exponent = rules.sequence(
        {rules.char_class({{'e', 'e'}, {'E', 'E'}}),
         rules.optional(rules.char_class({{'+', '+'}, {'-', '-'}})), writer.digits(1, 3)});
    return rules.sequence({rules.optional(rules.literal("-")),
                           writer.whole("", std::string(kMaxNumberDigits, '9')),
                           rules.optional(fraction), rules.optional(exponent)});
  }
  std::vector<ExprId> choices;
  if (!most.has_value() || !is_negative(most->value)) {
    const Magnitude from =
        least.has_value() && !is_negative(least->value) ? magnitude(*least) : Magnitude{};
    const Magnitude to = most.has_value() ? magnitude(*most) : Magnitude{};
    choices.push_back(writer.number(from, most.has_value() ? &to : nullptr));
  }
  if (!least.has_value() || is_negative(least->value)) {
    const Magnitude from = most.has_value() && is_negative(most->value)
                               ? magnitude(*most)
                               : Magnitude{.whole = {}, .fraction = {}, .exclusive = true};
    const Magnitude to = least.has_value() ? magnitude(*least) : Magnitude{};
    choices.push_back(rules.sequence(
        {rules.literal("-"), writer.number(from, least.has_value() ? &to : nullptr)}));
  }
  return rules.choice(choices);
}

}  // namespace qsf
