// SPDX-License-Identifier: MIT
//
// JSON numbers that are multiples of a step: an automaton over digits that counts the remainder.

#ifndef QSF_GRAMMAR_JSON_MULTIPLE_H_
#define QSF_GRAMMAR_JSON_MULTIPLE_H_

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "grammar/json_number.h"
#include "grammar/rules.h"

namespace qsf {

// units / 10^n_places, more than 0.
struct NumberStep {
  std::uint64_t units = 1;
  std::uint32_t n_places = 0;
};
// Nothing for what is not more than 0, or has more than kMaxNumberDigits digits.
std::optional<NumberStep> read_step(const Decimal& value);
bool is_multiple(const Decimal& value, const NumberStep& step);

// The multiples within the bounds, as integers or as numbers without an exponent.
// Fails  kInvalidArgument: none is within the bounds; kUnsupported: too many remainders to count
Result<ExprId> json_multiple(GrammarRules& rules, const NumberStep& step, bool is_integer,
                             const std::optional<NumberBound>& least,
                             const std::optional<NumberBound>& most);

}  // namespace qsf

#endif  // QSF_GRAMMAR_JSON_MULTIPLE_H_
