// SPDX-License-Identifier: MIT
//
// The console of Windows edits lines and recalls those of before by itself; see line_editor.h.

#include <windows.h>

#include <cstdio>
#include <string>

#include "tools/common/windows_text.h"
#include "tools/run/line_editor.h"

namespace qsf_tools {

namespace {

class ConsoleLines final : public LineSource {
 public:
  explicit ConsoleLines(ChatInterrupt& interrupt) : interrupt_(interrupt) {}

  Outcome read(bool continued, std::string& line) override {
    interrupt_.discard();
    std::fputs(continued ? "... " : "> ", stderr);
    std::wstring wide;
    while (!wide.ends_with(L'\n')) {
      wchar_t units[1024];
      DWORD n_read = 0;
      const BOOL read = ::ReadConsoleW(::GetStdHandle(STD_INPUT_HANDLE), units,
                                       static_cast<DWORD>(std::size(units)), &n_read, nullptr);
      const bool is_aborted = ::GetLastError() == ERROR_OPERATION_ABORTED;
      if (interrupt_.wait() == ChatInterrupt::Wake::kInterrupted || (is_aborted && n_read == 0)) {
        std::fputs("^C\n", stderr);
        return Outcome::kInterrupted;
      }
      if (read == 0 || n_read == 0) return Outcome::kEnd;
      wide.append(units, n_read);
    }
    if (wide[0] == L'\x1A') return Outcome::kEnd;  // Ctrl-Z
    wide.resize(wide.find_last_not_of(L"\r\n") + 1);
    line = utf8_of(wide);
    return Outcome::kLine;
  }

 private:
  ChatInterrupt& interrupt_;
};

}  // namespace

// The console keeps the lines.
std::string history_path() {
  return {};
}

std::unique_ptr<LineSource> make_line_editor(ChatInterrupt& interrupt, const std::string&) {
  return std::make_unique<ConsoleLines>(interrupt);
}

}  // namespace qsf_tools
