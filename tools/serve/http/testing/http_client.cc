// SPDX-License-Identifier: MIT

#include "tools/serve/http/testing/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "tools/serve/http/http_head.h"

namespace qsf_tools::testing_support {

namespace {

constexpr int kTimeoutMs = 10000;

// Returns a connected socket; -1: refused.
int connect_to(const std::string& address, int receive_buffer_bytes) {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  if (address.rfind("unix:", 0) == 0) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path, sizeof name.sun_path - 1, 5);
    std::memcpy(&storage, &name, size = sizeof name);
  } else if (address.find('[') != std::string::npos) {
    sockaddr_in6 name = {};
    name.sin6_family = AF_INET6;
    name.sin6_addr = in6addr_loopback;
    name.sin6_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    std::memcpy(&storage, &name, size = sizeof name);
  } else {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    std::memcpy(&storage, &name, size = sizeof name);
  }
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer_bytes > 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  }
  if (::connect(fd, reinterpret_cast<sockaddr*>(&storage), size) != 0) {
    ::close(fd);
    return -1;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

bool waits(int fd, short what, int timeout_ms) {
  pollfd poller = {fd, what, 0};
  return poll(&poller, 1, timeout_ms) > 0;
}

}  // namespace

std::string ReceivedResponse::header(std::string_view name) const {
  std::size_t at = head.find("\r\n");
  while (at != std::string::npos && at + 2 < head.size()) {
    at += 2;
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string line = head.substr(at, end - at);
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos && equal_http_names(line.substr(0, colon), name)) {
      return line.substr(colon + 2);
    }
    at = end;
  }
  return {};
}

RawClient::RawClient(const std::string& address, int receive_buffer_bytes)
    : fd_(connect_to(address, receive_buffer_bytes)) {}

RawClient::RawClient(RawClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffered_(std::move(other.buffered_)) {}

RawClient::~RawClient() {
  close();
}

void RawClient::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawClient::reset() {
  const linger now = {1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

void RawClient::end_sending() {
  shutdown(fd_, SHUT_WR);
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void RawClient::send_slowly(std::string_view bytes, int pause_ms) {
  for (const char c : bytes) {
    if (!send({&c, 1}) || waits(fd_, POLLIN, pause_ms)) return;
  }
}

std::string RawClient::receive_some(std::size_t max_bytes, int timeout_ms) {
  if (!waits(fd_, POLLIN, timeout_ms)) return {};
  std::string bytes(max_bytes, '\0');
  const ssize_t n = recv(fd_, bytes.data(), bytes.size(), 0);
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

bool RawClient::sees_end(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  char bytes[4096];
  while (std::chrono::steady_clock::now() < deadline) {
    if (waits(fd_, POLLIN, 20) && recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
  }
  return false;
}

bool RawClient::read_more() {
  const std::string bytes = receive_some(65536, kTimeoutMs);
  buffered_ += bytes;
  return !bytes.empty();
}

ReceivedResponse RawClient::receive(bool is_head) {
  ReceivedResponse response;
  std::size_t end = 0;
  while ((end = buffered_.find("\r\n\r\n")) == std::string::npos) {
    if (!read_more()) return response;
  }
  response.head = buffered_.substr(0, end + 2);
  buffered_.erase(0, end + 4);
  if (response.head.rfind("HTTP/1.1 ", 0) != 0) return response;
  response.status = std::atoi(response.head.c_str() + 9);
  if (is_head || response.status == 204 || response.status == 304) {
    response.is_complete = true;
  } else if (response.header("transfer-encoding") == "chunked") {
    for (;;) {
      std::size_t line = 0;
      while ((line = buffered_.find("\r\n")) == std::string::npos) {
        if (!read_more()) return response;
      }
      const std::size_t size = std::stoul(buffered_.substr(0, line), nullptr, 16);
      while (buffered_.size() < line + 2 + size + 2) {
        if (!read_more()) return response;
      }
      response.body += buffered_.substr(line + 2, size);
      buffered_.erase(0, line + 2 + size + 2);
      if (size > 0) continue;
      response.is_complete = true;
      break;
    }
  } else if (const std::string length = response.header("content-length"); !length.empty()) {
    const std::size_t n = std::stoul(length);
    while (buffered_.size() < n) {
      if (!read_more()) return response;
    }
    response.body = buffered_.substr(0, n);
    buffered_.erase(0, n);
    response.is_complete = true;
  } else {
    while (read_more()) continue;
    response.body = std::exchange(buffered_, {});
    response.is_complete = true;
  }
  return response;
}

std::optional<HttpResponse> TestService::check_head(const HttpRequest& head,
                                                    std::size_t& max_body_bytes) {
  if (head.path == "/forbidden") return refuse(401, "no key");
  for (const char* known : {"/hello", "/page", "/big", "/forget"}) {
    if (head.path == known) return std::nullopt;
  }
  if (head.path == "/echo" || head.path == "/hold") {
    max_body_bytes = kMaxEcho;
    return std::nullopt;
  }
  return refuse(404, "not here");
}

void TestService::handle(std::shared_ptr<HttpExchange> exchange) {
  static const std::string page(20000, 'p');
  const HttpRequest& request = exchange->request();
  if (request.path == "/hello") {
    exchange->respond({200, {{"X-Query", request.query}}, "hello", {}});
  } else if (request.path == "/echo") {
    exchange->respond({200, {{"Content-Type", "text/plain"}}, request.body, {}});
  } else if (request.path == "/page") {
    exchange->respond({200, {}, "", page});
  } else if (request.path == "/big") {
    exchange->respond({200, {}, std::string(kBig, 'b'), {}});
  } else if (request.path == "/hold") {
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(exchange));
    arrived_.notify_all();
  }
}

HttpResponse TestService::refuse(int status, std::string_view message) {
  return {status, {{"Content-Type", "text/plain"}}, std::string(message), {}};
}

std::shared_ptr<HttpExchange> TestService::held(std::size_t n) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::seconds(10), [&] { return held_.size() >= n; });
  return held_.size() >= n ? held_[n - 1] : nullptr;
}

void TestService::forget_held() {
  std::vector<std::shared_ptr<HttpExchange>> forgotten;
  const std::lock_guard lock(mutex_);
  forgotten.swap(held_);
}

RunningServer::RunningServer(const HttpLimits& limits, const HttpAddress& where)
    : server(HttpServer::open(limits, {where}, service, error)) {
  if (server == nullptr) return;
  address = server->addresses().front();
  thread_ = std::thread([this] { server->run(); });
}

RunningServer::~RunningServer() {
  if (server == nullptr) return;
  server->stop();
  thread_.join();
}

std::string get_request(std::string_view path, std::string_view more_headers) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(more_headers) +
         "\r\n";
}

std::string post_request(std::string_view path, std::string_view body,
                         std::string_view more_headers) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(more_headers) + "\r\n" + std::string(body);
}

}  // namespace qsf_tools::testing_support
