// SPDX-License-Identifier: MIT
//
// One HTTP request and its response, and what a service implements to answer requests.
//
// The server (http_server.h) reads a request whole, within its limits, and hands it over as an
// HttpExchange. The service may answer at once or later, from any thread, with a whole response or
// piece by piece.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_EXCHANGE_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qsf_tools {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // "GET", "POST", ...
  std::string path;    // of the target, without the query, as it was sent
  std::string query;   // behind the '?', without it
  std::vector<HttpHeader> headers;
  std::string body;

  // Returns the value of the first header of that name, compared without case; empty without one.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  // Content-Length, Transfer-Encoding, Connection and Date come from the server.
  std::vector<HttpHeader> headers;
  std::string body;
  // Sent in place of an empty body without a copy: bytes that outlive the server, such as a page
  // in the binary.
  std::string_view static_body = {};
};

// One request and its response. A service that lets go of an exchange before it has ended the
// response sends 500, or, after start(), closes the connection. Letting go implies
// set_on_change(null).
//
// Threads  any; every function is safe to call after the peer has gone, and after the server
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Threads  not at the same time as drop_body()
  virtual const HttpRequest& request() const noexcept = 0;
  // Frees the request's body, which counts against HttpLimits::max_all_bodies_bytes until then, or
  // until the exchange is let go.
  virtual void drop_body() noexcept = 0;

  // Sends a whole response and ends the exchange. Requires  neither respond() nor start() before
  virtual void respond(HttpResponse response) = 0;

  // Sends status and headers of a response that is written in pieces: chunked, or with a header
  // Content-Length, of which the pieces then have all bytes. Whenever nothing was sent for
  // HttpLimits::keep_alive_seconds, the server sends `keep_alive`; empty: nothing.
  virtual void start(int status, std::vector<HttpHeader> headers, std::string keep_alive) = 0;
  // Queues a piece, which is sent in one write where it fits. Requires  start(), no finish()
  virtual void write(std::string bytes) = 0;
  // Ends the response. `complete` false: closes the connection without the last chunk.
  virtual void finish(bool complete = true) = 0;

  // Whether the queue of output is full: it has reached HttpLimits::max_output_bytes, and more than
  // half of that is still in it. write() still takes a piece; the writer should wait for on_change.
  virtual bool is_full() const noexcept = 0;
  // Whether the peer has gone, or was given up because it took no output for too long. What is
  // written from then on is dropped.
  virtual bool is_gone() const noexcept = 0;
  // Sets what is called when the peer has gone, and each time a full queue is full no more. It is
  // called on the network thread and must not block; it may call every function here. If the peer
  // has gone already, it is called soon. Replaces the one before; null: none.
  // Guarantees  the one before is not running when this returns, unless that is what called it.
  //             So hold no lock here that it takes
  virtual void set_on_change(void (*on_change)(void* user), void* user) = 0;
};

// Answers requests. The server calls it on the network thread, so it must not block.
class HttpService {
 public:
  virtual ~HttpService() = default;

  // Called when the head of a request was read, before its body. A response refuses it; the body is
  // not read then. Sets in `max_body_bytes` what the body may have at most; it is 0 before.
  virtual std::optional<HttpResponse> check_head(const HttpRequest& head,
                                                 std::size_t& max_body_bytes) = 0;
  // Answers a request.
  virtual void handle(std::shared_ptr<HttpExchange> exchange) = 0;
  // Returns the response for a request that the server refuses itself: 400, 408, 411, 413, 414,
  // 415, 417, 431, 500 (the service let go of it), 501, 503, 505.
  virtual HttpResponse refuse(int status, std::string_view message) = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_EXCHANGE_H_
