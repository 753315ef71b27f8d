// SPDX-License-Identifier: MIT
//
// Sockets that listen: opened by address, closed at the end.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_LISTENER_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_LISTENER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/serve/http/http_server.h"

namespace qsf_tools {

// One socket. Removes the file of a Unix socket at the end, if it is still its own.
class HttpListener {
 public:
  HttpListener(int fd, std::string name, std::string unix_path);
  ~HttpListener();
  HttpListener(HttpListener&& other) noexcept;
  HttpListener& operator=(HttpListener&&) = delete;

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }
  bool is_unix() const { return !unix_path_.empty(); }

 private:
  int fd_;
  std::string name_;
  std::string unix_path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Opens the sockets of an address, non-blocking. A Unix socket's file that nobody listens at is
// replaced.
// Fails  false, with the reason in `error`
bool open_http_listeners(const HttpAddress& address, const HttpLimits& limits,
                         std::vector<HttpListener>& listeners, std::string& error);

// Sets what every connection has: sizes of buffers, and small writes sent at once.
void set_http_socket_options(int fd, bool is_unix, const HttpLimits& limits);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_LISTENER_H_
