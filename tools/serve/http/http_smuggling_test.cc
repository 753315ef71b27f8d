// SPDX-License-Identifier: MIT
//
// Requests about whose end two readers could disagree, and other malformed ones: each is refused,
// and nothing behind it is taken for a request.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/serve/http/http_head.h"
#include "tools/serve/http/testing/http_client.h"

namespace qsf_tools {
namespace {

using testing_support::RawClient;
using testing_support::RunningServer;

using namespace std::string_literals;

struct MalformedRequest {
  const char* what;
  int status;
  std::string bytes;
};

const std::string kHello = "GET /hello HTTP/1.1\r\nHost: h\r\n";
const std::string kEcho = "POST /echo HTTP/1.1\r\nHost: h\r\n";

std::vector<MalformedRequest> malformed_requests() {
  const std::string chunks = "0\r\n\r\n";
  return {
      {"length, then coding", 400,
       kEcho + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks},
      {"coding, then length", 400,
       kEcho + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunks},
      {"chunked", 411, kEcho + "Transfer-Encoding: chunked\r\n\r\n" + chunks},
      {"chunk extension", 411, kEcho + "Transfer-Encoding: chunked\r\n\r\n0;\nxx\r\n\r\n"},
      {"coding behind a tab", 411, kEcho + "Transfer-Encoding:\tchunked\r\n\r\n" + chunks},
      {"two codings", 400,
       kEcho + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunks},
      {"coding twice", 400,
       kEcho + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks},
      {"list of codings", 501, kEcho + "Transfer-Encoding: chunked, identity\r\n\r\n" + chunks},
      {"unknown coding", 501, kEcho + "Transfer-Encoding: xchunked\r\n\r\n" + chunks},
      {"coding in quotes", 501, kEcho + "Transfer-Encoding: \"chunked\"\r\n\r\n" + chunks},
      {"coding behind a vertical tab", 400, kEcho + "Transfer-Encoding:\vchunked\r\n\r\n" + chunks},
      {"coding with a space before the colon", 400,
       kEcho + "Transfer-Encoding : chunked\r\n\r\n" + chunks},
      {"coding on a folded line", 400, kEcho + "X: y\r\n Transfer-Encoding: chunked\r\n\r\n"},
      {"coding in HTTP/1.0", 400,
       "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks},
      {"two lengths", 400, kEcho + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx"},
      {"length twice", 400, kEcho + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nxxxxx"},
      {"list of lengths", 400, kEcho + "Content-Length: 5, 5\r\n\r\nxxxxx"},
      {"negative length", 400, kEcho + "Content-Length: -5\r\n\r\nxxxxx"},
      {"signed length", 400, kEcho + "Content-Length: +5\r\n\r\nxxxxx"},
      {"hexadecimal length", 400, kEcho + "Content-Length: 0x5\r\n\r\nxxxxx"},
      {"length with a space inside", 400, kEcho + "Content-Length: 5 5\r\n\r\nxxxxx"},
      {"length with a fraction", 400, kEcho + "Content-Length: 5.0\r\n\r\nxxxxx"},
      {"no length in the header", 400, kEcho + "Content-Length:\r\n\r\nxxxxx"},
      {"length of 2^64 + 5", 400, kEcho + "Content-Length: 18446744073709551621\r\n\r\nxxxxx"},
      {"length of 2^63 - 1", 400, kEcho + "Content-Length: 9223372036854775807\r\n\r\nxxxxx"},
      {"large length", 413, kEcho + "Content-Length: 999999999999999999\r\n\r\nxxxxx"},
      {"length with a space before the colon", 400, kEcho + "Content-Length : 5\r\n\r\nxxxxx"},
      {"length that ends in a line feed", 400, kEcho + "Content-Length: 5\n\r\nxxxxx"},
      {"line feeds alone", 400, "GET /hello HTTP/1.1\nHost: h\n\n"},
      {"line feed at the end", 400, kHello + "\n"},
      {"carriage return in a header", 400, kHello + "X: a\rContent-Length: 5\r\n\r\n"},
      {"carriage return at the end of a name", 400, kHello + "X\r: a\r\n\r\n"},
      {"folded line", 400, kHello + "X: a\r\n\tb\r\n\r\n"},
      {"space before the first header", 400, "GET /hello HTTP/1.1\r\n Host: h\r\n\r\n"},
      {"zero byte in a header", 400, kHello + "X: a\0b\r\n\r\n"s},
      {"zero byte in the target", 400, "GET /hel\0lo HTTP/1.1\r\nHost: h\r\n\r\n"s},
      {"control byte in a header", 400, kHello + "X: a\x01z\r\n\r\n"},
      {"DEL in a header", 400, kHello + "X: a\x7fz\r\n\r\n"},
      {"header without a colon", 400, kHello + "X\r\n\r\n"},
      {"header without a name", 400, kHello + ": x\r\n\r\n"},
      {"name with a space inside", 400, kHello + "X Y: z\r\n\r\n"},
      {"name with a letter beyond ASCII", 400, kHello + "X\xc3\xa4: z\r\n\r\n"},
      {"no host", 400, "GET /hello HTTP/1.1\r\n\r\n"},
      {"two hosts", 400, kHello + "Host: other\r\n\r\n"},
      {"target without a slash", 400, "GET hello HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"target with a fragment", 400, "GET /hello#x HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"authority as target", 400, "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"star for GET", 400, "GET * HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"no target", 400, "GET HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"two spaces", 400, "GET  /hello HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"tab for a space", 400, "GET\t/hello HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"space behind the version", 505, "GET /hello HTTP/1.1 \r\nHost: h\r\n\r\n"},
      {"HTTP/0.9", 400, "GET /hello\r\nHost: h\r\n\r\n"},
      {"HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"HTTP/1.2", 505, "GET /hello HTTP/1.2\r\nHost: h\r\n\r\n"},
      {"lower-case version", 505, "GET /hello http/1.1\r\nHost: h\r\n\r\n"},
      {"TLS", 400, "\x16\x03\x01\x02\x00\x01\x00\x01"s},
      {"a line feed first", 400, "\n\n\n\n"},
      {"zero bytes", 400, std::string(100, '\0')},
  };
}

TEST(HttpSmugglingTest, MalformedRequestsAreRefusedAndEndTheConnection) {
  RunningServer running;
  // What the attacker hopes to have taken as a request of somebody else.
  const std::string smuggled = "GET /hello HTTP/1.1\r\nHost: smuggled\r\n\r\n";
  for (const MalformedRequest& request : malformed_requests()) {
    for (const bool in_pieces : {false, true}) {
      const std::uint64_t before = running.server->counters().responses[200];
      RawClient client = running.connect();
      if (in_pieces) {
        client.send_slowly(request.bytes, 0);
        client.send(smuggled);
      } else {
        client.send(request.bytes + smuggled);
      }
      EXPECT_EQ(client.receive().status, request.status) << request.what << ", " << in_pieces;
      EXPECT_TRUE(client.sees_end(5000)) << request.what;
      EXPECT_EQ(running.server->counters().responses[200], before) << request.what;
    }
  }
}

TEST(HttpSmugglingTest, UnusualRequestsThatAreWellFormed) {
  RunningServer running;
  const std::pair<const char*, std::string> requests[] = {
      {"line ends before it", "\r\n\r\n" + kHello + "\r\n"},
      {"absolute target", "GET http://h/hello?x HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"absolute target in capitals", "GET HTTP://h:80/hello HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"no space behind a colon", "GET /hello HTTP/1.1\r\nHost:h\r\nX:y\r\n\r\n"},
      {"spaces around a value", kHello + "X: \t y \t \r\n\r\n"},
      {"an empty value", kHello + "X:\r\n\r\n"},
      {"an empty host", "GET /hello HTTP/1.1\r\nHost:\r\n\r\n"},
      {"letters beyond ASCII in a value", kHello + "X: \xc3\xa4\xff\r\n\r\n"},
      {"a length of zero", kHello + "Content-Length: 0\r\n\r\n"},
      {"a length with zeros before it", kHello + "Content-Length: 000\r\n\r\n"},
      {"names in capitals", "GET /hello HTTP/1.1\r\nHOST: h\r\nCONTENT-LENGTH: 0\r\n\r\n"},
  };
  for (const auto& [what, bytes] : requests) {
    RawClient client = running.connect();
    client.send(bytes + kHello + "\r\n");
    EXPECT_EQ(client.receive().status, 200) << what;
    EXPECT_EQ(client.receive().status, 200) << what;
  }
}

// A head is incomplete until its last byte, and what came in an earlier read changes nothing.
TEST(HttpHeadTest, EveryPrefixIsIncompleteAndPiecesChangeNothing) {
  const std::string head =
      "\r\nPOST /a%20b/c?d=e&f HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\nX-Y:  z z \r\n\r\n";
  const HttpLimits limits;
  for (std::size_t size = 0; size < head.size(); ++size) {
    HttpHead read;
    EXPECT_EQ(read_http_head(head.substr(0, size), 0, limits, read).kind,
              HttpHeadOutcome::Kind::kIncomplete)
        << size;
  }
  for (std::size_t seen = 0; seen < head.size(); ++seen) {
    HttpHead read;
    const HttpHeadOutcome outcome = read_http_head(head + "body", seen, limits, read);
    ASSERT_EQ(outcome.kind, HttpHeadOutcome::Kind::kComplete) << seen;
    EXPECT_EQ(outcome.head_bytes, head.size());
    EXPECT_EQ(read.request.method, "POST");
    EXPECT_EQ(read.request.path, "/a%20b/c");
    EXPECT_EQ(read.request.query, "d=e&f");
    EXPECT_EQ(read.request.header("x-y"), "z z");
    EXPECT_EQ(read.content_length, 12u);
    EXPECT_TRUE(read.keep_alive);
  }
}

TEST(HttpHeadTest, KeepAliveByVersionAndHeader) {
  const auto keeps = [](const std::string& version, const std::string& connection) {
    HttpHead read;
    const std::string head = "GET / HTTP/" + version + "\r\nHost: h\r\n" + connection + "\r\n";
    EXPECT_EQ(read_http_head(head, 0, {}, read).kind, HttpHeadOutcome::Kind::kComplete);
    return read.keep_alive;
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_FALSE(keeps("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: TE, Close\r\n"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Connection: Keep-Alive\r\n"));
}

}  // namespace
}  // namespace qsf_tools
