// SPDX-License-Identifier: MIT
//
// Paths for std::filesystem. Names are UTF-8 here, which it takes for the code page of Windows
// unless told.

#ifndef QSF_TOOLS_COMMON_FILE_PATH_H_
#define QSF_TOOLS_COMMON_FILE_PATH_H_

#include <filesystem>
#include <string>
#include <string_view>

namespace qsf_tools {

inline std::filesystem::path file_path(std::string_view utf8) {
  return std::filesystem::path(std::u8string(utf8.begin(), utf8.end()));
}

inline std::string path_text(const std::filesystem::path& path) {
  const std::u8string text = path.u8string();
  return {text.begin(), text.end()};
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_FILE_PATH_H_
