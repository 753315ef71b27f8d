// SPDX-License-Identifier: MIT

#include "tools/serve/health_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
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

// Takes addresses alone: the look-up of names does not work in a static program.
int connect_port(std::string host, std::uint16_t port) {
  // A server that listens on every address is reached on this machine.
  if (host == "0.0.0.0" || host == "localhost") host = "127.0.0.1";
  if (host == "::") host = "::1";
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    return connect_to(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    return connect_to(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
  }
  errno = EADDRNOTAVAIL;
  return -1;
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
