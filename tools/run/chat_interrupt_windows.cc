// SPDX-License-Identifier: MIT
//
// Windows runs the handler of Ctrl-C on a thread of its own, which ends a read of the main thread.
// A console ends its own reads.

#include <windows.h>

#include <atomic>

#include "tools/common/console.h"
#include "tools/run/chat_input.h"

namespace qsf_tools {

namespace {

std::atomic<bool> g_waiting_ended{false};
HANDLE g_main_thread = nullptr;

BOOL WINAPI on_control(DWORD event) {
  if (event != CTRL_C_EVENT) return FALSE;
  if (!ChatInterrupt::cancel_answer() && !is_terminal(StandardStream::kInput)) {
    g_waiting_ended.store(true);
    ::CancelSynchronousIo(g_main_thread);
  }
  return TRUE;
}

}  // namespace

ChatInterrupt::ChatInterrupt() {
  ::DuplicateHandle(::GetCurrentProcess(), ::GetCurrentThread(), ::GetCurrentProcess(),
                    &g_main_thread, 0, FALSE, DUPLICATE_SAME_ACCESS);
  ::SetConsoleCtrlHandler(on_control, TRUE);
}

ChatInterrupt::~ChatInterrupt() {
  ::SetConsoleCtrlHandler(on_control, FALSE);
  ::CloseHandle(g_main_thread);
}

ChatInterrupt::Wake ChatInterrupt::wait() {
  return g_waiting_ended.exchange(false) ? Wake::kInterrupted : Wake::kInput;
}

void ChatInterrupt::discard() {
  g_waiting_ended.store(false);
}

}  // namespace qsf_tools
