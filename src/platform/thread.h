// SPDX-License-Identifier: MIT
//
// Threads with a small stack that receive none of the program's signals. std::thread can have
// neither.

#ifndef QSF_PLATFORM_THREAD_H_
#define QSF_PLATFORM_THREAD_H_

#include <cstddef>
#include <cstdint>

namespace qsf {

// Whether this build can start threads; for WebAssembly there is one that cannot, whose programs do
// all work on the one that calls.
bool has_threads() noexcept;

// Bytes of stack of each Thread, for the memory plan: 256 KiB, more in builds with sanitizers.
std::size_t thread_stack_bytes() noexcept;

// Names a thread while it runs: the system's own handle.
using ThreadHandle = std::uintptr_t;

ThreadHandle this_thread() noexcept;

class Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  // Requires  not started, or joined (checked)
  ~Thread();

  // Returns 0 or the system's error number: EAGAIN where there are no threads.
  // Requires  not started
  int start(void* (*run)(void* argument), void* argument);
  bool is_started() const noexcept { return is_started_; }
  // Waits for the end of the thread. Requires  is_started()
  void join();
  // Requires  is_started()
  ThreadHandle handle() const noexcept { return handle_; }

 private:
  ThreadHandle handle_ = 0;
  bool is_started_ = false;
};

}  // namespace qsf

#endif  // QSF_PLATFORM_THREAD_H_
