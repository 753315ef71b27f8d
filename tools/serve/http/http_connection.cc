// SPDX-License-Identifier: MIT

#include "tools/serve/http/http_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <cstring>
#include <optional>
#include <string>

namespace qsf_tools {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kFirstHeadBytes = 1024;
constexpr std::size_t kFirstBodyBytes = 4096;
// Of a body in one go, so that an upload does not keep others waiting.
constexpr int kReadsInARow = 16;

HttpClock::duration seconds(double s) {
  return std::chrono::duration_cast<HttpClock::duration>(std::chrono::duration<double>(s));
}

// Bytes that a parsed head takes.
std::size_t parsed_bytes(const HttpHead& head, std::size_t head_bytes) {
  return sizeof(HttpRequest) + head_bytes + head.request.headers.capacity() * sizeof(HttpHeader);
}

}  // namespace

bool HeadBuffer::append(std::string_view bytes) {
  const std::size_t needed = size_ + bytes.size();
  if (needed > share_.bytes()) {
    std::size_t capacity = std::max(kFirstHeadBytes, share_.bytes());
    while (capacity < needed) capacity *= 2;
    if (!share_.try_grow(capacity - share_.bytes())) return false;
    auto grown = std::make_unique<char[]>(capacity);
    std::copy_n(data_.get(), size_, grown.get());
    data_ = std::move(grown);
  }
  std::copy(bytes.begin(), bytes.end(), data_.get() + size_);
  size_ = needed;
  return true;
}

void HeadBuffer::drop_front(std::size_t n_bytes) {
  size_ -= n_bytes;
  if (size_ == 0) return release();
  std::memmove(data_.get(), data_.get() + n_bytes, size_);
}

void HeadBuffer::release() {
  size_ = 0;
  data_.reset();
  share_.release();
}

HttpConnection::HttpConnection(HttpHub& hub, HttpSocket socket, bool is_reserve)
    : hub_(hub),
      socket_(std::move(socket)),
      head_(hub.link->heads),
      head_share_(hub.link->heads),
      body_share_(hub.link->bodies),
      is_reserve_(is_reserve) {}

void HttpConnection::start() {
  enter(State::kIdle);
  wait_to_read();
}

void HttpConnection::enter(State state) {
  state_ = state;
  since_ = HttpClock::now();
}

void HttpConnection::wait_to_read() {
  if (is_read_pending_ || has_ended_ || is_ahead_full_ || state_ == State::kClosed) return;
  is_read_pending_ = true;
  socket_.async_wait(HttpSocket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->is_read_pending_ = false;
    if (error) return;
    self->readable();
    self->hub_.run_woken();
  });
}

void HttpConnection::wait_to_write() {
  if (is_write_pending_ || state_ == State::kClosed) return;
  is_write_pending_ = true;
  if (!is_blocked_) {
    is_blocked_ = true;
    sent_while_blocked_ = 0;
    blocked_since_ = HttpClock::now();
  }
  socket_.async_wait(HttpSocket::wait_write, [self = shared_from_this()](const error_code& error) {
    self->is_write_pending_ = false;
    if (error) return;
    self->proceed({});
    self->hub_.run_woken();
  });
}

void HttpConnection::readable() {
  switch (state_) {
    case State::kIdle:
    case State::kHead: return read_head_bytes();
    case State::kBody: return read_body_bytes();
    case State::kAnswering: return read_ahead();
    case State::kLingering: return discard();
    case State::kClosed: return;
  }
}

HttpConnection::Read HttpConnection::read(char* to, std::size_t max_bytes, std::size_t& n_bytes) {
  error_code error;
  n_bytes = socket_.read_some(asio::mutable_buffer(to, max_bytes), error);
  if (error == asio::error::would_block) return Read::kNothing;
  if (error) return Read::kEnd;
  hub_.link->bytes_received += n_bytes;
  return Read::kBytes;
}

