// SPDX-License-Identifier: MIT

#include <sys/eventfd.h>
#include <unistd.h>

#include "tools/serve/http/socket_calls.h"

namespace qsf_tools {

WakeSignal::WakeSignal() : socket_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

WakeSignal::~WakeSignal() {
  if (is_open()) close(static_cast<int>(socket_));
}

void WakeSignal::signal() const noexcept {
  (void)eventfd_write(static_cast<int>(socket_), 1);
}

void WakeSignal::clear() const noexcept {
  eventfd_t n = 0;
  (void)eventfd_read(static_cast<int>(socket_), &n);
}

}  // namespace qsf_tools
