// SPDX-License-Identifier: MIT
//
// Threads are known by their numbers, which a thread can ask for; the handles by which they are
// joined stay here. Windows sends signals to no thread.

#include <windows.h>
// Needs the types of windows.h.
#include <process.h>

#include <cerrno>
#include <map>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "platform/thread.h"

namespace qsf {
namespace {

// Of the threads that are started and not joined yet. A number is not given to another thread
// before the handle is closed.
struct JoinHandles {
  std::mutex mutex;
  std::map<ThreadHandle, HANDLE> handles;
};

JoinHandles& join_handles() {
  static JoinHandles& handles = *new JoinHandles;
  return handles;
}

struct Start {
  void* (*run)(void* argument);
  void* argument;
};

unsigned __stdcall run_started(void* started) {
  const Start start = *static_cast<Start*>(started);
  delete static_cast<Start*>(started);
  start.run(start.argument);
  return 0;
}

}  // namespace

ThreadHandle this_thread() noexcept {
  return ::GetCurrentThreadId();
}

int Thread::start(void* (*run)(void* argument), void* argument) {
  QSF_CHECK(!is_started_);
  auto start = std::make_unique<Start>(Start{run, argument});
  unsigned number = 0;
  // Without the flag all of the stack would be committed.
  const std::uintptr_t begun =
      ::_beginthreadex(nullptr, static_cast<unsigned>(thread_stack_bytes()), run_started,
                       start.get(), STACK_SIZE_PARAM_IS_A_RESERVATION, &number);
  if (begun == 0) return errno;
  static_cast<void>(start.release());
  JoinHandles& joins = join_handles();
  const std::lock_guard lock(joins.mutex);
  joins.handles[number] = reinterpret_cast<HANDLE>(begun);
  handle_ = number;
  is_started_ = true;
  return 0;
}

void Thread::join() {
  QSF_CHECK(is_started_);
  HANDLE thread = nullptr;
  {
    JoinHandles& joins = join_handles();
    const std::lock_guard lock(joins.mutex);
    thread = joins.handles[handle_];
    joins.handles.erase(handle_);
  }
  QSF_CHECK(::WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0);
  ::CloseHandle(thread);
  is_started_ = false;
}

}  // namespace qsf
