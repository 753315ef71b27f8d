// SPDX-License-Identifier: MIT
//
// Sends mutated requests to a server, some in pieces, some cut short.
//
//   http_fuzz_test [NUMBER [SEED]]     number of requests; 20,000 without it
//
// Checks that each is answered with a status of the server's or the service's, that the server
// answers good requests throughout, and that all it took is given back at the end. The same seed
// makes the same requests.

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>

#include "tools/serve/http/testing/http_client.h"

namespace {

using qsf_tools::HttpAddress;
using qsf_tools::HttpCounters;
using qsf_tools::HttpLimits;
using qsf_tools::testing_support::comes_true;
using qsf_tools::testing_support::get_request;
using qsf_tools::testing_support::post_request;
using qsf_tools::testing_support::RawClient;
using qsf_tools::testing_support::ReceivedResponse;
using qsf_tools::testing_support::RunningServer;

const std::string kSeeds[] = {
    get_request("/hello"),
    get_request("/hello?a=b&c", "Connection: keep-alive\r\nAccept: */*\r\n"),
    post_request("/echo", "some text", "Content-Type: application/json\r\n"),
    post_request("/echo", std::string(3000, 'x')),
    post_request("/forget", ""),
    "GET /page HTTP/1.0\r\n\r\n",
    "HEAD /page HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    get_request("/hello") + post_request("/echo", "one") + get_request("/nowhere"),
};

const std::string kParts[] = {
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    ",",
    "0",
    "-1",
    "99999999999999999999",
    "HTTP/1.1",
    "HTTP/1.0",
    "GET ",
    "/",
    "?",
    "#",
    "%00",
    std::string(1, '\0'),
    "\x80",
    "\xff",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "Host: h\r\n",
    "Content-Encoding: gzip\r\n",
    std::string(300, 'a'),
    std::string(3000, 'b'),
    "http://h/",
};

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  std::string request() {
    std::string bytes = kSeeds[below(std::size(kSeeds))];
    for (std::size_t n = below(6); n > 0; --n) mutate(bytes);
    return bytes;
  }

 private:
  void mutate(std::string& bytes) {
    const std::size_t at = below(bytes.size() + 1);
    switch (below(6)) {
      case 0: bytes.insert(at, kParts[below(std::size(kParts))]); break;
      case 1: bytes.erase(at, below(20)); break;
      case 2:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 3: bytes.insert(at, bytes.substr(below(bytes.size() + 1), below(100))); break;
      case 4: bytes.resize(at); break;
      case 5: bytes += kSeeds[below(std::size(kSeeds))]; break;
    }
  }

  std::mt19937_64 random_;
};

const std::set<int> kStatuses = {200, 400, 401, 404, 408, 411, 413, 414,
                                 415, 417, 431, 500, 501, 503, 505};

// Sends one request. Returns whether all that came back are responses.
bool send_one(const RunningServer& running, Mutator& mutator, const std::string& bytes) {
  RawClient client = running.connect();
  if (!client.is_connected()) return false;
  if (mutator.below(4) == 0) {
    const std::size_t cut = mutator.below(bytes.size() + 1);
    client.send(std::string_view(bytes).substr(0, cut));
    client.send(std::string_view(bytes).substr(cut));
  } else {
    client.send(bytes);
  }
  if (mutator.below(8) == 0) return true;  // goes without waiting for the answer
  client.end_sending();
  // A HEAD that was mutated into has no body to read, so only heads are looked at.
  std::string all;
  for (std::string some; !(some = client.receive_some(65536, 10000)).empty();) all += some;
  if (all.empty()) return true;  // incomplete requests end with their peer
  return all.rfind("HTTP/1.1 ", 0) == 0 && kStatuses.count(std::atoi(all.c_str() + 9)) == 1;
}

int fail(std::uint64_t number, const char* what, const std::string& bytes) {
  std::fprintf(stderr, "request %" PRIu64 ": %s\n", number, what);
  for (const char c : bytes) std::fprintf(stderr, "%02x", static_cast<unsigned char>(c));
  std::fprintf(stderr, "\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t n_requests = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  // At a Unix socket, because closed TCP connections hold their ports for a minute.
  HttpAddress address;
  const char* folder = std::getenv("TMPDIR");
  address.unix_path = std::string(folder != nullptr ? folder : "/tmp") + "/qsf-http-fuzz-" +
                      std::to_string(getpid());
  HttpLimits limits;
  limits.linger_seconds = 0.5;
  RunningServer running(limits, address);
  if (running.server == nullptr) {
    std::fprintf(stderr, "%s\n", running.error.c_str());
    return 1;
  }
  Mutator mutator(seed);
  for (std::uint64_t i = 0; i < n_requests; ++i) {
    const std::string bytes = mutator.request();
    if (!send_one(running, mutator, bytes)) return fail(i, "no response came back", bytes);
    if (i % 1000 != 0) continue;
    RawClient good = running.connect();
    good.send(post_request("/echo", "good"));
    if (good.receive().body != "good") return fail(i, "a good request is not answered", bytes);
  }
  if (!comes_true([&] {
        const HttpCounters counters = running.server->counters();
        return counters.connections_open == 0 && counters.head_pool_bytes == 0 &&
               counters.body_bytes == 0 && counters.output_bytes == 0;
      })) {
    return fail(n_requests, "memory is not given back", "");
  }
  const HttpCounters counters = running.server->counters();
  for (std::size_t status = 0; status < counters.responses.size(); ++status) {
    if (counters.responses[status] == 0) continue;
    std::printf("%zu: %" PRIu64 "\n", status, counters.responses[status]);
  }
  return 0;
}
