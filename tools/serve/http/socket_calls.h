// SPDX-License-Identifier: MIT
//
// Sockets as the system has them. All of them do not block and are of no use to child processes.

#ifndef QSF_TOOLS_SERVE_HTTP_SOCKET_CALLS_H_
#define QSF_TOOLS_SERVE_HTTP_SOCKET_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/serve/http/http_server.h"

namespace qsf_tools {

// What the system calls a socket.
using SocketHandle = std::intptr_t;
inline constexpr SocketHandle kNoSocket = -1;

// An address as the system has it: a sockaddr.
struct SocketAddress {
  const void* bytes = nullptr;
  std::size_t size = 0;
  int family = 0;
};

// Returns a socket that listens; none: socket_error() says why.
SocketHandle listen_at(const SocketAddress& address, const HttpLimits& limits);
// Writes the address that a socket is bound to, of at most `max_bytes`. Returns its size, 0: none.
std::size_t bound_address(SocketHandle socket, void* bytes, std::size_t max_bytes);

// The file of a Unix socket, and what it takes to tell that it is still the same.
struct SocketFile {
  std::string path;
  std::uint64_t device = 0;
  std::uint64_t number = 0;
};

// Listens at a Unix socket. Its file is replaced where nobody listens at it.
// Fails  kNoSocket, with the reason in `error`; always where the system has none
SocketHandle listen_at_file(const HttpAddress& address, const HttpLimits& limits, SocketFile& file,
                            std::string& error);
// Removes the file unless another one has taken its place.
void remove_socket_file(const SocketFile& file);

// kRefused: out of sockets or memory.
enum class Accepted { kConnection, kAgain, kNothing, kRefused };
// Takes a connection from a socket that listens, and sets what every connection has: sizes of
// buffers, and, unless `is_unix`, small writes sent at once.
Accepted accept_connection(SocketHandle listener, bool is_unix, const HttpLimits& limits,
                           SocketHandle& connection);

void close_socket(SocketHandle socket);
// Says what was wrong with the last call of this thread.
std::string socket_error();

// Wakes a thread that waits until a socket can be read.
class WakeSignal {
 public:
  WakeSignal();  // is_open() says whether it worked
  ~WakeSignal();
  WakeSignal(const WakeSignal&) = delete;
  WakeSignal& operator=(const WakeSignal&) = delete;

  bool is_open() const { return socket_ != kNoSocket; }
  // Can be read after signal(), until clear().
  SocketHandle socket() const { return socket_; }
  // Threads  any, and signal handlers
  void signal() const noexcept;
  void clear() const noexcept;

 private:
  SocketHandle socket_;
};

// Connects to an address or the path of a Unix socket, sends a request and returns the first bytes
// of the answer, at most `max_bytes`; nothing where none came within `seconds`.
// Fails  empty, with the reason in `error`
std::string ask_address(const SocketAddress& address, const std::string& request,
                        std::size_t max_bytes, int seconds, std::string& error);
std::string ask_file(const std::string& path, const std::string& request, std::size_t max_bytes,
                     int seconds, std::string& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_SOCKET_CALLS_H_
