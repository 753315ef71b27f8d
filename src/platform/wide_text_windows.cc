// SPDX-License-Identifier: MIT

#include <windows.h>

#include <algorithm>

#include "platform/wide_text.h"

namespace qsf {

std::wstring wide_text(std::string_view utf8) {
  const int n_bytes = static_cast<int>(utf8.size());
  const int n = ::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), n_bytes, nullptr, 0);
  std::wstring wide(static_cast<std::size_t>(n), L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), n_bytes, wide.data(), n);
  return wide;
}

std::string utf8_text(std::wstring_view wide) {
  const int n_units = static_cast<int>(wide.size());
  const int n =
      ::WideCharToMultiByte(CP_UTF8, 0, wide.data(), n_units, nullptr, 0, nullptr, nullptr);
  std::string utf8(static_cast<std::size_t>(n), '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, wide.data(), n_units, utf8.data(), n, nullptr, nullptr);
  return utf8;
}

// Longer paths need a prefix, with which the system takes a path as it is: whole, with backslashes.
std::wstring wide_path(std::string_view utf8) {
  constexpr std::size_t kLongestPlain = 247;  // 260 with the shortest name in a folder
  std::wstring path = wide_text(utf8);
  if (path.size() <= kLongestPlain || path.starts_with(L"\\\\?\\")) return path;
  const DWORD n_whole = ::GetFullPathNameW(path.c_str(), 0, nullptr, nullptr);
  std::wstring whole(n_whole, L'\0');
  whole.resize(::GetFullPathNameW(path.c_str(), n_whole, whole.data(), nullptr));
  if (whole.starts_with(L"\\\\")) return L"\\\\?\\UNC" + whole.substr(1);
  return L"\\\\?\\" + whole;
}

}  // namespace qsf
