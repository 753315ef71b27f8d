// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/serve/http/socket_calls.h"
#include "tools/serve/http/stream_socket.h"

namespace qsf_tools {

namespace {

constexpr int kBacklog = 512;
constexpr int kMaxSegmentBytes = 1400;  // as on Ethernet

int fd_of(SocketHandle socket) {
  return static_cast<int>(socket);
}

void set_option(int fd, int level, int name, int value) {
  // A socket without the option works, only slower.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

void set_options(int fd, bool is_unix, const HttpLimits& limits) {
  set_option(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(limits.send_buffer_bytes));
  set_option(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(limits.receive_buffer_bytes));
  if (!is_unix) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

// Closes a socket that is of no use, and keeps errno.
SocketHandle give_up(int fd) {
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return kNoSocket;
}

// Returns false where the path is too long.
bool name_file(const std::string& path, sockaddr_un& name) {
  name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) return false;
  std::memcpy(name.sun_path, path.data(), path.size());
  return true;
}

// Whether somebody listens at the Unix socket.
bool is_listened_at(const sockaddr_un& address) {
  const int fd = new_stream_socket(AF_UNIX, false);
  if (fd < 0) return true;
  const bool connects =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const bool is_dead = !connects && (errno == ECONNREFUSED || errno == ENOENT);
  close(fd);
  return !is_dead;
}

std::string ask(const sockaddr* address, std::size_t size, const std::string& request,
                std::size_t max_bytes, int seconds, std::string& error) {
  const int fd = new_stream_socket(address->sa_family, true);
  const timeval limit = {.tv_sec = seconds, .tv_usec = 0};
  if (fd >= 0) {
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  if (fd < 0 || connect(fd, address, static_cast<socklen_t>(size)) != 0) {
    error = socket_error();
    if (fd >= 0) close(fd);
    return {};
  }
  std::string answer(max_bytes, '\0');
  std::size_t n_answer = 0;
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(request.size())) {
    while (n_answer < max_bytes) {
      const ssize_t n = recv(fd, answer.data() + n_answer, max_bytes - n_answer, 0);
      if (n <= 0) break;
      n_answer += static_cast<std::size_t>(n);
    }
  }
  close(fd);
  answer.resize(n_answer);
  return answer;
}

}  // namespace

SocketHandle listen_at(const SocketAddress& address, const HttpLimits& limits) {
  const int fd = new_stream_socket(address.family, false);
  if (fd < 0) return kNoSocket;
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  // So that :: and 0.0.0.0 can be listened at together.
  if (address.family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // A segment of the loopback has 64 KiB, more than the send buffer: the peer would wait for a
  // second one, up to 40 ms each time, before it acknowledges the first.
  set_option(fd, IPPROTO_TCP, TCP_MAXSEG, kMaxSegmentBytes);
  // Before listen(), because the window of a connection is set from it.
  set_options(fd, false, limits);
  if (bind(fd, static_cast<const sockaddr*>(address.bytes), static_cast<socklen_t>(address.size)) !=
          0 ||
      listen(fd, kBacklog) != 0) {
    return give_up(fd);
  }
  return fd;
}

std::size_t bound_address(SocketHandle socket, void* bytes, std::size_t max_bytes) {
  auto size = static_cast<socklen_t>(max_bytes);
  if (getsockname(fd_of(socket), static_cast<sockaddr*>(bytes), &size) != 0) return 0;
  return size;
}

SocketHandle listen_at_file(const HttpAddress& address, const HttpLimits& limits, SocketFile& file,
                            std::string& error) {
  const std::string& path = address.unix_path;
  sockaddr_un name = {};
  if (!name_file(path, name)) {
    error = path + ": the path of a Unix socket has at most " +
            std::to_string(sizeof name.sun_path - 1) + " bytes, this one has " +
            std::to_string(path.size());
    return kNoSocket;
  }
  struct stat there = {};
  if (lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      error = path + ": is there and is no socket; choose another path";
      return kNoSocket;
    }
    if (is_listened_at(name)) {
      error = path + ": another program listens there";
      return kNoSocket;
    }
    (void)unlink(path.c_str());
  }
  const int fd = new_stream_socket(AF_UNIX, false);
  if (fd >= 0) set_options(fd, true, limits);
  // Nobody can connect before listen(), so the mode is set in time.
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0 ||
      chmod(path.c_str(), static_cast<mode_t>(address.unix_mode)) != 0 ||
      listen(fd, kBacklog) != 0) {
    error = "cannot listen at " + path + ": " + socket_error();
    return give_up(fd);
  }
  file.path = path;
  if (lstat(path.c_str(), &there) == 0) {
    file.device = there.st_dev;
    file.number = there.st_ino;
  }
  return fd;
}

void remove_socket_file(const SocketFile& file) {
  struct stat there = {};
  if (lstat(file.path.c_str(), &there) == 0 && there.st_dev == file.device &&
      there.st_ino == file.number) {
    (void)unlink(file.path.c_str());
  }
}

Accepted accept_connection(SocketHandle listener, bool is_unix, const HttpLimits& limits,
                           SocketHandle& connection) {
  const int fd = accept_stream_socket(fd_of(listener));
  if (fd < 0) {
    if (errno == ECONNABORTED || errno == EINTR) return Accepted::kAgain;
    return errno == EAGAIN ? Accepted::kNothing : Accepted::kRefused;
  }
  set_options(fd, is_unix, limits);
  connection = fd;
  return Accepted::kConnection;
}

void close_socket(SocketHandle socket) {
  close(fd_of(socket));
}

std::string socket_error() {
  return std::strerror(errno);
}

std::string ask_address(const SocketAddress& address, const std::string& request,
                        std::size_t max_bytes, int seconds, std::string& error) {
  return ask(static_cast<const sockaddr*>(address.bytes), address.size, request, max_bytes, seconds,
             error);
}

std::string ask_file(const std::string& path, const std::string& request, std::size_t max_bytes,
                     int seconds, std::string& error) {
  sockaddr_un name = {};
  if (!name_file(path, name)) {
    error = std::strerror(ENAMETOOLONG);
    return {};
  }
  return ask(reinterpret_cast<const sockaddr*>(&name), sizeof name, request, max_bytes, seconds,
             error);
}

}  // namespace qsf_tools
