// SPDX-License-Identifier: MIT

#include "tools/serve/http/http_output.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "tools/serve/http/http_head.h"

namespace qsf_tools {

namespace {

// Appends the date as RFC 9110, 5.6.7 has it, in English whatever the locale is.
void append_date(std::string& out) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  namespace chrono = std::chrono;
  const auto now = chrono::floor<chrono::seconds>(chrono::system_clock::now());
  const auto day = chrono::floor<chrono::days>(now);
  const chrono::year_month_day date(day);
  const chrono::hh_mm_ss time(now - day);
  char text[64];
  const int n = std::snprintf(
      text, sizeof text, "Date: %s, %02u %s %04d %02d:%02d:%02d GMT\r\n",
      kDays[chrono::weekday(day).c_encoding()], static_cast<unsigned>(date.day()),
      kMonths[static_cast<unsigned>(date.month()) - 1], static_cast<int>(date.year()),
      static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
      static_cast<int>(time.seconds().count()));
  out.append(text, static_cast<std::size_t>(n));
}

// Appends text of the service, whose control characters must not end a line.
void append_field_text(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
}

bool is_of_server(std::string_view name) {
  for (const char* own : {"content-length", "transfer-encoding", "connection", "date"}) {
    if (equal_http_names(name, own)) return true;
  }
  return false;
}

bool has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

}  // namespace

std::string_view http_reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

HttpLink::HttpLink(const HttpLimits& its_limits)
    : limits(its_limits),
      heads(its_limits.head_pool_bytes),
      bodies(its_limits.max_all_bodies_bytes),
      output(its_limits.max_all_output_bytes) {}

void HttpLink::wake(std::shared_ptr<HttpOutput> output_to_send) {
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped) return;
    was_empty = woken_.empty();
    woken_.push_back(std::move(output_to_send));
  }
  // The network thread looks at the list before it waits.
  if (was_empty && std::this_thread::get_id() != network_thread.load()) {
    wake_signal.signal();
  }
}

std::vector<std::shared_ptr<HttpOutput>> HttpLink::take_woken() {
  const std::lock_guard lock(mutex_);
  return std::exchange(woken_, {});
}

void HttpLink::count_response(int status) {
  if (status > 0 && static_cast<std::size_t>(status) < responses.size()) {
    ++responses[static_cast<std::size_t>(status)];
  }
}

HttpOutput::HttpOutput(std::shared_ptr<HttpLink> link, HttpResponseForm form)
    : link_(std::move(link)), form_(form) {}

HttpOutput::~HttpOutput() {
  link_->output.give(queued_bytes_);
}

void HttpOutput::append_head(int status, const std::vector<HttpHeader>& headers) {
  status_ = status;
  closes_ = closes_ || !form_.keep_alive || link_->is_draining;
  std::string& out = pending_.bytes;
  out += "HTTP/1.1 ";
  out += std::to_string(status);
  out += ' ';
  out += http_reason(status);
  out += "\r\n";
  append_date(out);
  if (closes_) {
    out += "Connection: close\r\n";
  } else if (!form_.is_http_1_1) {
    out += "Connection: keep-alive\r\n";
  }
  for (const HttpHeader& field : headers) {
    if (is_of_server(field.name)) continue;
    append_field_text(out, field.name);
    out += ": ";
    append_field_text(out, field.value);
    out += "\r\n";
  }
  link_->count_response(status);
}

void HttpOutput::count_queued(std::size_t n_bytes) {
  queued_bytes_ += n_bytes;
  link_->output.take(n_bytes);
  if (queued_bytes_ >= link_->limits.max_output_bytes) is_full_ = true;
}

void HttpOutput::wake_locked() {
  if (is_woken_) return;
  is_woken_ = true;
  link_->wake(shared_from_this());
}

void HttpOutput::respond(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || status_ != 0) return;
  append_head(response.status, response.headers);
  const std::string_view body =
      response.body.empty() ? response.static_body : std::string_view(response.body);
  if (has_body(response.status)) {
    pending_.bytes += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  pending_.bytes += "\r\n";
  if (has_body(response.status) && !form_.is_head) {
    pending_.body = std::move(response.body);
    pending_.static_body = response.static_body;
  }
  count_queued(pending_.bytes.size() + pending_.body.size());
  is_finished_ = true;
  wake_locked();
}

void HttpOutput::start(int status, const std::vector<HttpHeader>& headers, std::string keep_alive) {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || status_ != 0) return;
  const auto length = std::find_if(headers.begin(), headers.end(), [](const HttpHeader& field) {
    return equal_http_names(field.name, "content-length");
  });
  const bool has_length = length != headers.end();
  is_streamed_ = has_body(status) && !form_.is_head;
  is_chunked_ = is_streamed_ && form_.is_http_1_1 && !has_length;
  // A reader of HTTP/1.0 knows the end of a stream by the end of the connection.
  closes_ = is_streamed_ && !is_chunked_ && !has_length;
  append_head(status, headers);
  if (has_length) pending_.bytes += "Content-Length: " + length->value + "\r\n";
  pending_.bytes += is_chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  count_queued(pending_.bytes.size());
  keep_alive_ = std::move(keep_alive);
  wake_locked();
}

