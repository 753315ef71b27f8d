// SPDX-License-Identifier: MIT
//
// JSON numbers between two bounds, digit by digit.

#ifndef QSF_GRAMMAR_JSON_NUMBER_H_
#define QSF_GRAMMAR_JSON_NUMBER_H_

#include <optional>
#include <string>

#include "grammar/rules.h"

namespace qsf {

// A finite decimal number: digits of both parts, without leading and trailing zeros.
struct Decimal {
  bool negative = false;
  std::string whole;     // "" is 0
  std::string fraction;  // "" is 0
  bool is_zero() const { return whole.empty() && fraction.empty(); }
};
// Reads the JSON text of a number; nothing when it has more than 400 digits.
std::optional<Decimal> read_decimal(std::string_view text);
int compare(const Decimal& a, const Decimal& b);

struct NumberBound {
  Decimal value;
  bool exclusive = false;
};

inline constexpr std::uint32_t kMaxNumberDigits = 18;

// Integers and numbers within the bounds; without bounds numbers may have an exponent. Nothing
// matches when no number is within them.
ExprId json_integer(GrammarRules& rules, const std::optional<NumberBound>& least,
                    const std::optional<NumberBound>& most);
ExprId json_number(GrammarRules& rules, const std::optional<NumberBound>& least,
                   const std::optional<NumberBound>& most);

}  // namespace qsf

#endif  // QSF_GRAMMAR_JSON_NUMBER_H_