void HttpConnection::read_head_bytes() {
  const std::size_t held = head_.view().size();
  std::size_t n_bytes = 0;
  switch (read(hub_.scratch.data(), limits().max_head_bytes - held, n_bytes)) {
    case Read::kNothing: return wait_to_read();
    case Read::kEnd: return close();
    case Read::kBytes: return proceed({hub_.scratch.data(), n_bytes});
  }
}

void HttpConnection::read_ahead() {
  const std::size_t room = limits().max_head_bytes - head_.view().size();
  if (room == 0) {
    is_ahead_full_ = true;
    return;
  }
  std::size_t n_bytes = 0;
  switch (read(hub_.scratch.data(), room, n_bytes)) {
    case Read::kNothing: break;
    case Read::kEnd:
      // What is ready still goes to a peer that only sends no more.
      has_ended_ = true;
      if (!output_->is_finished()) lose();
      return;
    case Read::kBytes:
      if (!store({hub_.scratch.data(), n_bytes})) return lose();
      break;
  }
  wait_to_read();
}

void HttpConnection::discard() {
  std::size_t n_bytes = 0;
  for (int i = 0; i < kReadsInARow; ++i) {
    const Read outcome = read(hub_.scratch.data(), hub_.scratch.size(), n_bytes);
    if (outcome == Read::kEnd) return close();
    if (outcome == Read::kNothing) break;
  }
  wait_to_read();
}

bool HttpConnection::store(std::string_view bytes) {
  while (!head_.append(bytes)) {
    if (!hub_.evict_slowest_head(this)) return false;
  }
  return true;
}

void HttpConnection::proceed(std::string_view input) {
  const auto self = shared_from_this();  // close() takes it off the list
  if (!head_.view().empty() && !input.empty()) {
    if (!store(input)) refuse(408, "no room for more of this head", HttpRefusal::kEvicted);
    input = {};
  }
  for (;;) {
    if (state_ == State::kAnswering) {
      if (!flush()) return;
      enter(State::kIdle);
    }
    if (state_ != State::kIdle && state_ != State::kHead) break;
    if (input.empty()) input = head_.view();
    if (input.size() <= n_seen_) break;
    if (state_ == State::kIdle) {
      enter(State::kHead);
      form_ = {};
    }
    take_head(input);
    input = {};
  }
  wait_to_read();
}

void HttpConnection::take_head(std::string_view input) {
  HttpHead head;
  const HttpHeadOutcome outcome = read_http_head(input, n_seen_, limits(), head);
  const bool is_stored = input.data() == head_.view().data();
  if (outcome.kind == HttpHeadOutcome::Kind::kIncomplete) {
    n_seen_ = static_cast<std::uint32_t>(input.size());
    if (!is_stored && !store(input)) {
      refuse(408, "no room for more of this head", HttpRefusal::kEvicted);
    }
    return;
  }
  n_seen_ = 0;
  if (outcome.kind == HttpHeadOutcome::Kind::kRefused) {
    const bool is_large = outcome.refused_status == 414 || outcome.refused_status == 431;
    refuse(outcome.refused_status, outcome.refused_why,
           is_large ? HttpRefusal::kTooLarge : HttpRefusal::kBadRequest);
    return;
  }
  begin_request(head, outcome, input);
}

