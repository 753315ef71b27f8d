// SPDX-License-Identifier: MIT

#include "tools/serve/health_check.h"

// Boost 1.74 uses std::exchange without including this.
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "tools/serve/http/socket_calls.h"

namespace qsf_tools {

namespace {

constexpr int kSeconds = 5;
constexpr std::size_t kAnswerBytes = 64;
constexpr const char* kRequest =
    "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

// Takes addresses alone: the look-up of names does not work in a static program.
std::string ask_port(std::string host, std::uint16_t port, std::string& error) {
  // A server that listens on every address is reached on this machine.
  if (host == "0.0.0.0" || host == "localhost") host = "127.0.0.1";
  if (host == "::") host = "::1";
  boost::system::error_code none;
  const auto address = boost::asio::ip::make_address(host, none);
  if (none) {
    error = "not an address; expected one as 127.0.0.1 or ::1, or localhost";
    return {};
  }
  const boost::asio::ip::tcp::endpoint at(address, port);
  return ask_address({at.data(), at.size(), at.protocol().family()}, kRequest, kAnswerBytes,
                     kSeconds, error);
}

}  // namespace

std::string check_health(const std::string& host, std::uint16_t port,
                         const std::string& socket_path) {
  const std::string where = socket_path.empty() ? host + ":" + std::to_string(port) : socket_path;
  std::string error;
  const std::string answer = socket_path.empty()
                                 ? ask_port(host, port, error)
                                 : ask_file(socket_path, kRequest, kAnswerBytes, kSeconds, error);
  if (!error.empty()) return where + ": " + error;
  if (answer.starts_with("HTTP/1.1 200 ")) return {};
  if (answer.empty()) return where + ": no answer within " + std::to_string(kSeconds) + " s";
  return where + ": not ready: " + answer.substr(0, answer.find('\r'));
}

}  // namespace qsf_tools
