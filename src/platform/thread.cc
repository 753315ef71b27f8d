// SPDX-License-Identifier: MIT

#include "platform/thread.h"

#include <utility>

#include "base/check.h"
#include "base/sanitizer.h"

namespace qsf {

bool has_threads() noexcept {
#if defined(__EMSCRIPTEN__) && !defined(__EMSCRIPTEN_PTHREADS__)
  return false;
#else
  return true;
#endif
}

std::size_t thread_stack_bytes() noexcept {
#ifdef QSF_WITH_SANITIZER
  return std::size_t{2} << 20;  // red zones and shadow calls take several times the frame
#else
  return std::size_t{256} << 10;
#endif
}

Thread::Thread(Thread&& other) noexcept
    : handle_(other.handle_), is_started_(std::exchange(other.is_started_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(is_started_, other.is_started_);
  return *this;
}

Thread::~Thread() {
  QSF_CHECK(!is_started_);
}

}  // namespace qsf