void HttpConnection::begin_request(HttpHead& head, const HttpHeadOutcome& outcome,
                                   std::string_view input) {
  const bool is_stored = input.data() == head_.view().data();
  const std::string_view rest = input.substr(outcome.head_bytes);
  const bool is_whole = outcome.refused_status == 0 && rest.size() >= head.content_length;
  // Leaves what comes behind the first `n_bytes` of the rest for later.
  const auto keep_rest = [&](std::size_t n_bytes) {
    if (is_stored) {
      head_.drop_front(outcome.head_bytes + n_bytes);
      return true;
    }
    return n_bytes == rest.size() || store(rest.substr(n_bytes));
  };
  ++n_requests_;
  form_.is_http_1_1 = head.is_http_1_1;
  form_.is_head = head.request.method == "HEAD";
  form_.keep_alive = head.keep_alive && !is_reserve_ && !hub_.link->is_draining &&
                     n_requests_ < limits().max_requests_per_connection;

  std::size_t max_body_bytes = 0;
  std::optional<HttpResponse> refusal = hub_.service.check_head(head.request, max_body_bytes);
  if (refusal) {
    const bool goes_on = is_whole && keep_rest(head.content_length);
    return answer(std::move(*refusal), form_.keep_alive && goes_on);
  }
  if (outcome.refused_status != 0) {
    return refuse(outcome.refused_status, outcome.refused_why, HttpRefusal::kBadRequest);
  }
  if (head.content_length > std::min(max_body_bytes, limits().max_all_bodies_bytes)) {
    return refuse(413, "the body is too large", HttpRefusal::kTooLarge);
  }
  if (is_reserve_ && head.request.method != "GET" && !form_.is_head) {
    return refuse(503, "there are too many connections", HttpRefusal::kNoRoom);
  }
  while (!head_share_.try_grow(parsed_bytes(head, outcome.head_bytes))) {
    if (hub_.evict_slowest_head(this)) continue;
    return refuse(503, "there are too many requests", HttpRefusal::kNoRoom);
  }
  request_ = std::make_unique<HttpRequest>(std::move(head.request));
  const auto length = static_cast<std::size_t>(head.content_length);
  const std::size_t n_here = std::min(rest.size(), length);
  body_left_ = length;
  enter(State::kBody);
  if (!grow_body(n_here)) return;
  request_->body.append(rest.substr(0, n_here));
  body_left_ -= n_here;
  if (!keep_rest(n_here)) {
    return refuse(503, "no room for requests sent ahead", HttpRefusal::kNoRoom);
  }
  if (body_left_ == 0) hand_over();
}

bool HttpConnection::grow_body(std::size_t n_bytes) {
  std::string& body = request_->body;
  const std::size_t needed = body.size() + n_bytes;
  if (needed <= body_share_.bytes()) return true;
  const std::size_t whole = body.size() + body_left_;
  const std::size_t capacity =
      std::min(whole, std::max({needed, kFirstBodyBytes, 2 * body_share_.bytes()}));
  while (!body_share_.try_grow(capacity - body_share_.bytes())) {
    if (hub_.evict_slowest_body(this)) continue;
    refuse(503, "there is no room for more bodies now", HttpRefusal::kNoRoom);
    return false;
  }
  body.reserve(capacity);
  return true;
}

void HttpConnection::read_body_bytes() {
  for (int i = 0; i < kReadsInARow; ++i) {
    std::size_t n_bytes = 0;
    const std::size_t max_bytes = std::min(hub_.scratch.size(), body_left_);
    switch (read(hub_.scratch.data(), max_bytes, n_bytes)) {
      case Read::kNothing: return wait_to_read();
      case Read::kEnd: return close();
      case Read::kBytes: break;
    }
    if (!grow_body(n_bytes)) return proceed({});
    request_->body.append(hub_.scratch.data(), n_bytes);
    body_left_ -= n_bytes;
    if (body_left_ > 0) continue;
    hand_over();
    return proceed({});
  }
  wait_to_read();
}

double HttpConnection::body_rate(HttpClock::time_point now) const {
  const double s = std::chrono::duration<double>(now - since_).count();
  return static_cast<double>(request_ ? request_->body.size() : 0) / std::max(s, 1e-3);
}

double HttpConnection::output_held(HttpClock::time_point now) const {
  const double s = std::chrono::duration<double>(now - last_sent_).count();
  return static_cast<double>(output_ ? output_->queued_bytes() : 0) * std::max(s, 1e-3);
}

void HttpConnection::hand_over() {
  enter(State::kAnswering);
  output_ = std::make_shared<HttpOutput>(hub_.link, form_);
  output_->connection = this;
  last_sent_ = since_;
  hub_.service.handle(std::make_shared<ServiceExchange>(
      std::move(*request_), output_, hub_.link, std::move(head_share_), std::move(body_share_)));
  request_.reset();
}

