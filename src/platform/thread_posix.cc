// SPDX-License-Identifier: MIT

#include <pthread.h>
#include <signal.h>

#include <cstring>

#include "base/check.h"
#include "platform/thread.h"

namespace qsf {
namespace {

static_assert(sizeof(pthread_t) <= sizeof(ThreadHandle));

// A number or a pointer, by the system.
ThreadHandle handle_of(pthread_t thread) noexcept {
  ThreadHandle handle = 0;
  std::memcpy(&handle, &thread, sizeof thread);
  return handle;
}

}  // namespace

ThreadHandle this_thread() noexcept {
  return handle_of(::pthread_self());
}

int Thread::start(void* (*run)(void* argument), void* argument) {
  QSF_CHECK(!is_started_);
  pthread_attr_t attributes;
  QSF_CHECK(::pthread_attr_init(&attributes) == 0);
  QSF_CHECK(::pthread_attr_setstacksize(&attributes, thread_stack_bytes()) == 0);
  // Signals belong to the threads of the program that uses us.
  sigset_t all_signals;
  sigset_t old_signals;
  sigfillset(&all_signals);  // a macro on macOS
  ::pthread_sigmask(SIG_SETMASK, &all_signals, &old_signals);
  pthread_t thread;
  const int error = ::pthread_create(&thread, &attributes, run, argument);
  ::pthread_sigmask(SIG_SETMASK, &old_signals, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error != 0) return error;
  handle_ = handle_of(thread);
  is_started_ = true;
  return 0;
}

void Thread::join() {
  QSF_CHECK(is_started_);
  pthread_t thread;
  std::memcpy(&thread, &handle_, sizeof thread);
  QSF_CHECK(::pthread_join(thread, nullptr) == 0);
  is_started_ = false;
}

}  // namespace qsf
