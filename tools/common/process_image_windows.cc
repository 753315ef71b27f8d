// SPDX-License-Identifier: MIT

#include <windows.h>

#include <algorithm>
#include <string>

#include "tools/common/bundled_model.h"
#include "tools/common/console.h"
#include "tools/common/windows_text.h"

namespace qsf_tools {

std::string program_path() {
  constexpr std::size_t kLongestPath = 32'768;
  std::wstring wide(kLongestPath, L'\0');
  wide.resize(::GetModuleFileNameW(nullptr, wide.data(), static_cast<DWORD>(wide.size())));
  std::string path = utf8_of(wide);
  std::replace(path.begin(), path.end(), '\\', '/');
  return path;
}

// The C library of Windows has one.
void share_one_heap() {}

// Windows reads the pages of a program as they are used.
void set_conversion_code_aside() {}

}  // namespace qsf_tools
