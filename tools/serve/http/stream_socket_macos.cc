// SPDX-License-Identifier: MIT

#include "tools/serve/http/stream_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

namespace qsf_tools {
namespace {

int with_settings(int fd, bool blocks) {
  if (fd < 0) return fd;
  (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (!blocks) (void)fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

}  // namespace

int new_stream_socket(int family, bool blocks) {
  return with_settings(socket(family, SOCK_STREAM, 0), blocks);
}

int accept_stream_socket(int listener) {
  return with_settings(accept(listener, nullptr, nullptr), false);
}

}  // namespace qsf_tools
