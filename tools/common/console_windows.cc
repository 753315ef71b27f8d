// SPDX-License-Identifier: MIT

#include <windows.h>
// Needs the types of windows.h.
#include <io.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "tools/common/console.h"

namespace qsf_tools {
namespace {

constexpr int kBinaryMode = 0x8000;  // _O_BINARY

std::atomic<void (*)()> g_handler{nullptr};
std::atomic<bool> g_once{false};

HANDLE handle_of(StandardStream stream) {
  return ::GetStdHandle(stream == StandardStream::kInput    ? STD_INPUT_HANDLE
                        : stream == StandardStream::kOutput ? STD_OUTPUT_HANDLE
                                                            : STD_ERROR_HANDLE);
}

BOOL WINAPI on_control(DWORD event) {
  auto* const handler = g_handler.load();
  if (handler == nullptr) return FALSE;
  if (g_once.load()) {
    if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) return FALSE;
    g_handler.store(nullptr);
  }
  handler();
  // Windows ends a program whose window was closed when this returns; until then the program can
  // end by itself.
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) ::Sleep(INFINITE);
  return TRUE;
}

// Programs that run in this console later see what it was.
UINT g_code_page = 0;
void restore_code_page() {
  ::SetConsoleOutputCP(g_code_page);
}

}  // namespace

void open_standard_streams() {
  for (const StandardStream stream :
       {StandardStream::kInput, StandardStream::kOutput, StandardStream::kError}) {
    if (HANDLE handle = handle_of(stream); handle != nullptr && handle != INVALID_HANDLE_VALUE) {
      continue;
    }
    const char* const mode = stream == StandardStream::kError ? "wb" : "rb";
    std::FILE* const file = stream == StandardStream::kInput    ? stdin
                            : stream == StandardStream::kOutput ? stdout
                                                                : stderr;
    static_cast<void>(std::freopen("NUL", mode, file));
  }
  for (const int descriptor : {0, 1, 2}) ::_setmode(descriptor, kBinaryMode);
  // The C library of Windows buffers it for consoles.
  std::setvbuf(stderr, nullptr, _IONBF, 0);
  for (const StandardStream stream : {StandardStream::kOutput, StandardStream::kError}) {
    DWORD mode = 0;
    HANDLE handle = handle_of(stream);
    if (::GetConsoleMode(handle, &mode) == 0) continue;
    ::SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    if (g_code_page != 0) continue;
    g_code_page = ::GetConsoleOutputCP();
    ::SetConsoleOutputCP(CP_UTF8);
    std::atexit(restore_code_page);
  }
}

bool is_terminal(StandardStream stream) {
  DWORD mode = 0;
  return ::GetConsoleMode(handle_of(stream), &mode) != 0;
}

std::ptrdiff_t read_input(char* to, std::size_t n_bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  DWORD n_read = 0;
  if (::ReadFile(handle_of(StandardStream::kInput), to,
                 static_cast<DWORD>(std::min(n_bytes, kMost)), &n_read, nullptr) != 0) {
    return static_cast<std::ptrdiff_t>(n_read);
  }
  const DWORD error = ::GetLastError();
  // The writer of a pipe has closed it.
  if (error == ERROR_BROKEN_PIPE || error == ERROR_HANDLE_EOF) return 0;
  return error == ERROR_OPERATION_ABORTED ? -EINTR : -EIO;
}

std::ptrdiff_t write_output(std::string_view text) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  DWORD n_written = 0;
  if (::WriteFile(handle_of(StandardStream::kOutput), text.data(),
                  static_cast<DWORD>(std::min(text.size(), kMost)), &n_written, nullptr) != 0) {
    return static_cast<std::ptrdiff_t>(n_written);
  }
  switch (::GetLastError()) {
    case ERROR_BROKEN_PIPE:
    case ERROR_NO_DATA: return -EPIPE;
    case ERROR_DISK_FULL: return -ENOSPC;
    case ERROR_INVALID_HANDLE:
    case ERROR_ACCESS_DENIED: return -EBADF;
    default: return -EIO;
  }
}

// Windows has no such signals.
void ignore_write_signals() {}

void on_interrupt(Interrupts which, void (*handler)()) {
  g_once.store(which == Interrupts::kFirst);
  g_handler.store(handler);
  ::SetConsoleCtrlHandler(on_control, TRUE);
}

}  // namespace qsf_tools
