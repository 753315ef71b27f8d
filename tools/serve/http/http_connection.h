// SPDX-License-Identifier: MIT
//
// One connection of an HttpServer, on the network thread.
//
//   idle -> head -> body -> answering -> idle ...      and, where the server closes, lingering
//
// A request whose head and body come in one read goes from idle to answering at once. While a
// response is being computed or sent, a read stays pending: it finds requests sent ahead, and that
// the peer has gone.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_CONNECTION_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_CONNECTION_H_

// Boost 1.74 uses std::exchange without including this.
#include <utility>

#include <algorithm>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tools/serve/http/http_head.h"
#include "tools/serve/http/http_link.h"
#include "tools/serve/http/http_output.h"

namespace qsf_tools {

using HttpClock = std::chrono::steady_clock;
using HttpSocket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol,
                                                    boost::asio::io_context::executor_type>;

class HttpConnection;

constexpr std::size_t kReadBytes = std::size_t{32} << 10;

// What all connections of a server share. Everything but the link is the network thread's.
struct HttpHub {
  HttpHub(HttpService& its_service, std::shared_ptr<HttpLink> its_link)
      : service(its_service),
        link(std::move(its_link)),
        scratch(std::max(kReadBytes, link->limits.max_head_bytes)) {}

  // Sends what the service has written since, until nothing is left.
  void run_woken();
  // Refuses the connection, other than `asker`, whose head came slowest, to free what it holds of
  // the pool of heads. Returns false where there is none.
  bool evict_slowest_head(const HttpConnection* asker);
  // The same for bodies; the slowest may be `asker`, which is not refused then: false.
  bool evict_slowest_body(const HttpConnection* asker);
  // Closes the connections that hold most output for longest until it is within its budget.
  void limit_output();

  HttpService& service;
  const std::shared_ptr<HttpLink> link;
  std::vector<std::shared_ptr<HttpConnection>> connections;
  std::vector<char> scratch;  // one read
  bool is_running_woken = false;
  void (*on_removed)(void* user) = nullptr;  // a connection has been closed
  void* user = nullptr;
};

// Bytes of heads that are not complete yet. Takes 1 KiB of the pool first, then doubles.
class HeadBuffer {
 public:
  explicit HeadBuffer(ByteBudget& pool) : share_(pool) {}

  std::string_view view() const { return {data_.get(), size_}; }
  // Appends; false where the pool is spent, and then nothing has changed.
  bool append(std::string_view bytes);
  void drop_front(std::size_t n_bytes);
  void release();

 private:
  ByteShare share_;
  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  enum class State : unsigned char { kIdle, kHead, kBody, kAnswering, kLingering, kClosed };

  // `is_reserve`: one of those beyond max_connections, for one short request.
  HttpConnection(HttpHub& hub, HttpSocket socket, bool is_reserve);

  // Begins to read. Requires  the hub lists it, at `index`
  void start();
  // The service has written something.
  void output_is_ready();
  // Does what is due: time-outs, and the comment of a silent stream.
  void check_time(HttpClock::time_point now);
  // Answers 408 where a request has begun, and closes.
  void evict();
  // Closes; a response under way is lost.
  void close();
  // Takes no request after the one being answered.
  void drain();

  State state() const { return state_; }
  HttpClock::time_point since() const { return since_; }
  // Whether output waits for the peer.
  bool is_blocked() const { return is_blocked_; }
  // How much output is held for a peer that takes none: bytes x seconds since it last took some.
  double output_held(HttpClock::time_point now) const;
  // Bytes a second of the body since its head.
  double body_rate(HttpClock::time_point now) const;

  std::size_t index = 0;  // in HttpHub::connections

 private:
  // What became of a read.
  enum class Read : unsigned char { kBytes, kNothing, kEnd };

  const HttpLimits& limits() const { return hub_.link->limits; }
  void enter(State state);
  void wait_to_read();
  void wait_to_write();
  void readable();
  Read read(char* to, std::size_t max_bytes, std::size_t& n_bytes);

  void read_head_bytes();
  void read_body_bytes();
  void read_ahead();
  void discard();

  // Goes on as far as it can with `input`, which was not stored yet, and with what is.
  void proceed(std::string_view input);
  // Takes a head, and what it can of its body.
  void take_head(std::string_view input);
  void begin_request(HttpHead& head, const HttpHeadOutcome& outcome, std::string_view input);
  // Keeps bytes that came behind what is being answered, or an incomplete head.
  bool store(std::string_view bytes);
  bool grow_body(std::size_t n_bytes);
  void hand_over();
  void answer(HttpResponse response, bool keep_alive);
  void refuse(int status, std::string_view why, HttpRefusal reason);

  // Sends what there is. Returns whether the response ended and the connection goes on.
  bool flush();
  bool send_piece();
  bool end_response(bool is_complete);
  void close_politely();
  void lose();

  HttpHub& hub_;
  HttpSocket socket_;
  HeadBuffer head_;
  std::unique_ptr<HttpRequest> request_;  // of kBody
  ByteShare head_share_;                  // of the request being read
  ByteShare body_share_;
  std::shared_ptr<HttpOutput> output_;
  std::unique_ptr<HttpPiece> piece_;  // being sent
  std::size_t piece_sent_ = 0;
  std::size_t body_left_ = 0;
  std::size_t sent_while_blocked_ = 0;
  HttpClock::time_point since_;  // the state began; of kHead: its first byte came
  HttpClock::time_point blocked_since_;
  HttpClock::time_point last_sent_;
  std::uint32_t n_requests_ = 0;
  std::uint32_t n_seen_ = 0;  // of the head that is incomplete
  State state_ = State::kIdle;
  HttpResponseForm form_;
  bool is_reserve_;
  bool is_read_pending_ = false;
  bool is_write_pending_ = false;
  bool is_blocked_ = false;     // output waits for the peer
  bool has_ended_ = false;      // the peer sends no more
  bool is_ahead_full_ = false;  // requests sent ahead wait in the kernel
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_CONNECTION_H_
