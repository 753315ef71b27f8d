// SPDX-License-Identifier: MIT

#include "tools/serve/health_check.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace qsf_tools {

namespace {

constexpr int kSeconds = 5;

void set_timeouts(int socket) {
  const timeval limit = {.tv_sec = kSeconds, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// Returns a connected socket, or -1 with errno.
int connect_to(const sockaddr* address, socklen_t bytes) {
  const int socket = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  set_timeouts(socket);
  if (::connect(socket, address, bytes) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

int connect_unix(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

int connect_port(std::string host, std::uint16_t port) {
  // A server that listens on every address is reached on this machine.
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  int socket = -1;
  for (const addrinfo* one = found; one != nullptr && socket < 0; one = one->ai_next) {
    socket = connect_to(one->ai_addr, one->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return socket;
}

}  // namespace

std::string check_health(const std::string& host, std::uint16_t port,
                         const std::string& socket_path) {
  const std::string where = socket_path.empty() ? host + ":" + std::to_string(port) : socket_path;
  const int socket = socket_path.empty() ? connect_port(host, port) : connect_unix(socket_path);
  if (socket < 0) return where + ": " + std::strerror(errno);
  constexpr std::string_view kRequest =
      "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  char answer[64] = {};
  std::size_t n_answer = 0;
  if (::send(socket, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(kRequest.size())) {
    while (n_answer < sizeof answer) {
      const ssize_t n = ::recv(socket, answer + n_answer, sizeof answer - n_answer, 0);
      if (n <= 0) break;
      n_answer += static_cast<std::size_t>(n);
    }
  }
  ::close(socket);
  const std::string_view head(answer, n_answer);
  if (head.starts_with("HTTP/1.1 200 ")) return {};
  if (head.empty()) return where + ": no answer within " + std::to_string(kSeconds) + " s";
  return where + ": not ready: " + std::string(head.substr(0, head.find('\r')));
}

}  // namespace qsf_tools
