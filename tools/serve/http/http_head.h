// SPDX-License-Identifier: MIT
//
// Reads the head of a request, strictly: request line and headers, up to the empty line.
//
// What a head may mean is decided here once. Everything on which another reader could disagree is
// refused: two lengths, a length that is not digits alone, a length beside a transfer coding, lines
// that end in a bare line feed, folded lines, a space before a colon.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_HEAD_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tools/serve/http/http_exchange.h"
#include "tools/serve/http/http_server.h"

namespace qsf_tools {

struct HttpHead {
  HttpRequest request;  // without a body
  bool is_http_1_1 = true;
  bool keep_alive = true;
  std::uint64_t content_length = 0;
};

// What became of a head. A complete one may still have a status that refuses it: it is well-formed
// but asks for what is not done here. The service looks at it first, so that an unknown path or a
// missing key is what the client hears of.
struct HttpHeadOutcome {
  enum class Kind : unsigned char { kIncomplete, kComplete, kRefused };
  Kind kind = Kind::kIncomplete;
  std::size_t head_bytes = 0;  // of a complete head, with line ends before it
  int refused_status = 0;      // 0: taken
  std::string_view refused_why;
};

// Compares without case, as names of headers and their tokens are.
bool equal_http_names(std::string_view a, std::string_view b);

// Reads a head at the start of `bytes`. `n_seen_bytes` of them were in an earlier call that found
// it incomplete.
HttpHeadOutcome read_http_head(std::string_view bytes, std::size_t n_seen_bytes,
                               const HttpLimits& limits, HttpHead& head);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_HEAD_H_
