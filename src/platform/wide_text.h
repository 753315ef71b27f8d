// SPDX-License-Identifier: MIT
//
// Text between UTF-8, which all of this project uses, and UTF-16, which Windows takes.

#ifndef QSF_PLATFORM_WIDE_TEXT_H_
#define QSF_PLATFORM_WIDE_TEXT_H_

#include <string>
#include <string_view>

namespace qsf {

// What is no character becomes U+FFFD. Threads  any
std::wstring wide_text(std::string_view utf8);
std::string utf8_text(std::wstring_view wide);

// Returns a path as the calls of Windows take it, also where it has more than 260 characters.
std::wstring wide_path(std::string_view utf8);

}  // namespace qsf

#endif  // QSF_PLATFORM_WIDE_TEXT_H_