void HttpConnection::answer(HttpResponse response, bool keep_alive) {
  enter(State::kAnswering);
  request_.reset();
  head_share_.release();
  body_share_.release();
  HttpResponseForm form = form_;
  form.keep_alive = keep_alive;
  output_ = std::make_shared<HttpOutput>(hub_.link, form);
  output_->connection = this;
  last_sent_ = since_;
  output_->respond(std::move(response));
}

void HttpConnection::refuse(int status, std::string_view why, HttpRefusal reason) {
  hub_.link->count_refusal(reason);
  head_.release();
  n_seen_ = 0;
  if (state_ == State::kIdle || state_ == State::kHead) form_ = {};
  answer(hub_.service.refuse(status, why), false);
}

void HttpConnection::output_is_ready() {
  if (state_ != State::kAnswering || is_write_pending_) return;
  proceed({});
}

bool HttpConnection::flush() {
  for (;;) {
    if (piece_ != nullptr && !send_piece()) return false;
    auto piece = std::make_unique<HttpPiece>();
    switch (output_->take(*piece)) {
      case HttpOutput::Next::kPiece:
        piece_ = std::move(piece);
        piece_sent_ = 0;
        break;
      case HttpOutput::Next::kNothing:
        is_blocked_ = false;
        wait_to_read();
        return false;
      case HttpOutput::Next::kForgotten: {
        HttpResponse response = hub_.service.refuse(500, "the request was not answered");
        output_->respond(std::move(response));
        break;
      }
      case HttpOutput::Next::kEnd: return end_response(true);
      case HttpOutput::Next::kCut: return end_response(false);
    }
  }
}

// Sends the piece. Returns false where it must wait, or the peer has gone.
bool HttpConnection::send_piece() {
  const std::string_view tail = piece_->tail();
  const std::size_t total = piece_->bytes.size() + tail.size();
  while (piece_sent_ < total) {
    const std::size_t n_head = std::min(piece_sent_, piece_->bytes.size());
    const std::size_t n_tail = piece_sent_ - n_head;
    const std::array<asio::const_buffer, 2> buffers = {
        asio::const_buffer(piece_->bytes.data() + n_head, piece_->bytes.size() - n_head),
        asio::const_buffer(tail.data() + n_tail, tail.size() - n_tail)};
    error_code error;
    const std::size_t n_bytes = socket_.write_some(buffers, error);
    if (error == asio::error::would_block) {
      wait_to_write();
      wait_to_read();
      return false;
    }
    if (error) {
      lose();
      return false;
    }
    piece_sent_ += n_bytes;
    sent_while_blocked_ += n_bytes;
    hub_.link->bytes_sent += n_bytes;
    last_sent_ = HttpClock::now();
    const std::size_t n_counted = piece_->bytes.size() + piece_->body.size();
    const std::size_t before = std::min(piece_sent_ - n_bytes, n_counted);
    output_->sent(std::min(piece_sent_, n_counted) - before);
  }
  piece_.reset();
  return true;
}

bool HttpConnection::end_response(bool is_complete) {
  const bool goes_on =
      is_complete && output_->keeps_alive() && !has_ended_ && !hub_.link->is_draining;
  output_->connection = nullptr;
  output_.reset();
  is_blocked_ = false;
  is_ahead_full_ = false;
  if (goes_on) return true;
  close_politely();
  return false;
}

// Closes after the peer has read the answer: closing with bytes of it unread would reset the
// connection and take the answer away.
void HttpConnection::close_politely() {
  if (has_ended_) return close();
  error_code error;
  socket_.shutdown(HttpSocket::shutdown_send, error);
  if (error) return close();
  head_.release();
  enter(State::kLingering);
  wait_to_read();
}

void HttpConnection::lose() {
  ++hub_.link->peers_gone;
  close();
}

void HttpConnection::close() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();
  state_ = State::kClosed;
  error_code error;
  socket_.close(error);
  head_.release();
  request_.reset();
  piece_.reset();
  head_share_.release();
  body_share_.release();
  hub_.connections[index] = hub_.connections.back();
  hub_.connections[index]->index = index;
  hub_.connections.pop_back();
  --hub_.link->connections_open;
  if (const auto output = std::exchange(output_, nullptr)) {
    output->connection = nullptr;
    output->lose();
  }
  if (hub_.on_removed != nullptr) hub_.on_removed(hub_.user);
}

