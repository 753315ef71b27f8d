// SPDX-License-Identifier: MIT

// Before windows.h, which has an older interface.
#include <winsock2.h>
#include <ws2tcpip.h>

#include <windows.h>

#include <algorithm>
#include <string>

#include "tools/serve/http/socket_calls.h"

namespace qsf_tools {

namespace {

constexpr int kBacklog = 512;
constexpr const char* kNoUnixSockets =
    "Unix sockets are not in the program for Windows; name --host and --port instead";

// Winsock has to be started; it ends with the process.
void start_winsock() {
  static const int started = [] {
    WSADATA about = {};
    return ::WSAStartup(MAKEWORD(2, 2), &about);
  }();
  (void)started;
}

SOCKET socket_of(SocketHandle handle) {
  return static_cast<SOCKET>(handle);
}

SocketHandle handle_of(SOCKET socket) {
  return socket == INVALID_SOCKET ? kNoSocket : static_cast<SocketHandle>(socket);
}

SOCKET new_socket(int family, int type) {
  start_winsock();
  return ::WSASocketW(family, type, 0, nullptr, 0,
                      WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
}

void set_option(SOCKET socket, int level, int name, int value) {
  // A socket without the option works, only slower.
  (void)::setsockopt(socket, level, name, reinterpret_cast<const char*>(&value), sizeof value);
}

void set_options(SOCKET socket, const HttpLimits& limits) {
  set_option(socket, SOL_SOCKET, SO_SNDBUF, static_cast<int>(limits.send_buffer_bytes));
  set_option(socket, SOL_SOCKET, SO_RCVBUF, static_cast<int>(limits.receive_buffer_bytes));
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool set_non_blocking(SOCKET socket) {
  u_long on = 1;
  return ::ioctlsocket(socket, static_cast<long>(FIONBIO), &on) == 0;
}

// Closes a socket that is of no use, and keeps the error.
SocketHandle give_up(SOCKET socket) {
  const int error = ::WSAGetLastError();
  if (socket != INVALID_SOCKET) ::closesocket(socket);
  ::WSASetLastError(error);
  return kNoSocket;
}

// A datagram socket of the loopback that sends to itself.
SOCKET socket_to_itself() {
  const SOCKET socket = new_socket(AF_INET, SOCK_DGRAM);
  if (socket == INVALID_SOCKET) return socket;
  sockaddr_in itself = {};
  itself.sin_family = AF_INET;
  itself.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&itself);
  int size = sizeof itself;
  if (::bind(socket, address, size) == 0 && ::getsockname(socket, address, &size) == 0 &&
      ::connect(socket, address, size) == 0 && set_non_blocking(socket)) {
    return socket;
  }
  give_up(socket);
  return INVALID_SOCKET;
}

}  // namespace

SocketHandle listen_at(const SocketAddress& address, const HttpLimits& limits) {
  const SOCKET socket = new_socket(address.family, SOCK_STREAM);
  if (socket == INVALID_SOCKET) return kNoSocket;
  // Otherwise any program could listen at the same port. A port is free at once without an option.
  set_option(socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, 1);
  // So that :: and 0.0.0.0 can be listened at together.
  if (address.family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // Before listen(), because the window of a connection is set from it.
  set_options(socket, limits);
  if (::bind(socket, static_cast<const sockaddr*>(address.bytes), static_cast<int>(address.size)) !=
          0 ||
      ::listen(socket, kBacklog) != 0 || !set_non_blocking(socket)) {
    return give_up(socket);
  }
  return handle_of(socket);
}

std::size_t bound_address(SocketHandle socket, void* bytes, std::size_t max_bytes) {
  auto size = static_cast<int>(max_bytes);
  if (::getsockname(socket_of(socket), static_cast<sockaddr*>(bytes), &size) != 0) return 0;
  return static_cast<std::size_t>(size);
}

SocketHandle listen_at_file(const HttpAddress& address, const HttpLimits&, SocketFile&,
                            std::string& error) {
  error = address.unix_path + ": " + kNoUnixSockets;
  return kNoSocket;
}

void remove_socket_file(const SocketFile&) {}

Accepted accept_connection(SocketHandle listener, bool, const HttpLimits& limits,
                           SocketHandle& connection) {
  const SOCKET socket = ::accept(socket_of(listener), nullptr, nullptr);
  if (socket == INVALID_SOCKET) {
    const int error = ::WSAGetLastError();
    if (error == WSAECONNRESET || error == WSAEINTR) return Accepted::kAgain;
    return error == WSAEWOULDBLOCK ? Accepted::kNothing : Accepted::kRefused;
  }
  ::SetHandleInformation(reinterpret_cast<HANDLE>(socket), HANDLE_FLAG_INHERIT, 0);
  if (!set_non_blocking(socket)) {
    ::closesocket(socket);
    return Accepted::kRefused;
  }
  set_options(socket, limits);
  connection = handle_of(socket);
  return Accepted::kConnection;
}

void close_socket(SocketHandle socket) {
  ::closesocket(socket_of(socket));
}

std::string socket_error() {
  const int error = ::WSAGetLastError();
  switch (error) {
    case WSAEADDRINUSE: return "Address already in use";
    case WSAEACCES: return "Permission denied, or another program has the address";
    case WSAEADDRNOTAVAIL: return "Cannot assign requested address";
    case WSAECONNREFUSED: return "Connection refused";
    case WSAETIMEDOUT: return "Connection timed out";
    case WSAENETUNREACH: return "Network is unreachable";
    default: return "Winsock error " + std::to_string(error);
  }
}

WakeSignal::WakeSignal() : socket_(handle_of(socket_to_itself())) {}

WakeSignal::~WakeSignal() {
  if (is_open()) close_socket(socket_);
}

// A full buffer is a signal that nobody has cleared.
void WakeSignal::signal() const noexcept {
  const char byte = 0;
  (void)::send(socket_of(socket_), &byte, 1, 0);
}

void WakeSignal::clear() const noexcept {
  char bytes[16];
  while (::recv(socket_of(socket_), bytes, sizeof bytes, 0) > 0) continue;
}

std::string ask_address(const SocketAddress& address, const std::string& request,
                        std::size_t max_bytes, int seconds, std::string& error) {
  const SOCKET socket = new_socket(address.family, SOCK_STREAM);
  constexpr int kMillisecondsInOne = 1000;
  set_option(socket, SOL_SOCKET, SO_RCVTIMEO, seconds * kMillisecondsInOne);
  set_option(socket, SOL_SOCKET, SO_SNDTIMEO, seconds * kMillisecondsInOne);
  if (socket == INVALID_SOCKET || ::connect(socket, static_cast<const sockaddr*>(address.bytes),
                                            static_cast<int>(address.size)) != 0) {
    error = socket_error();
    give_up(socket);
    return {};
  }
  std::string answer(max_bytes, '\0');
  std::size_t n_answer = 0;
  const auto size = static_cast<int>(request.size());
  if (::send(socket, request.data(), size, 0) == size) {
    while (n_answer < max_bytes) {
      const int n =
          ::recv(socket, answer.data() + n_answer, static_cast<int>(max_bytes - n_answer), 0);
      if (n <= 0) break;
      n_answer += static_cast<std::size_t>(n);
    }
  }
  ::closesocket(socket);
  answer.resize(n_answer);
  return answer;
}

std::string ask_file(const std::string&, const std::string&, std::size_t, int, std::string& error) {
  error = kNoUnixSockets;
  return {};
}

}  // namespace qsf_tools
