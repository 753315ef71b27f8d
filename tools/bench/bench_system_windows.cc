// SPDX-License-Identifier: MIT

#include <windows.h>

#include <string>

#include "tools/bench/bench_system.h"
#include "tools/common/windows_text.h"

namespace qsf_tools {

std::string cpu_name() {
  wchar_t name[256] = {};
  DWORD n_bytes = sizeof name;
  if (::RegGetValueW(HKEY_LOCAL_MACHINE, L"HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                     L"ProcessorNameString", RRF_RT_REG_SZ, nullptr, name,
                     &n_bytes) != ERROR_SUCCESS) {
    return "unknown";
  }
  const std::string text = utf8_of(name);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::string system_name() {
  // Other functions say what the manifest of the program knows.
  using GetVersion = LONG(WINAPI*)(OSVERSIONINFOW*);
  const auto get_version = reinterpret_cast<GetVersion>(
      reinterpret_cast<void*>(::GetProcAddress(::GetModuleHandleW(L"ntdll"), "RtlGetVersion")));
  OSVERSIONINFOW about = {};
  about.dwOSVersionInfoSize = sizeof about;
  if (get_version == nullptr || get_version(&about) != 0) return "Windows";
  return "Windows " + std::to_string(about.dwMajorVersion) + "." +
         std::to_string(about.dwMinorVersion) + "." + std::to_string(about.dwBuildNumber);
}

std::uint64_t machine_memory_bytes() {
  MEMORYSTATUSEX about = {};
  about.dwLength = sizeof about;
  return ::GlobalMemoryStatusEx(&about) != 0 ? about.ullTotalPhys : 0;
}

bool is_readable(const std::string& path) {
  return ::GetFileAttributesW(wide_of(path).c_str()) != INVALID_FILE_ATTRIBUTES;
}

std::string program_problem(const std::string&) {
  return "the program for Windows runs no peer";
}

qsf::Result<std::string> output_of_program(const std::vector<std::string>& arguments) {
  return qsf::unsupported("%s: %s", arguments[0].c_str(), program_problem(arguments[0]).c_str());
}

}  // namespace qsf_tools
