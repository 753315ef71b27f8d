// SPDX-License-Identifier: MIT

#include "tools/serve/http/http_head.h"

// Boost 1.74 uses std::exchange without including this.
#include <utility>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>
#include <string>

namespace qsf_tools {

namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::size_t kMaxLengthDigits = 18;  // below 2^63

HttpHeadOutcome refused_head(int status, std::string_view why) {
  return {HttpHeadOutcome::Kind::kRefused, 0, status, why};
}

char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_method_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Finds the end of a head and refuses what its lines may not hold. Beast takes folded lines, for
// example.
class HeadLines {
 public:
  // Returns the position behind the empty line; npos: not there yet.
  std::size_t find_end(std::string_view bytes, std::size_t first, std::size_t from) {
    for (std::size_t i = std::max(first, from); i < bytes.size(); ++i) {
      const char c = bytes[i];
      if (c == '\n') {
        if (i == first || bytes[i - 1] != '\r') return refuse("a line ends without CR");
        if (i >= first + 3 && bytes[i - 2] == '\n') return i + 1;
        continue;
      }
      if (i == first) continue;
      const char before = bytes[i - 1];
      if (before == '\r') return refuse("a carriage return inside a line");
      if (before == '\n' && (c == ' ' || c == '\t')) return refuse("a header line is folded");
    }
    return std::string_view::npos;
  }

  const char* why() const { return why_; }

 private:
  std::size_t refuse(const char* why) {
    why_ = why;
    return std::string_view::npos;
  }

  const char* why_ = nullptr;
};

// Collects what Beast's parser finds.
class HeadParser final : public http::basic_parser<true> {
 public:
  HeadParser(HttpHead& head, std::size_t max_headers) : head_(head), max_headers_(max_headers) {
    header_limit(std::numeric_limits<std::uint32_t>::max());
    skip(true);
    eager(false);
  }

  std::size_t n_hosts = 0;
  std::size_t n_lengths = 0;
  std::size_t n_encodings = 0;
  bool is_bad_length = false;
  bool has_too_many_headers = false;
  std::string target;
  int version = 0;

 private:
  void on_request_impl(http::verb, beast::string_view method, beast::string_view request_target,
                       int request_version, beast::error_code&) override {
    head_.request.method.assign(method.data(), method.size());
    target.assign(request_target.data(), request_target.size());
    version = request_version;
  }

  void on_field_impl(http::field field, beast::string_view name, beast::string_view value,
                     beast::error_code& error) override {
    if (head_.request.headers.size() == max_headers_) {
      has_too_many_headers = true;
      error = http::error::header_limit;
      return;
    }
    if (field == http::field::host) ++n_hosts;
    if (field == http::field::transfer_encoding) ++n_encodings;
    if (field == http::field::content_length) {
      ++n_lengths;
      read_length(value);
    }
    head_.request.headers.push_back(
        {std::string(name.data(), name.size()), std::string(value.data(), value.size())});
  }

  void read_length(beast::string_view value) {
    is_bad_length = is_bad_length || value.empty() || value.size() > kMaxLengthDigits;
    head_.content_length = 0;
    for (const char digit : value) {
      is_bad_length = is_bad_length || digit < '0' || digit > '9';
      if (is_bad_length) return;
      head_.content_length = head_.content_length * 10 + static_cast<std::uint64_t>(digit - '0');
    }
  }

  void on_response_impl(int, beast::string_view, int, beast::error_code&) override {}
  void on_header_impl(beast::error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, beast::error_code&) override {}
  std::size_t on_body_impl(beast::string_view, beast::error_code&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, beast::error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view, beast::error_code&) override {
    return 0;
  }
  void on_finish_impl(beast::error_code&) override {}

  HttpHead& head_;
  std::size_t max_headers_;
};

// Splits a target into path and query. Takes the absolute form, which RFC 9112, 3.2.2 asks for.
bool read_target(std::string_view target, HttpRequest& request) {
  if (target.find('#') != std::string_view::npos) return false;
  if (target == "*") {
    request.path = "*";
    return request.method == "OPTIONS";
  }
  constexpr std::string_view kScheme = "http://";
  if (target.size() >= kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), target.begin(),
                 [](char a, char b) { return a == lower_ascii(b); })) {
    target.remove_prefix(kScheme.size());
    const std::size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0) return false;
    target.remove_prefix(end);
    if (target.empty() || target.front() == '?') request.path = "/";
  } else if (target.empty() || target.front() != '/') {
    return false;
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  if (mark > 0) request.path.assign(target.substr(0, mark));
  if (mark < target.size()) request.query.assign(target.substr(mark + 1));
  return true;
}