void HttpOutput::append_piece(std::string_view bytes) {
  const std::size_t before = pending_.bytes.size();
  if (is_chunked_) {
    char size[24];
    const int n = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
    pending_.bytes.append(size, static_cast<std::size_t>(n));
  }
  pending_.bytes += bytes;
  if (is_chunked_) pending_.bytes += "\r\n";
  count_queued(pending_.bytes.size() - before);
}

void HttpOutput::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  // An empty chunk would end the response.
  if (is_gone_ || !is_streamed_ || is_finished_ || bytes.empty()) return;
  append_piece(bytes);
  wake_locked();
}

bool HttpOutput::write_keep_alive() {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || !is_streamed_ || is_finished_ || keep_alive_.empty()) return false;
  append_piece(keep_alive_);
  return true;
}

void HttpOutput::finish(bool complete) {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || status_ == 0 || is_finished_) return;
  is_finished_ = true;
  is_cut_ = !complete;
  if (complete && is_chunked_) {
    constexpr std::string_view kLastChunk = "0\r\n\r\n";
    pending_.bytes += kLastChunk;
    count_queued(kLastChunk.size());
  }
  wake_locked();
}

bool HttpOutput::is_full() const {
  const std::lock_guard lock(mutex_);
  return is_full_ && !is_gone_;
}

bool HttpOutput::is_gone() const {
  const std::lock_guard lock(mutex_);
  return is_gone_ || link_->is_stopped;
}

bool HttpOutput::is_finished() const {
  const std::lock_guard lock(mutex_);
  return is_finished_;
}

std::size_t HttpOutput::queued_bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_;
}

bool HttpOutput::keeps_alive() const {
  const std::lock_guard lock(mutex_);
  return !closes_;
}

void HttpOutput::set_on_change(void (*on_change)(void* user), void* user) {
  {
    const std::lock_guard lock(on_change_mutex_);
    on_change_ = on_change;
    user_ = user;
  }
  const std::lock_guard lock(mutex_);
  if (on_change != nullptr && is_gone_) {
    owes_notice_ = true;
    wake_locked();
  }
}

void HttpOutput::call_on_change() {
  const std::lock_guard lock(on_change_mutex_);
  if (on_change_ != nullptr) on_change_(user_);
}

void HttpOutput::let_go() {
  set_on_change(nullptr, nullptr);
  const std::lock_guard lock(mutex_);
  if (is_finished_ || is_gone_) return;
  if (status_ != 0) {
    is_finished_ = true;
    is_cut_ = true;
  } else {
    is_let_go_ = true;
  }
  wake_locked();
}

HttpOutput::Next HttpOutput::take(HttpPiece& piece) {
  const std::lock_guard lock(mutex_);
  is_woken_ = false;
  if (!pending_.bytes.empty() || !pending_.body.empty()) {
    std::swap(piece, pending_);
    return Next::kPiece;
  }
  if (is_let_go_ && status_ == 0) return Next::kForgotten;
  if (!is_finished_) return Next::kNothing;
  return is_cut_ ? Next::kCut : Next::kEnd;
}

void HttpOutput::sent(std::size_t n_bytes) {
  bool is_drained = false;
  {
    const std::lock_guard lock(mutex_);
    queued_bytes_ -= n_bytes;
    link_->output.give(n_bytes);
    is_drained = is_full_ && queued_bytes_ <= link_->limits.max_output_bytes / 2;
    if (is_drained) is_full_ = false;
  }
  if (is_drained) call_on_change();
}

void HttpOutput::lose() {
  {
    const std::lock_guard lock(mutex_);
    if (is_gone_) return;
    is_gone_ = true;
    link_->output.give(std::exchange(queued_bytes_, 0));
    pending_ = {};
  }
  call_on_change();
}

void HttpOutput::notify_late() {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = false;
    if (!std::exchange(owes_notice_, false)) return;
  }
  call_on_change();
}

ServiceExchange::ServiceExchange(HttpRequest request, std::shared_ptr<HttpOutput> output,
                                 std::shared_ptr<HttpLink> link, ByteShare head_share,
                                 ByteShare body_share)
    : request_(std::move(request)),
      output_(std::move(output)),
      link_(std::move(link)),
      head_share_(std::move(head_share)),
      body_share_(std::move(body_share)) {}

ServiceExchange::~ServiceExchange() {
  output_->let_go();
}

void ServiceExchange::drop_body() noexcept {
  std::string().swap(request_.body);
  body_share_.release();
}

}  // namespace qsf_tools
