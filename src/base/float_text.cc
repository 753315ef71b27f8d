// SPDX-License-Identifier: MIT

#include "base/float_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <version>

namespace qsf {
namespace {

const char* digits_end(const char* first, const char* last) {
  return std::find_if(first, last, [](char c) { return c < '0' || c > '9'; });
}

// Returns the end of the digits, point and exponent at `first`, or `first`.
const char* decimal_end(const char* first, const char* last) {
  const char* end = digits_end(first, last);
  bool has_digits = end != first;
  if (end != last && *end == '.') {
    const char* const fraction_end = digits_end(end + 1, last);
    has_digits = has_digits || fraction_end != end + 1;
    end = fraction_end;
  }
  if (!has_digits) return first;
  if (end == last || (*end != 'e' && *end != 'E')) return end;
  const char* exponent = end + 1;
  if (exponent != last && (*exponent == '+' || *exponent == '-')) ++exponent;
  const char* const exponent_end = digits_end(exponent, last);
  return exponent_end == exponent ? end : exponent_end;
}

bool starts_with_word(const char* first, const char* last, std::string_view word) {
  if (static_cast<std::size_t>(last - first) < word.size()) return false;
  return std::equal(word.begin(), word.end(), first, [](char expected, char c) {
    return expected == (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  });
}

// Reads "inf", "infinity", "nan" or "nan(...)"; returns its end, or `first`.
const char* read_word(const char* first, const char* last, double& value) {
  if (starts_with_word(first, last, "inf")) {
    value = std::numeric_limits<double>::infinity();
    return first + (starts_with_word(first, last, "infinity") ? 8 : 3);
  }
  if (!starts_with_word(first, last, "nan")) return first;
  value = std::numeric_limits<double>::quiet_NaN();
  const char* const end = first + 3;
  if (end == last || *end != '(') return end;
  const char* const close = std::find_if(end + 1, last, [](char c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return !is_letter && c != '_' && (c < '0' || c > '9');
  });
  return close != last && *close == ')' ? close + 1 : end;
}

std::string rounded_text(double value, int digits) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  stream.precision(digits);
  stream << std::scientific << value;
  return stream.str();
}

bool reads_back(const std::string& text, double value) {
  double back = 0.0;
  substitute::double_from_chars(text.data(), text.data() + text.size(), back);
  return back == value;
}

// Adds one to the last digit before the exponent; false where the number would gain a digit.
bool raise_last_digit(std::string& text) {
  for (std::size_t at = text.find('e'); at-- > 0;) {
    if (text[at] >= '0' && text[at] < '9') {
      ++text[at];
      return true;
    }
    if (text[at] == '9') text[at] = '0';
  }
  return false;
}

}  // namespace

namespace substitute {

std::from_chars_result double_from_chars(const char* first, const char* last, double& value) {
  const char* const start = first != last && *first == '-' ? first + 1 : first;
  const double sign = start == first ? 1.0 : -1.0;
  double read = 0.0;
  const char* end = read_word(start, last, read);
  if (end != start) {
    value = std::copysign(read, sign);
    return {end, std::errc()};
  }
  end = decimal_end(start, last);
  if (end == start) return {first, std::errc::invalid_argument};
  std::istringstream stream(std::string(start, end));
  stream.imbue(std::locale::classic());
  stream >> read;
  const char* const exponent =
      std::find_if(start, end, [](char c) { return c == 'e' || c == 'E'; });
  const bool is_zero = std::none_of(start, exponent, [](char c) { return c >= '1' && c <= '9'; });
  const bool is_outside = stream.fail() || std::isinf(read) || (read == 0.0 && !is_zero);
  if (is_outside && !is_zero) return {end, std::errc::result_out_of_range};
  value = is_zero ? sign * 0.0 : sign * read;
  return {end, std::errc()};
}

std::to_chars_result double_to_scientific(char* first, char* last, double value) {
  std::string text;
  for (int digits = 0; digits <= 16; ++digits) {
    text = rounded_text(value, digits);
    if (!std::isfinite(value) || reads_back(text, value)) break;
    // Below a power of two, doubles are nearer than above: the next number up may read back.
    std::string above = text;
    if (raise_last_digit(above) && reads_back(above, value)) {
      text = above;
      break;
    }
  }
  if (static_cast<std::size_t>(last - first) < text.size()) {
    return {last, std::errc::value_too_large};
  }
  std::memcpy(first, text.data(), text.size());
  return {first + text.size(), std::errc()};
}

}  // namespace substitute

std::from_chars_result double_from_chars(const char* first, const char* last, double& value) {
#ifdef __cpp_lib_to_chars
  return std::from_chars(first, last, value);
#else
  return substitute::double_from_chars(first, last, value);
#endif
}

std::to_chars_result double_to_scientific(char* first, char* last, double value) {
#ifdef __cpp_lib_to_chars
  return std::to_chars(first, last, value, std::chars_format::scientific);
#else
  return substitute::double_to_scientific(first, last, value);
#endif
}

}  // namespace qsf
