// SPDX-License-Identifier: MIT
//
// Decimal text of doubles by the functions of <charconv>, or with the same results where the
// standard library lacks these (libc++ 13). No locale changes either.

#ifndef QSF_BASE_FLOAT_TEXT_H_
#define QSF_BASE_FLOAT_TEXT_H_

#include <charconv>

namespace qsf {

// As std::from_chars(first, last, value): an optional minus sign, then digits with an optional
// point and exponent, or "inf", "infinity", "nan" in any case.
std::from_chars_result double_from_chars(const char* first, const char* last, double& value);

// As std::to_chars(first, last, value, std::chars_format::scientific): the fewest digits that read
// back as `value`.
std::to_chars_result double_to_scientific(char* first, char* last, double value);

// For libraries that lack them, and for the test that compares them.
namespace substitute {

std::from_chars_result double_from_chars(const char* first, const char* last, double& value);
std::to_chars_result double_to_scientific(char* first, char* last, double value);

}  // namespace substitute
}  // namespace qsf

#endif  // QSF_BASE_FLOAT_TEXT_H_
