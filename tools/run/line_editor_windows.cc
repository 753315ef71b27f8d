// SPDX-License-Identifier: MIT
//
// The console of Windows edits lines, recalls those of before and ends a line at Ctrl-C by itself;
// see line_editor.h.

#include <windows.h>

#include <cstdio>
#include <string>

#include "tools/common/windows_text.h"
#include "tools/run/line_editor.h"

namespace qsf_tools {

namespace {

class ConsoleLines final : public LineSource {
 public:
  Outcome read(bool continued, std::string& line) override {
    std::fputs(continued ? "... " : "> ", stderr);
    std::wstring wide;
    while (!wide.ends_with(L'\n')) {
      wchar_t units[1024];
      DWORD n_read = 0;
      ::SetLastError(ERROR_SUCCESS);
      const BOOL read = ::ReadConsoleW(::GetStdHandle(STD_INPUT_HANDLE), units,
                                       static_cast<DWORD>(std::size(units)), &n_read, nullptr);
      if (read == 0 || n_read == 0) {
        if (::GetLastError() != ERROR_OPERATION_ABORTED) return Outcome::kEnd;
        std::fputs("^C\n", stderr);
        return Outcome::kInterrupted;
      }
      wide.append(units, n_read);
    }
    if (wide[0] == L'\x1A') return Outcome::kEnd;  // Ctrl-Z
    wide.resize(wide.find_last_not_of(L"\r\n") + 1);
    line = utf8_of(wide);
    return Outcome::kLine;
  }
};

}  // namespace

const char* key_that_leaves() noexcept {
  return "Ctrl-Z and Enter";
}

// The console keeps the lines.
std::string history_path() {
  return {};
}

std::unique_ptr<LineSource> make_line_editor(ChatInterrupt&, const std::string&) {
  return std::make_unique<ConsoleLines>();
}

}  // namespace qsf_tools