void HttpConnection::evict() {
  if (state_ != State::kHead && state_ != State::kBody) {
    hub_.link->count_refusal(HttpRefusal::kEvicted);
    return close();
  }
  refuse(408, "the request came too slowly, and its room was needed", HttpRefusal::kEvicted);
  proceed({});
  close();  // the answer has gone, or there is no time for it
}

void HttpConnection::drain() {
  if (state_ == State::kIdle) close();
}

void HttpConnection::check_time(HttpClock::time_point now) {
  const HttpLimits& limit = limits();
  const auto bytes_time = [&](std::size_t n_bytes) {
    return seconds(static_cast<double>(n_bytes) / limit.min_bytes_per_second);
  };
  switch (state_) {
    case State::kIdle:
      if (now - since_ >= seconds(is_reserve_ ? limit.head_seconds : limit.idle_seconds)) close();
      return;
    case State::kHead:
      if (now - since_ < seconds(limit.head_seconds)) return;
      refuse(408, "the head came too slowly", HttpRefusal::kTimeout);
      return proceed({});
    case State::kBody:
      if (now - since_ < seconds(limit.body_seconds) + bytes_time(request_->body.size())) return;
      refuse(408, "the body came too slowly", HttpRefusal::kTimeout);
      return proceed({});
    case State::kAnswering:
      if (is_blocked_) {
        if (now - blocked_since_ < seconds(limit.write_seconds) + bytes_time(sent_while_blocked_)) {
          return;
        }
        hub_.link->count_refusal(HttpRefusal::kSlowReader);
        return lose();
      }
      if (now - last_sent_ >= seconds(limit.keep_alive_seconds)) {
        last_sent_ = now;
        if (output_->write_keep_alive()) proceed({});
      }
      return;
    case State::kLingering:
      if (now - since_ >= seconds(limit.linger_seconds)) close();
      return;
    case State::kClosed: return;
  }
}

void HttpHub::run_woken() {
  if (is_running_woken) return;
  is_running_woken = true;
  for (;;) {
    const std::vector<std::shared_ptr<HttpOutput>> woken = link->take_woken();
    if (woken.empty()) break;
    for (const std::shared_ptr<HttpOutput>& output : woken) {
      if (output->connection != nullptr) {
        output->connection->output_is_ready();
      } else {
        output->notify_late();
      }
    }
    limit_output();
  }
  is_running_woken = false;
}

bool HttpHub::evict_slowest_head(const HttpConnection* asker) {
  HttpConnection* slowest = nullptr;
  for (const auto& connection : connections) {
    if (connection.get() == asker || connection->state() != HttpConnection::State::kHead) continue;
    if (slowest == nullptr || connection->since() < slowest->since()) slowest = connection.get();
  }
  if (slowest == nullptr) return false;
  slowest->evict();
  return true;
}

bool HttpHub::evict_slowest_body(const HttpConnection* asker) {
  const HttpClock::time_point now = HttpClock::now();
  HttpConnection* slowest = nullptr;
  for (const auto& connection : connections) {
    if (connection->state() != HttpConnection::State::kBody) continue;
    if (slowest == nullptr || connection->body_rate(now) < slowest->body_rate(now)) {
      slowest = connection.get();
    }
  }
  if (slowest == nullptr || slowest == asker) return false;
  slowest->evict();
  return true;
}

void HttpHub::limit_output() {
  while (link->output.used() > link->output.limit()) {
    const HttpClock::time_point now = HttpClock::now();
    HttpConnection* worst = nullptr;
    for (const auto& connection : connections) {
      if (!connection->is_blocked()) continue;
      if (worst == nullptr || connection->output_held(now) > worst->output_held(now)) {
        worst = connection.get();
      }
    }
    if (worst == nullptr) return;
    link->count_refusal(HttpRefusal::kSlowReader);
    worst->close();
  }
}

}  // namespace qsf_tools
