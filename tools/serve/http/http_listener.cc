// SPDX-License-Identifier: MIT

#include "tools/serve/http/http_listener.h"

// Boost 1.74 uses std::exchange without including this.
#include <utility>

#include <boost/asio/ip/tcp.hpp>

namespace qsf_tools {

namespace {

using Endpoint = boost::asio::ip::tcp::endpoint;

// Returns the port that a socket is bound to.
std::uint16_t bound_port(SocketHandle socket) {
  Endpoint bound;
  const std::size_t size = bound_address(socket, bound.data(), bound.capacity());
  if (size == 0) return 0;
  bound.resize(size);
  return bound.port();
}

bool open_tcp(const std::string& host, std::uint16_t port, const HttpLimits& limits,
              std::vector<HttpListener>& listeners, std::string& error) {
  boost::system::error_code none;
  const auto address = boost::asio::ip::make_address(host, none);
  if (none) {
    error = host + ": not an address; expected one as 127.0.0.1 or ::1, or localhost";
    return false;
  }
  const Endpoint at(address, port);
  const std::string shown = address.is_v6() ? "[" + host + "]" : host;
  const SocketHandle socket = listen_at({at.data(), at.size(), at.protocol().family()}, limits);
  if (socket == kNoSocket) {
    error = "cannot listen at " + shown + ":" + std::to_string(port) + ": " + socket_error();
    return false;
  }
  listeners.emplace_back(socket, "http://" + shown + ":" + std::to_string(bound_port(socket)),
                         SocketFile{});
  return true;
}

}  // namespace

HttpListener::HttpListener(SocketHandle socket, std::string name, SocketFile file)
    : socket_(socket), name_(std::move(name)), file_(std::move(file)) {}

HttpListener::HttpListener(HttpListener&& other) noexcept
    : socket_(std::exchange(other.socket_, kNoSocket)),
      name_(std::move(other.name_)),
      file_(std::exchange(other.file_, {})) {}

HttpListener::~HttpListener() {
  if (is_unix()) remove_socket_file(file_);
  if (socket_ != kNoSocket) close_socket(socket_);
}

bool open_http_listeners(const HttpAddress& address, const HttpLimits& limits,
                         std::vector<HttpListener>& listeners, std::string& error) {
  if (!address.unix_path.empty()) {
    SocketFile file;
    const SocketHandle socket = listen_at_file(address, limits, file, error);
    if (socket == kNoSocket) return false;
    listeners.emplace_back(socket, "unix:" + address.unix_path, std::move(file));
    return true;
  }
  if (address.host != "localhost") {
    return open_tcp(address.host, address.port, limits, listeners, error);
  }
  if (!open_tcp("127.0.0.1", address.port, limits, listeners, error)) return false;
  // The same port; a machine without IPv6 does with the first.
  const std::uint16_t port = bound_port(listeners.back().socket());
  std::string ignored;
  (void)open_tcp("::1", port, limits, listeners, ignored);
  return true;
}

}  // namespace qsf_tools
