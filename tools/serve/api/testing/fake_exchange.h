// SPDX-License-Identifier: MIT
//
// An HTTP exchange that keeps what is answered.

#ifndef QSF_TOOLS_SERVE_API_TESTING_FAKE_EXCHANGE_H_
#define QSF_TOOLS_SERVE_API_TESTING_FAKE_EXCHANGE_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {

class FakeExchange : public HttpExchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  const HttpRequest& request() const noexcept override { return request_; }
  void drop_body() noexcept override { request_.body = {}; }
  void respond(HttpResponse response) override {
    ++n_ends;
    status = response.status;
    headers = std::move(response.headers);
    body = std::move(response.body);
  }
  void start(int started_status, std::vector<HttpHeader> started_headers,
             std::string started_keep_alive) override {
    status = started_status;
    headers = std::move(started_headers);
    keep_alive = std::move(started_keep_alive);
  }
  void write(std::string bytes) override {
    body += bytes;
    writes.push_back(std::move(bytes));
  }
  void finish(bool complete) override {
    ++n_ends;
    is_cut = !complete;
  }
  bool is_full() const noexcept override { return full; }
  bool is_gone() const noexcept override { return gone; }
  void set_on_change(void (* /*on_change*/)(void*), void* /*user*/) override {}

  // The value of a header of the response; empty without one.
  std::string header(std::string_view name) const {
    for (const HttpHeader& header : headers) {
      if (header.name == name) return header.value;
    }
    return {};
  }

  int status = 0;  // 0: nothing was answered
  std::vector<HttpHeader> headers;
  std::string body;                 // whole, or of all pieces
  std::vector<std::string> writes;  // the pieces
  std::string keep_alive;
  int n_ends = 0;
  bool is_cut = false;
  bool full = false;
  bool gone = false;

 private:
  HttpRequest request_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_TESTING_FAKE_EXCHANGE_H_
