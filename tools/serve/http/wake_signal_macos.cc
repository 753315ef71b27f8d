// SPDX-License-Identifier: MIT
//
// A queue of events with one that programs trigger: the queue itself can be waited for.

#include <fcntl.h>
#include <sys/event.h>
#include <sys/time.h>
#include <unistd.h>

#include "tools/serve/http/socket_calls.h"

namespace qsf_tools {
namespace {

void change(SocketHandle queue, int flags, unsigned what) {
  struct kevent event;
  EV_SET(&event, 0, EVFILT_USER, flags, what, 0, nullptr);
  (void)kevent(static_cast<int>(queue), &event, 1, nullptr, 0, nullptr);
}

}  // namespace

WakeSignal::WakeSignal() : socket_(kqueue()) {
  if (!is_open()) return;
  (void)fcntl(static_cast<int>(socket_), F_SETFD, FD_CLOEXEC);
  change(socket_, EV_ADD | EV_CLEAR, 0);
}

WakeSignal::~WakeSignal() {
  if (is_open()) close(static_cast<int>(socket_));
}

void WakeSignal::signal() const noexcept {
  change(socket_, 0, NOTE_TRIGGER);
}

void WakeSignal::clear() const noexcept {
  struct kevent event;
  const timespec at_once = {};
  (void)kevent(static_cast<int>(socket_), nullptr, 0, &event, 1, &at_once);
}

}  // namespace qsf_tools