bool has_body_coding(const HttpRequest& request) {
  const std::string_view coding = request.header("content-encoding");
  return !coding.empty() && !equal_http_names(coding, "identity");
}

HttpHeadOutcome judge_head(const HeadParser& parser, std::size_t head_bytes, HttpHead& head) {
  if (parser.is_bad_length || parser.n_lengths > 1) {
    return refused_head(400, "Content-Length must stand once and be digits alone");
  }
  if (parser.n_encodings > 0 && (parser.n_lengths > 0 || !head.is_http_1_1)) {
    return refused_head(400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
  }
  if (parser.n_hosts > 1 || (head.is_http_1_1 && parser.n_hosts == 0)) {
    return refused_head(400, "Host must stand once");
  }
  if (!read_target(parser.target, head.request)) {
    return refused_head(400, "the target must be a path that begins with '/'");
  }
  HttpHeadOutcome outcome{HttpHeadOutcome::Kind::kComplete, head_bytes, 0, {}};
  if (!head.request.header("expect").empty()) {
    outcome.refused_status = 417;
    outcome.refused_why = "Expect is not supported; send the body without waiting";
  } else if (parser.n_encodings > 0) {
    const bool is_chunked = parser.n_encodings == 1 &&
                            equal_http_names(head.request.header("transfer-encoding"), "chunked");
    outcome.refused_status = is_chunked ? 411 : 501;
    outcome.refused_why = is_chunked ? "chunked request bodies are not taken; send Content-Length"
                                     : "this Transfer-Encoding is not supported";
  } else if (has_body_coding(head.request)) {
    outcome.refused_status = 415;
    outcome.refused_why = "compressed bodies are not taken; send without Content-Encoding";
  }
  return outcome;
}

}  // namespace

bool equal_http_names(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower_ascii(x) == lower_ascii(y); });
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& field : headers) {
    if (equal_http_names(field.name, name)) return field.value;
  }
  return {};
}

HttpHeadOutcome read_http_head(std::string_view bytes, std::size_t n_seen_bytes,
                               const HttpLimits& limits, HttpHead& head) {
  // RFC 9112, 2.2: line ends before a request are passed over.
  std::size_t first = 0;
  while (first + 1 < bytes.size() && bytes[first] == '\r' && bytes[first + 1] == '\n') first += 2;
  if (first < bytes.size() && bytes[first] != '\r' && !is_method_letter(bytes[first])) {
    return refused_head(400, "this is not an HTTP request; TLS is not spoken here");
  }
  HeadLines lines;
  const std::string_view within = bytes.substr(0, limits.max_head_bytes);
  const std::size_t end = lines.find_end(within, first, n_seen_bytes);
  if (lines.why() != nullptr) return refused_head(400, lines.why());

  const std::string_view line = bytes.substr(first, bytes.substr(first).find('\n'));
  const std::size_t space = line.find(' ');
  if (space != std::string_view::npos &&
      std::min(line.find(' ', space + 1), line.size()) - space - 1 > limits.max_target_bytes) {
    return refused_head(414, "the target is too long");
  }
  if (end == std::string_view::npos) {
    if (bytes.size() >= limits.max_head_bytes) return refused_head(431, "the head is too long");
    return {};
  }

  head = {};
  HeadParser parser(head, limits.max_headers);
  beast::error_code error;
  parser.put(boost::asio::const_buffer(bytes.data() + first, end - first), error);
  if (parser.has_too_many_headers) return refused_head(431, "there are too many headers");
  if (error == http::error::bad_version) return refused_head(505, "the version must be HTTP/1.1");
  if (error || !parser.is_header_done()) return refused_head(400, "the head is malformed");
  head.is_http_1_1 = parser.version == 11;
  head.keep_alive = parser.keep_alive();
  return judge_head(parser, end, head);
}

}  // namespace qsf_tools
