// SPDX-License-Identifier: MIT
//
// A client on a raw socket, which can send what no HTTP library would, and a service to talk to.

#ifndef QSF_TOOLS_SERVE_HTTP_TESTING_HTTP_CLIENT_H_
#define QSF_TOOLS_SERVE_HTTP_TESTING_HTTP_CLIENT_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tools/serve/http/http_server.h"

namespace qsf_tools::testing_support {

struct ReceivedResponse {
  int status = 0;  // 0: none came
  std::string head;
  std::string body;
  bool is_complete = false;

  std::string header(std::string_view name) const;
};

class RawClient {
 public:
  // Connects to "http://127.0.0.1:PORT" or "unix:PATH".
  explicit RawClient(const std::string& address, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient& operator=(RawClient&&) = delete;

  bool is_connected() const { return fd_ >= 0; }
  // Returns whether all was sent.
  bool send(std::string_view bytes);
  // Sends one byte after another with a pause. Stops when the server has closed, or has answered.
  void send_slowly(std::string_view bytes, int pause_ms);
  // Reads one response. `is_head`: it has no body.
  ReceivedResponse receive(bool is_head = false);
  // Reads up to `max_bytes` within a time; empty: nothing came, or the end.
  std::string receive_some(std::size_t max_bytes, int timeout_ms);
  // Returns whether the server closes within a time, passing over what it sends.
  bool sees_end(int timeout_ms);
  void end_sending();
  void close();
  // Closes with a reset.
  void reset();

 private:
  bool read_more();

  int fd_ = -1;
  std::string buffered_;
};

// GET /hello: "hello". POST /echo: the body, up to 64 KiB. GET /page: static bytes. GET /big: 1
// MiB. /hold: kept in `held` until the test answers it. POST /hold takes a body. /forbidden: 401
// before the body is read. /forget: let go of without a response. Everything else: 404.
class TestService final : public HttpService {
 public:
  std::optional<HttpResponse> check_head(const HttpRequest& head,
                                         std::size_t& max_body_bytes) override;
  void handle(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse refuse(int status, std::string_view message) override;

  // Waits until `n` requests to /hold are there, and returns the last; null: 10 s have passed.
  std::shared_ptr<HttpExchange> held(std::size_t n = 1);
  void forget_held();

  static constexpr std::size_t kMaxEcho = 65536;
  static constexpr std::size_t kBig = 1 << 20;

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<HttpExchange>> held_;
};

// A server that runs in a thread of its own while this lives.
class RunningServer {
 public:
  explicit RunningServer(const HttpLimits& limits = {}, const HttpAddress& address = {});
  ~RunningServer();

  RawClient connect() const { return RawClient(address); }
  std::uint64_t refused(HttpRefusal why) const {
    return server->counters().refused[static_cast<std::size_t>(why)];
  }

  TestService service;
  std::string error;
  std::unique_ptr<HttpServer> server;
  std::string address;

 private:
  std::thread thread_;
};

// Returns whether `condition()` holds within a time.
template <typename Condition>
bool comes_true(Condition condition, int timeout_ms = 10000) {
  for (int waited = 0; waited < timeout_ms; waited += 5) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

std::string get_request(std::string_view path, std::string_view more_headers = "");
std::string post_request(std::string_view path, std::string_view body,
                         std::string_view more_headers = "");

}  // namespace qsf_tools::testing_support

#endif  // QSF_TOOLS_SERVE_HTTP_TESTING_HTTP_CLIENT_H_
