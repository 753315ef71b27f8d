// SPDX-License-Identifier: MIT
//
// Text between UTF-8 and the UTF-16 of Windows, for the tools.

#ifndef QSF_TOOLS_COMMON_WINDOWS_TEXT_H_
#define QSF_TOOLS_COMMON_WINDOWS_TEXT_H_

#include <string>
#include <string_view>

#include "tools/common/file_path.h"

namespace qsf_tools {

// A path is what the C++ library converts without a code page; it keeps every character.
inline std::wstring wide_of(std::string_view utf8) {
  return file_path(utf8).wstring();
}
inline std::string utf8_of(std::wstring_view wide) {
  return path_text(std::filesystem::path(wide));
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_WINDOWS_TEXT_H_
