// SPDX-License-Identifier: MIT
//
// Sockets that listen: opened by address, closed at the end.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_LISTENER_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_LISTENER_H_

#include <string>
#include <vector>

#include "tools/serve/http/http_server.h"
#include "tools/serve/http/socket_calls.h"

namespace qsf_tools {

// One socket. Removes the file of a Unix socket at the end, if it is still its own.
class HttpListener {
 public:
  HttpListener(SocketHandle socket, std::string name, SocketFile file);
  ~HttpListener();
  HttpListener(HttpListener&& other) noexcept;
  HttpListener& operator=(HttpListener&&) = delete;

  SocketHandle socket() const { return socket_; }
  const std::string& name() const { return name_; }
  bool is_unix() const { return !file_.path.empty(); }

 private:
  SocketHandle socket_;
  std::string name_;
  SocketFile file_;
};

// Opens the sockets of an address. A Unix socket's file that nobody listens at is replaced.
// Fails  false, with the reason in `error`
bool open_http_listeners(const HttpAddress& address, const HttpLimits& limits,
                         std::vector<HttpListener>& listeners, std::string& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_LISTENER_H_
