// SPDX-License-Identifier: MIT

#include "tools/serve/http/stream_socket.h"

#include <sys/socket.h>

namespace qsf_tools {

int new_stream_socket(int family, bool blocks) {
  return socket(family, SOCK_STREAM | SOCK_CLOEXEC | (blocks ? 0 : SOCK_NONBLOCK), 0);
}

int accept_stream_socket(int listener) {
  return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

}  // namespace qsf_tools
