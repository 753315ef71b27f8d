// SPDX-License-Identifier: MIT
//
// Windows calls a handler on a thread of its own for each event of the console.

#include <windows.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "tools/serve/end_requests.h"

namespace qsf_tools {

namespace {

// Windows ends a process 5 s after its console was closed (HungAppTimeout).
constexpr std::chrono::seconds kTimeToDrain{4};
constexpr std::chrono::seconds kTimeToStop{5};

struct Handled {
  std::mutex mutex;
  std::condition_variable ended;
  std::function<void()> drain;  // empty before start() and after end()
  std::function<void()> stop;
  int n_interrupts = 0;
};

// Outlives every handler: those of a closed console never return.
Handled& handled() {
  static auto* const all = new Handled;
  return *all;
}

// Returns when the server has ended, or after a time: false.
bool wait_for_end(std::unique_lock<std::mutex>& lock, std::chrono::seconds time) {
  return handled().ended.wait_for(lock, time, [] { return !handled().drain; });
}

void stop_or_die(std::unique_lock<std::mutex>& lock) {
  handled().stop();
  // A pass that reads from a slow disk is not waited for.
  if (!wait_for_end(lock, kTimeToStop)) ::TerminateProcess(::GetCurrentProcess(), 1);
}

BOOL WINAPI on_control(DWORD event) {
  std::unique_lock lock(handled().mutex);
  if (!handled().drain) return FALSE;
  if (event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT) {
    if (++handled().n_interrupts < 2) {
      handled().drain();
    } else {
      stop_or_die(lock);
    }
    return TRUE;
  }
  // Windows ends the process when this returns; the main thread ends it before.
  handled().drain();
  if (!wait_for_end(lock, kTimeToDrain)) stop_or_die(lock);
  lock.unlock();
  ::Sleep(INFINITE);
  return TRUE;
}

}  // namespace

struct EndRequests::State {};

EndRequests::EndRequests() = default;

EndRequests::~EndRequests() = default;

void EndRequests::start(std::function<void()> drain, std::function<void()> stop) {
  {
    const std::lock_guard lock(handled().mutex);
    handled().drain = std::move(drain);
    handled().stop = std::move(stop);
  }
  ::SetConsoleCtrlHandler(on_control, TRUE);
}

void EndRequests::end() {
  {
    const std::lock_guard lock(handled().mutex);
    handled().drain = nullptr;
    handled().stop = nullptr;
  }
  // The handler stays: Windows may hold a lock while one runs, and one never returns.
  handled().ended.notify_all();
}

}  // namespace qsf_tools
