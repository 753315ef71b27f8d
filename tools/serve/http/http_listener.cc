// SPDX-License-Identifier: MIT

#include "tools/serve/http/http_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace qsf_tools {

namespace {

constexpr int kBacklog = 512;
constexpr int kMaxSegmentBytes = 1400;  // as on Ethernet

void set_option(int fd, int level, int name, int value) {
  // A socket without the option works, only slower.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

std::string errno_text(std::string_view what) {
  return std::string(what) + ": " + std::strerror(errno);
}

int new_socket(int family) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

// Binds and listens. Returns false with errno.
bool listen_at(int fd, const sockaddr* address, socklen_t size) {
  return bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0;
}

// Reads a numeric address. Returns its size; 0: it is none.
socklen_t read_address(const std::string& host, std::uint16_t port, sockaddr_storage& out) {
  out = {};
  sockaddr_in v4 = {};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&out, &v4, sizeof v4);
    return sizeof v4;
  }
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&out, &v6, sizeof v6);
    return sizeof v6;
  }
  return 0;
}

// Returns the port that a socket is bound to.
std::uint16_t bound_port(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  if (bound.ss_family == AF_INET) {
    sockaddr_in v4 = {};
    std::memcpy(&v4, &bound, sizeof v4);
    return ntohs(v4.sin_port);
  }
  sockaddr_in6 v6 = {};
  std::memcpy(&v6, &bound, sizeof v6);
  return ntohs(v6.sin6_port);
}

bool open_tcp(const std::string& host, std::uint16_t port, const HttpLimits& limits,
              std::vector<HttpListener>& listeners, std::string& error) {
  sockaddr_storage address = {};
  const socklen_t size = read_address(host, port, address);
  if (size == 0) {
    error = host + ": not an address; expected one as 127.0.0.1 or ::1, or localhost";
    return false;
  }
  const bool is_v6 = address.ss_family == AF_INET6;
  const std::string shown = is_v6 ? "[" + host + "]" : host;
  const int fd = new_socket(address.ss_family);
  if (fd >= 0) {
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    // So that :: and 0.0.0.0 can be listened at together.
    if (is_v6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    // A segment of the loopback has 64 KiB, more than the send buffer: the peer would wait for a
    // second one, up to 40 ms each time, before it acknowledges the first.
    set_option(fd, IPPROTO_TCP, TCP_MAXSEG, kMaxSegmentBytes);
    // Before listen(), because the window of a connection is set from it.
    set_http_socket_options(fd, false, limits);
  }
  if (fd < 0 || !listen_at(fd, reinterpret_cast<sockaddr*>(&address), size)) {
    error = errno_text("cannot listen at " + shown + ":" + std::to_string(port));
    if (fd >= 0) close(fd);
    return false;
  }
  listeners.emplace_back(fd, "http://" + shown + ":" + std::to_string(bound_port(fd)), "");
  return true;
}

// Whether somebody listens at the Unix socket.
bool is_listened_at(const sockaddr_un& address) {
  const int fd = new_socket(AF_UNIX);
  if (fd < 0) return true;
  const bool connects =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const bool is_dead = !connects && (errno == ECONNREFUSED || errno == ENOENT);
  close(fd);
  return !is_dead;
}

bool open_unix(const HttpAddress& address, const HttpLimits& limits,
               std::vector<HttpListener>& listeners, std::string& error) {
  const std::string& path = address.unix_path;
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) {
    error = path + ": the path of a Unix socket has at most " +
            std::to_string(sizeof name.sun_path - 1) + " bytes, this one has " +
            std::to_string(path.size());
    return false;
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  struct stat there = {};
  if (lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      error = path + ": is there and is no socket; choose another path";
      return false;
    }
    if (is_listened_at(name)) {
      error = path + ": another program listens there";
      return false;
    }
    (void)unlink(path.c_str());
  }
  const int fd = new_socket(AF_UNIX);
  if (fd >= 0) set_http_socket_options(fd, true, limits);
  // Nobody can connect before listen(), so the mode is set in time.
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0 ||
      chmod(path.c_str(), static_cast<mode_t>(address.unix_mode)) != 0 ||
      listen(fd, kBacklog) != 0) {
    error = errno_text("cannot listen at " + path);
    if (fd >= 0) close(fd);
    return false;
  }
  listeners.emplace_back(fd, "unix:" + path, path);
  return true;
}

}  // namespace

HttpListener::HttpListener(int fd, std::string name, std::string unix_path)
    : fd_(fd), name_(std::move(name)), unix_path_(std::move(unix_path)) {
  struct stat made = {};
  if (!unix_path_.empty() && lstat(unix_path_.c_str(), &made) == 0) {
    device_ = made.st_dev;
    inode_ = made.st_ino;
  }
}

HttpListener::HttpListener(HttpListener&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      name_(std::move(other.name_)),
      unix_path_(std::exchange(other.unix_path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

HttpListener::~HttpListener() {
  struct stat there = {};
  if (!unix_path_.empty() && lstat(unix_path_.c_str(), &there) == 0 && there.st_dev == device_ &&
      there.st_ino == inode_) {
    (void)unlink(unix_path_.c_str());
  }
  if (fd_ >= 0) close(fd_);
}

bool open_http_listeners(const HttpAddress& address, const HttpLimits& limits,
                         std::vector<HttpListener>& listeners, std::string& error) {
  if (!address.unix_path.empty()) return open_unix(address, limits, listeners, error);
  if (address.host != "localhost") {
    return open_tcp(address.host, address.port, limits, listeners, error);
  }
  if (!open_tcp("127.0.0.1", address.port, limits, listeners, error)) return false;
  // The same port; a machine without IPv6 does with the first.
  const std::uint16_t port = bound_port(listeners.back().fd());
  std::string ignored;
  (void)open_tcp("::1", port, limits, listeners, ignored);
  return true;
}

void set_http_socket_options(int fd, bool is_unix, const HttpLimits& limits) {
  set_option(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(limits.send_buffer_bytes));
  set_option(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(limits.receive_buffer_bytes));
  if (!is_unix) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace qsf_tools
