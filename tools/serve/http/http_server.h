// SPDX-License-Identifier: MIT
//
// An HTTP/1.1 server on one network thread, whose memory is bounded.
//
// It reads requests within limits, hands them to an HttpService and sends what the service writes,
// from any thread. An idle connection takes less than 1 KiB of heap: buffers exist only while bytes
// are in them, and come out of budgets that all connections share. When a budget is spent, the
// slowest of those that hold it is refused, so that slow clients cannot keep others out.
//
// What it does not take: chunked request bodies (411), Expect (417), compressed bodies (415), lines
// that end without a carriage return, folded header lines, and every other liberty of the format
// that lets two readers disagree about where a request ends (400). Upgrade is ignored. Requests
// sent ahead are answered one after another.
//
// A peer that closes its side of the connection has gone, as nginx sees it too: an answer that is
// not ready then is given up. An answer that is ready still reaches a peer that closed only its
// sending side.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_SERVER_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_SERVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {

// What one server takes at most. http_memory_bytes() says what that adds up to.
struct HttpLimits {
  std::size_t max_target_bytes = 2048;  // of path and query; more: 414
  std::size_t max_head_bytes = 8192;    // of request line and headers; more: 431
  std::size_t max_headers = 64;         // more: 431
  // Heads that arrive in pieces and heads of requests being answered. Spent: 408 for the slowest.
  std::size_t head_pool_bytes = std::size_t{4} << 20;
  // Bodies of all requests until the service drops them. Spent: 408 for the slowest sender, or 503.
  std::size_t max_all_bodies_bytes = std::size_t{32} << 20;
  // Output of a connection from which on is_full() holds.
  std::size_t max_output_bytes = std::size_t{64} << 10;
  // Output of all connections that is not sent. More: the connection that holds most of it for
  // longest without taking any is closed.
  std::size_t max_all_output_bytes = std::size_t{16} << 20;

  // At the limit a newcomer takes the place of the connection that has been idle for longest, or
  // else of the slowest head. Where every connection has a request being answered, reserve ones are
  // taken for one GET or HEAD each, as of /health; other methods get 503. Beyond, newcomers wait.
  std::size_t max_connections = 1024;
  std::size_t reserve_connections = 16;
  std::size_t max_requests_per_connection = 10000;

  // Buffers of a socket in the kernel, which doubles the values.
  std::size_t send_buffer_bytes = 8192;
  std::size_t receive_buffer_bytes = 8192;

  double idle_seconds = 75;   // for the next request on a connection; nginx's default
  double head_seconds = 10;   // from the first byte of a head to its last
  double body_seconds = 10;   // for a body, plus its bytes / min_bytes_per_second
  double write_seconds = 30;  // for output that waits, plus its bytes / min_bytes_per_second
  double min_bytes_per_second = 500;
  double linger_seconds = 3;       // for a peer to read the answer to a request that was not read
  double keep_alive_seconds = 10;  // of silence in a response, until its comment is sent
};

// Returns what a server with these limits takes at most, in bytes: heap, and the kernel's memory
// for its connections. Not in it: what the service allocates, and bodies of responses beyond
// max_all_output_bytes, of which there is at most one.
std::size_t http_memory_bytes(const HttpLimits& limits);

// Why a connection or a request was refused.
enum class HttpRefusal : unsigned char {
  kBadRequest,  // 400, 411, 415, 417, 501, 505
  kTooLarge,    // 413, 414, 431
  kTimeout,     // 408
  kEvicted,     // 408, or closed, for another's sake
  kNoRoom,      // 503: connections or bodies
  kSlowReader,  // closed: took no output
  kCount
};

struct HttpCounters {
  std::uint64_t connections_open = 0;
  std::uint64_t connections_accepted = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t head_pool_bytes = 0;  // taken now
  std::uint64_t body_bytes = 0;       // taken now
  std::uint64_t output_bytes = 0;     // waiting now
  std::uint64_t peers_gone = 0;       // before their response was complete
  std::array<std::uint64_t, static_cast<std::size_t>(HttpRefusal::kCount)> refused = {};
  std::array<std::uint64_t, 600> responses = {};  // begun, by status
};

// Where to listen: an address of IPv4 or IPv6, or "localhost" for both, and a port, 0 for any; or
// the path of a Unix socket.
struct HttpAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string unix_path;  // in place of host and port
  unsigned unix_mode = 0600;
};

class HttpServer {
 public:
  // Listens at the addresses. `service` must outlive the server.
  // Fails  null, and says why in `error`, where an address cannot be bound
  static std::unique_ptr<HttpServer> open(const HttpLimits& limits,
                                          const std::vector<HttpAddress>& addresses,
                                          HttpService& service, std::string& error);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Serves until stop(), or until drain() has no connection left. The thread that calls it is the
  // network thread.
  void run();

  // Takes no more connections and requests; those being answered are finished.
  // Threads  any, and signal handlers
  void drain() noexcept;
  // Closes every connection; exchanges are gone.
  // Threads  any, and signal handlers
  void stop() noexcept;

  // Returns where it listens, as "http://127.0.0.1:8080" or "unix:PATH".
  std::vector<std::string> addresses() const;

  // Threads  any
  HttpCounters counters() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_SERVER_H_
